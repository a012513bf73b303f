package operator

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gaissmai/bart"

	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/store"
)

// Bans knows which client networks are banned. The zero Bans bans none.
type Bans struct {
	reading sync.Mutex // held while bans are read, so that what was read last holds

	set atomic.Pointer[bart.Lite] // nil for none
}

// bansEvery is how often the bans are read again: others end, or are those of other nodes.
const bansEvery = 5 * time.Second

// Banned reports whether an address is in a banned network.
func (b *Bans) Banned(ip netip.Addr) bool {
	set := b.set.Load()
	return set != nil && set.Lookup(ip.Unmap())
}

// Read reads the bans from the database.
func (b *Bans) Read(ctx context.Context, from *store.Store) error {
	b.reading.Lock()
	defer b.reading.Unlock()
	bans, err := from.Bans(ctx)
	if err != nil {
		return err
	}
	if len(bans) == 0 {
		b.set.Store(nil)
		return nil
	}
	set := &bart.Lite{}
	for _, ban := range bans {
		set.Insert(ban.Network)
	}
	b.set.Store(set)
	return nil
}

// Follow reads the bans now and then, until ctx ends. While the database is away, those that
// were read last hold.
func (b *Bans) Follow(ctx context.Context, from *store.Store, log *slog.Logger) {
	for pause.For(ctx, bansEvery) {
		if err := b.Read(ctx, from); err != nil && ctx.Err() == nil {
			log.Warn("bans not read; those of before hold", "error", err)
		}
	}
}
