package store

import (
	"context"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// certificate is a value of the table of certificates.
type certificate struct {
	sealed   []byte
	modified time.Time
}

// Certificate returns what a key stands for, and when it was put there; ok is false if there
// is nothing.
func (s *Store) Certificate(ctx context.Context, key string) (value []byte, modified time.Time, ok bool, err error) {
	doing := "read certificate " + key
	found, ok, err := readOne(ctx, s, s.read, doing, func(c *certificate) []any { return []any{&c.sealed, (*micros)(&c.modified)} },
		"SELECT value_sealed, modified_at FROM certificates WHERE key = ?", key)
	if err != nil || !ok {
		return nil, time.Time{}, false, err
	}
	value, err = s.sealer.Open(found.sealed, key, "value")
	return value, found.modified, err == nil, s.fault(doing, err)
}

// CertificateKeys returns the keys below a folder, in order.
func (s *Store) CertificateKeys(ctx context.Context, folder string) ([]string, error) {
	from, to := below(folder)
	return readAll(ctx, s, s.read, "list certificates in "+folder, onlyPlace[string],
		"SELECT key FROM certificates WHERE key >= ? AND key < ? ORDER BY key", from, to)
}

// PutCertificate makes a key stand for a value.
func (s *Store) PutCertificate(ctx context.Context, key string, value []byte) error {
	return s.exec(ctx, s.write, "write certificate "+key, `INSERT INTO certificates (key, value_sealed, modified_at) VALUES (?, ?, ?)
		ON CONFLICT (key) DO UPDATE SET value_sealed = excluded.value_sealed, modified_at = excluded.modified_at`,
		key, s.sealer.Seal(value, key, "value"), micros(stack.Now()))
}

// DeleteCertificates removes a key, and all keys below it.
func (s *Store) DeleteCertificates(ctx context.Context, key string) error {
	from, to := below(key)
	return s.exec(ctx, s.write, "delete certificate "+key, "DELETE FROM certificates WHERE key = ? OR (key >= ? AND key < ?)", key, from, to)
}

// below returns the first key that may be in a folder, and the first after those.
func below(folder string) (from, to string) { return folder + "/", folder + string(rune('/'+1)) }

// LockCertificate gives a holder a lock for the time of a lease, and reports whether it has
// it. One that has it already renews it; nobody else gets it before the lease is over.
func (s *Store) LockCertificate(ctx context.Context, name, holder string, lease time.Duration) (locked bool, err error) {
	_, locked, err = readOne(ctx, s, s.write, "lock certificate "+name, onlyPlace[string], `INSERT INTO certificate_locks (name, holder, held_until)
		SELECT CAST(? AS TEXT), CAST(? AS TEXT), t + CAST(? AS BIGINT) FROM (SELECT `+s.dialect.clock()+` AS t) AS clock WHERE true
		ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, held_until = excluded.held_until
		WHERE certificate_locks.holder = excluded.holder OR certificate_locks.held_until <= `+s.dialect.clock()+`
		RETURNING name`, name, holder, lease.Microseconds())
	return locked, err
}

// UnlockCertificate gives a lock back, if the holder still has it. Leases that are over go,
// too.
func (s *Store) UnlockCertificate(ctx context.Context, name, holder string) error {
	return s.exec(ctx, s.write, "unlock certificate "+name,
		"DELETE FROM certificate_locks WHERE (name = ? AND holder = ?) OR held_until <= "+s.dialect.clock(), name, holder)
}
