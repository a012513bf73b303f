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
	Source    string // digest of the source that the request deploys; "" for none
	Address   string // that sent the request; only it is shown OneTime again
	OneTime   []byte // JSON, sealed at rest; nil once it is too late to show it again
	StackID   string
	CreatedAt time.Time
	Answer    string // "" while the request has not been answered
}

// FindReceipt returns the receipt of a request unless it has expired.
func (s *Store) FindReceipt(ctx context.Context, key string) (r Receipt, ok bool, err error) {
	now := stack.Now()
	var sealed []byte
	r, ok, err = readOne(ctx, s, s.read, "find receipt", func(r *Receipt) []any {
		return []any{&r.Key, &r.Digest, &r.Source, &r.Address, &r.StackID, (*micros)(&r.CreatedAt), (*nullText)(&r.Answer), &sealed}
	}, `SELECT key, digest, source, address, stack_id, created_at, answer, one_time_sealed
		FROM receipts WHERE key = ? AND created_at > ?`, key, micros(now.Add(-receiptLife)))
	if err != nil || sealed == nil || now.Sub(r.CreatedAt) >= oneTimeLife {
		return r, ok, err
	}
	if r.OneTime, err = s.sealer.Open(sealed, key, "one_time"); err != nil {
		return Receipt{}, false, s.fault("open receipt", err)
	}
	return r, true, nil
}

// AnswerReceipt records the answer to a request.
func (s *Store) AnswerReceipt(ctx context.Context, key, answer string) error {
	return s.exec(ctx, s.write, "answer receipt", "UPDATE receipts SET answer = ? WHERE key = ?", answer, key)
}

// DropReceipt removes the receipt of a request whose change was undone. One of another
// request with the key stays; the time tells them apart.
func (s *Store) DropReceipt(ctx context.Context, key string, createdAt time.Time) error {
	return s.exec(ctx, s.write, "drop receipt", "DELETE FROM receipts WHERE key = ? AND created_at = ?", key, micros(createdAt))
}

// SweepReceipts removes expired receipts, and the one-time fields that have expired in
// the others.
func (s *Store) SweepReceipts(ctx context.Context) error {
	now := stack.Now()
	return s.transact(ctx, func(tx *sql.Tx) error {
		err := s.exec(ctx, tx, "sweep receipts", "DELETE FROM receipts WHERE created_at <= ?", micros(now.Add(-receiptLife)))
		if err != nil {
			return err
		}
		return s.exec(ctx, tx, "sweep receipts",
			"UPDATE receipts SET one_time_sealed = NULL WHERE created_at <= ? AND one_time_sealed IS NOT NULL", micros(now.Add(-oneTimeLife)))
	})
}

// takenRetry is when a request may get the answer of one with its key.
const takenRetry = 5 * time.Second

// insertReceipt stores the receipt of a change together with the change; nil is none. It
// fails with a Conflict if another request with the key was faster, on whatever node.
func (s *Store) insertReceipt(ctx context.Context, tx *sql.Tx, stackID string, r *Receipt) error {
	if r == nil {
		return nil
	}
	var sealed []byte
	if r.OneTime != nil {
		sealed = s.sealer.Seal(r.OneTime, r.Key, "one_time")
	}
	_, first, err := readOne(ctx, s, tx, "insert receipt", onlyPlace[string], `INSERT INTO receipts (key, digest, source, stack_id, address, created_at, one_time_sealed)
		VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (key) DO UPDATE SET digest = excluded.digest, source = excluded.source, stack_id = excluded.stack_id, address = excluded.address,
			created_at = excluded.created_at, one_time_sealed = excluded.one_time_sealed, answer = NULL
		WHERE receipts.created_at <= ?
		RETURNING key`, r.Key, r.Digest, r.Source, stackID, r.Address, micros(r.CreatedAt), nullBlob(sealed), micros(stack.Now().Add(-receiptLife)))
	if err == nil && !first {
		err = &stack.Error{
			Kind: stack.Conflict, RetryAfter: takenRetry,
			Detail: "another request with this Idempotency-Key was accepted at the same time; send it again in a few seconds to get its answer",
		}
	}
	return err
}
