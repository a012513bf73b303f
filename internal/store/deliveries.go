package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// Delivery is one attempt to deliver an event to a stack's webhook, as its owner sees
// it.
type Delivery struct {
	StackID  string
	EventID  int64 // below 0 for a test event
	Type     stack.EventType
	Attempt  int // 1 for the first; 0 for one sent by hand
	At       time.Time
	Duration time.Duration // until the whole answer was there; 0 when none came
	Status   int           // of the answer; 0 when none came
	Error    string        // why it failed; "" for a success
	Words    string        // the beginning of the answer's body
}

// deliveriesKept is how many deliveries of each stack are kept.
const deliveriesKept = 100

// AddDeliveries stores deliveries in order in one transaction, and removes all but the
// last hundred of each stack. It skips those of deleted stacks. It wakes the watchers
// of the stacks.
func (s *Store) AddDeliveries(ctx context.Context, deliveries []Delivery) error {
	by := map[string][]Delivery{}
	for _, d := range deliveries {
		by[d.StackID] = append(by[d.StackID], d)
	}
	err := s.transact(ctx, func(tx *sql.Tx) error {
		for id, all := range by {
			recent := all[max(0, len(all)-deliveriesKept):] // the others would not be kept
			if err := s.insertDeliveries(ctx, tx, recent); err != nil {
				return err
			}
			err := s.exec(ctx, tx, "remove old deliveries of "+id, `DELETE FROM deliveries WHERE stack_id = ? AND id <=
				(SELECT id FROM deliveries WHERE stack_id = ? ORDER BY id DESC LIMIT 1 OFFSET ?)`, id, id, deliveriesKept)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for id := range by {
		s.watch.wake(id)
	}
	return nil
}

func (s *Store) insertDeliveries(ctx context.Context, tx *sql.Tx, deliveries []Delivery) error {
	for _, d := range deliveries {
		err := s.exec(ctx, tx, "insert a delivery of "+d.StackID, `INSERT INTO deliveries
			(stack_id, event_id, type, attempt, at, duration, status, error, words)
			SELECT id, ?, ?, ?, ?, ?, ?, ?, ? FROM stacks WHERE id = ? AND status <> 'deleted'`,
			d.EventID, string(d.Type), d.Attempt, micros(d.At), d.Duration.Microseconds(), d.Status, d.Error, d.Words, d.StackID)
		if err != nil {
			return err
		}
	}
	return nil
}

// Deliveries returns the last limit deliveries of a stack, newest first.
func (s *Store) Deliveries(ctx context.Context, stackID string, limit int) ([]Delivery, error) {
	return readAll(ctx, s, s.read, "read deliveries of "+stackID, (*Delivery).places,
		`SELECT stack_id, event_id, type, attempt, at, duration * 1000, status, error, words
		FROM deliveries WHERE stack_id = ? ORDER BY id DESC LIMIT ?`, stackID, limit)
}

// places are for the columns of Deliveries, with the duration in nanoseconds.
func (d *Delivery) places() []any {
	return []any{&d.StackID, &d.EventID, (*string)(&d.Type), &d.Attempt, (*micros)(&d.At), &d.Duration, &d.Status, &d.Error, &d.Words}
}

// forgetDeliveries removes the deliveries of a deleted stack.
func (s *Store) forgetDeliveries(ctx context.Context, tx *sql.Tx, stackID string) error {
	return s.exec(ctx, tx, "remove deliveries of "+stackID, "DELETE FROM deliveries WHERE stack_id = ?", stackID)
}
