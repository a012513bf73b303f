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
	Result  string // ok, or the error; begun while it is being carried out
}

// Audit records what an operator tells the server, and returns the number of the entry. Nothing
// removes it again.
func (s *Store) Audit(ctx context.Context, e AuditEntry) (id int64, err error) {
	id, _, err = readOne(ctx, s, s.write, "record a command of an operator", onlyPlace[int64],
		"INSERT INTO audit (at, uid, command, result) VALUES (?, ?, ?, ?) RETURNING id", micros(e.At), e.UID, e.Command, e.Result)
	return id, err
}

// EndAudit records what came of the command of an entry.
func (s *Store) EndAudit(ctx context.Context, id int64, result string) error {
	return s.exec(ctx, s.write, "record what came of a command of an operator", "UPDATE audit SET result = ? WHERE id = ?", result, id)
}

// AuditEntries returns the last entries, at most n, in the order in which they were recorded.
func (s *Store) AuditEntries(ctx context.Context, n int) ([]AuditEntry, error) {
	return readAll(ctx, s, s.read, "read the audit", func(e *AuditEntry) []any {
		return []any{(*micros)(&e.At), &e.UID, &e.Command, &e.Result}
	}, "SELECT at, uid, command, result FROM (SELECT id, at, uid, command, result FROM audit ORDER BY id DESC LIMIT ?) AS latest ORDER BY id", n)
}
