package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// How long a receipt is kept, and for how much of that time its one-time fields are.
const (
	receiptLife = 24 * time.Hour
	oneTimeLife = 10 * time.Minute
)

// Receipt records the answer to a request that may be sent again: a repeated request
// gets that answer instead of a second stack or deploy.
type Receipt struct {
	Key       string // a hash of the client's key, the caller and the route
	Digest    []byte // of the body
	Address   string // that sent the request; only it is shown OneTime again
	OneTime   []byte // JSON, sealed at rest; nil once it is too late to show it again
	StackID   string
	CreatedAt time.Time
	Answer    string // "" while the request has not been answered
}

// FindReceipt returns the receipt of a request unless it has expired.
func (s *Store) FindReceipt(ctx context.Context, key string) (r Receipt, ok bool, err error) {
	now := stack.Now()
	r.Key = key
	var answer sql.NullString
	var sealed []byte
	row := s.read.QueryRowContext(ctx, `SELECT digest, address, stack_id, created_at, answer, one_time_sealed
		FROM receipts WHERE key = ? AND created_at > ?`, key, micros(now.Add(-receiptLife)))
	err = s.found("find receipt", row, &ok, &r.Digest, &r.Address, &r.StackID, (*micros)(&r.CreatedAt), &answer, &sealed)
	if err != nil || !ok {
		return Receipt{}, false, err
	}
	r.Answer = answer.String
	if sealed == nil || now.Sub(r.CreatedAt) >= oneTimeLife {
		return r, true, nil
	}
	if r.OneTime, err = s.sealer.Open(sealed, key, "one_time"); err != nil {
		return Receipt{}, false, s.fault("open receipt", err)
	}
	return r, true, nil
}

// AnswerReceipt records the answer to a request.
func (s *Store) AnswerReceipt(ctx context.Context, key, answer string) error {
	if _, err := s.write.ExecContext(ctx, "UPDATE receipts SET answer = ? WHERE key = ?", answer, key); err != nil {
		return s.fault("answer receipt", err)
	}
	return nil
}

// DropReceipt removes the receipt of a request whose change was undone.
func (s *Store) DropReceipt(ctx context.Context, key string) error {
	if _, err := s.write.ExecContext(ctx, "DELETE FROM receipts WHERE key = ?", key); err != nil {
		return s.fault("drop receipt", err)
	}
	return nil
}

// SweepReceipts removes expired receipts, and the one-time fields that have expired in
// the others.
func (s *Store) SweepReceipts(ctx context.Context) error {
	now := stack.Now()
	return s.transact(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM receipts WHERE created_at <= ?", micros(now.Add(-receiptLife)))
		if err == nil {
			_, err = tx.ExecContext(ctx, "UPDATE receipts SET one_time_sealed = NULL WHERE created_at <= ? AND one_time_sealed IS NOT NULL",
				micros(now.Add(-oneTimeLife)))
		}
		if err != nil {
			return s.fault("sweep receipts", err)
		}
		return nil
	})
}

// insertReceipt stores the receipt of a change together with the change; nil is none.
func (s *Store) insertReceipt(ctx context.Context, tx *sql.Tx, stackID string, r *Receipt) error {
	if r == nil {
		return nil
	}
	var sealed []byte
	if r.OneTime != nil {
		sealed = s.sealer.Seal(r.OneTime, r.Key, "one_time")
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO receipts (key, digest, stack_id, address, created_at, one_time_sealed)
		VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (key) DO UPDATE SET digest = excluded.digest, stack_id = excluded.stack_id, address = excluded.address,
			created_at = excluded.created_at, one_time_sealed = excluded.one_time_sealed, answer = NULL`, r.Key, r.Digest, stackID, r.Address, micros(r.CreatedAt), nullBlob(sealed))
	if err != nil {
		return s.fault("insert receipt", err)
	}
	return nil
}
