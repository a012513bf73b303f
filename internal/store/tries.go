package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/berth-host/berth/internal/stack"
)

// ErrInDoubt means that a change, or an earlier try of it, may have taken effect: the database
// has not said so, and cannot be asked.
var ErrInDoubt = errors.New("whether it took effect is not known")

// inDoubt is ErrInDoubt for a transaction of PostgreSQL.
type inDoubt struct {
	transaction string // its id
	cause       error
}

func (e *inDoubt) Error() string   { return e.cause.Error() + ", and " + ErrInDoubt.Error() }
func (e *inDoubt) Unwrap() []error { return []error{e.cause, ErrInDoubt} }

// Tries are the calls of Update for one change, of which no more than one takes effect. The
// calls must follow each other. The zero value is that of none.
type Tries struct {
	InDoubt string // the transaction of the call that may have taken effect; "" for none
	events  []stack.Event
}

// OneOf makes a change one of several tries. If an earlier one took effect, Update does not call
// fn, and returns the stack as it is. As long as an earlier one may have, an error is ErrInDoubt,
// unless it is a *stack.Error.
func OneOf(tries *Tries) Option { return func(c *change) { c.tries = tries } }

// TriesOf returns what options have of OneOf, or nil.
func TriesOf(options ...Option) *Tries { return changeWith(options).tries }

// isOver reports whether an earlier try took effect. None is under way any more, since it would
// have the lock of writers, which tx has. A transaction that the database has yet to begin is one
// that it lost.
func (t *Tries) isOver(ctx context.Context, s *Store, tx *sql.Tx) (bool, error) {
	if t == nil || t.InDoubt == "" {
		return false, nil
	}
	status, _, err := readOne(ctx, s, tx, "ask what became of a commit", onlyPlace[string],
		"SELECT coalesce(CASE WHEN x.id < pg_current_xact_id() THEN pg_xact_status(x.id) END, '') FROM (SELECT CAST(CAST(? AS text) AS xid8) AS id) x", t.InDoubt)
	over := status == "committed"
	if err == nil && !over {
		t.InDoubt = ""
	}
	return over, err
}

// note keeps what is known after a call that had an error, or none, and returns the error.
func (t *Tries) note(err error, events []stack.Event) error {
	switch doubt, inDoubt := errors.AsType[*inDoubt](err); {
	case t == nil:
	case err == nil:
		t.InDoubt = ""
	case t.InDoubt == "" && inDoubt:
		t.InDoubt, t.events = doubt.transaction, events
	case t.InDoubt != "" && stack.KindOf(err) == 0:
		return errors.Join(err, ErrInDoubt)
	}
	return err
}
