package store

import (
	"context"
	"net/netip"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// Ban is a client network that gets no answer but a refusal.
type Ban struct {
	Network   netip.Prefix
	CreatedAt time.Time
	EndsAt    time.Time // zero for never
}

// SetBan bans a network, or changes when its ban ends.
func (s *Store) SetBan(ctx context.Context, b Ban) error {
	return s.exec(ctx, s.write, "ban a network", `INSERT INTO bans (network, created_at, ends_at) VALUES (?, ?, ?)
		ON CONFLICT (network) DO UPDATE SET created_at = excluded.created_at, ends_at = excluded.ends_at`,
		b.Network.String(), micros(b.CreatedAt), micros(b.EndsAt))
}

// RemoveBan removes the ban of a network, and reports whether there was one.
func (s *Store) RemoveBan(ctx context.Context, network netip.Prefix) (bool, error) {
	_, there, err := readOne(ctx, s, s.write, "remove a ban", onlyPlace[string], "DELETE FROM bans WHERE network = ? RETURNING network", network.String())
	return there, err
}

// Bans returns the bans that have not ended, by their networks.
func (s *Store) Bans(ctx context.Context) ([]Ban, error) {
	rows, err := readAll(ctx, s, s.read, "read bans", func(b *banRow) []any {
		return []any{&b.network, (*micros)(&b.ban.CreatedAt), (*micros)(&b.ban.EndsAt)}
	}, "SELECT network, created_at, ends_at FROM bans WHERE ends_at IS NULL OR ends_at > ? ORDER BY network", micros(stack.Now()))
	bans := make([]Ban, len(rows))
	for i, r := range rows {
		bans[i] = r.ban
		if bans[i].Network, err = netip.ParsePrefix(r.network); err != nil {
			return nil, s.fault("read the ban "+r.network, err)
		}
	}
	return bans, err
}

// banRow is a ban whose network is still to be parsed.
type banRow struct {
	ban     Ban
	network string
}
