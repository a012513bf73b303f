package store

import (
	"context"
	"time"
)

// AuditEntry is what an operator told a running server.
type AuditEntry struct {
	At      time.Time
	UID     int // of the process that sent it
	Command string
	Result  string // ok, or the error
}

// Audit records what an operator told the server. Nothing removes it again.
func (s *Store) Audit(ctx context.Context, e AuditEntry) error {
	return s.exec(ctx, s.write, "record a command of an operator", "INSERT INTO audit (at, uid, command, result) VALUES (?, ?, ?, ?)",
		micros(e.At), e.UID, e.Command, e.Result)
}

// AuditEntries returns the last entries, at most n, in the order in which they were recorded.
func (s *Store) AuditEntries(ctx context.Context, n int) ([]AuditEntry, error) {
	return readAll(ctx, s, s.read, "read the audit", func(e *AuditEntry) []any {
		return []any{(*micros)(&e.At), &e.UID, &e.Command, &e.Result}
	}, "SELECT at, uid, command, result FROM (SELECT id, at, uid, command, result FROM audit ORDER BY id DESC LIMIT ?) AS latest ORDER BY id", n)
}
