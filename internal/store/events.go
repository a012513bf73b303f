package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// eventColumns are the columns of an event, in the order of eventPlaces.
const eventColumns = "id, stack_id, type, data, created_at"

func eventPlaces(e *stack.Event) []any {
	return []any{&e.ID, &e.StackID, (*string)(&e.Type), &plainJSON{&e.Data}, (*micros)(&e.CreatedAt)}
}

// Events returns at most limit events of a stack with ids above after, oldest first.
// Events of a deleted stack remain.
func (s *Store) Events(ctx context.Context, id string, after int64, limit int) ([]stack.Event, error) {
	return s.events(ctx, id, "id > ? ORDER BY id LIMIT ?", after, limit)
}

// LatestEvents returns the last limit events of a stack, newest first.
func (s *Store) LatestEvents(ctx context.Context, id string, limit int) ([]stack.Event, error) {
	return s.events(ctx, id, "true ORDER BY id DESC LIMIT ?", limit)
}

// EventsSince returns the events of a stack from a time on that are of some types, oldest
// first.
func (s *Store) EventsSince(ctx context.Context, id string, since time.Time, types ...stack.EventType) ([]stack.Event, error) {
	args := []any{micros(since)}
	for _, t := range types {
		args = append(args, string(t))
	}
	places := strings.TrimSuffix(strings.Repeat("?, ", len(types)), ", ")
	return s.events(ctx, id, "created_at >= ? AND type IN ("+places+") ORDER BY id", args...)
}

func (s *Store) events(ctx context.Context, id, which string, args ...any) ([]stack.Event, error) {
	return readAll(ctx, s, s.read, "read events of "+id, eventPlaces,
		"SELECT "+eventColumns+" FROM events WHERE stack_id = ? AND "+which, append([]any{id}, args...)...)
}

// insertEvents stores events of one stack, with their times set, in order, and sets
// their ids.
func (s *Store) insertEvents(ctx context.Context, tx *sql.Tx, stackID string, events []stack.Event) error {
	for i := range events {
		e := &events[i]
		e.StackID = stackID
		data := e.Data
		if data == nil {
			data = map[string]any{}
		}
		id, _, err := readOne(ctx, s, tx, fmt.Sprintf("insert event %s of %s", e.Type, stackID), onlyPlace[int64],
			"INSERT INTO events (stack_id, type, data, created_at) VALUES (?, ?, ?, ?) RETURNING id",
			stackID, string(e.Type), plainJSON{data}, micros(e.CreatedAt))
		if err != nil {
			return err
		}
		e.ID = id
	}
	return nil
}

// stamp returns the time of a change and sets it in the events without a time. It is
// that of the first event with one, which the stack already has from it, or now.
func stamp(events []stack.Event) time.Time {
	now := stack.Now()
	if i := slices.IndexFunc(events, func(e stack.Event) bool { return !e.CreatedAt.IsZero() }); i >= 0 {
		now = events[i].CreatedAt
	}
	for i := range events {
		if events[i].CreatedAt.IsZero() {
			events[i].CreatedAt = now
		}
	}
	return now
}
