package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// Remains is what a node may still have of a stack that another node owns.
type Remains struct {
	StackID string
	Node    string
	AllGo   bool // data included; otherwise volumes with data stay

	// Expected means that the node has copies of the stack and may become the owner.
	Expected bool
	Since    time.Time // when the stack got another owner

	Volumes []string  // in which the node has found data
	SeenAt  time.Time // when it did; zero until it has looked
}

// MayHaveData reports whether the node has data of the stack that somebody has to look into, or has
// not looked yet whether it has.
func (r *Remains) MayHaveData() bool {
	return len(r.Volumes) > 0 || !r.AllGo && r.SeenAt.IsZero()
}

// ErrNotExpected means that a stack cannot go to a node, since that has no copies of it, or
// no longer has them.
var ErrNotExpected error = stack.NewError(stack.Conflict, "the node does not expect the stack any more; begin the move again")

// Leaving makes a change that gives a stack another node say that all that the node before
// may still have of it goes. Without it, volumes with data stay there. The change fails with
// ErrNotExpected unless the node expects the stack.
func Leaving() Option { return func(c *change) { c.allGo = true } }

// LeaseEnded makes a change that gives a stack another node fail with ErrNotOwner if the node
// before has renewed its lease since, which ended at a time: it is back, or was, and its stacks
// are not as they were.
func LeaseEnded(at time.Time) Option { return func(c *change) { c.ended = &at } }

// checkAway returns ErrNotOwner unless the lease of a node ended at a time. The node cannot
// renew it before the transaction ends.
func (s *Store) checkAway(ctx context.Context, tx *sql.Tx, node string, ended time.Time) error {
	_, ok, err := readOne(ctx, s, tx, "hold the lease of node "+node, onlyPlace[string],
		"UPDATE nodes SET lease_until = lease_until WHERE id = ? AND lease_until = ? RETURNING id", node, micros(ended))
	if err == nil && !ok {
		return ErrNotOwner
	}
	return err
}

// handOver records what follows from another owner, if a change has given the stack one:
// what the node before may still have, that its commands have ended, and the events that it
// may not have begun to deliver.
func (s *Store) handOver(ctx context.Context, tx *sql.Tx, before *stack.Stack, k *stack.Stack, with *change) error {
	if before.Node == k.Node {
		return nil
	}
	if with.ended != nil {
		if err := s.checkAway(ctx, tx, before.Node, *with.ended); err != nil {
			return err
		}
	}
	now := stack.Now()
	expected, err := s.takeRemains(ctx, tx, k)
	if err == nil && with.allGo && !expected {
		err = ErrNotExpected
	}
	if err != nil {
		return err
	}
	if err := s.addRemains(ctx, tx, Remains{StackID: k.ID, Node: before.Node, AllGo: with.allGo, Since: now}); err != nil {
		return err
	}
	if err := s.exec(ctx, tx, "end commands of "+k.ID, "UPDATE commands SET ended_at = ?, error = ? WHERE ended_at IS NULL AND stack_id = ?",
		micros(now), "the stack went to another node while the command ran, so its end is not known", k.ID); err != nil {
		return err
	}
	return errors.Join(s.forgetStuck(ctx, tx, k.ID), s.oweEvents(ctx, tx, before.Node, k))
}

// takeRemains removes the row of what the new owner of a stack has of it, and reports whether that
// node expected the stack. It is one statement, so that the node renounces before or after it.
func (s *Store) takeRemains(ctx context.Context, tx *sql.Tx, k *stack.Stack) (expected bool, err error) {
	expected, _, err = readOne(ctx, s, tx, "take over "+k.ID, onlyPlace[bool],
		"DELETE FROM remains WHERE stack_id = ? AND node = ? RETURNING expected", k.ID, k.Node)
	return expected, err
}

// oweEvents makes the new owner of a stack deliver what the one before may not have begun to.
func (s *Store) oweEvents(ctx context.Context, tx *sql.Tx, before string, k *stack.Stack) error {
	err := s.exec(ctx, tx, "hand over events of "+k.ID, `INSERT INTO webhook_owed (node, stack_id, after_id, up_to_id)
		SELECT ?, ?, coalesce(
			(SELECT after_id FROM webhook_owed WHERE node = ? AND stack_id = ?),
			(SELECT event_id FROM webhook_mark WHERE node = ?), 0), coalesce((SELECT max(id) FROM events), 0)
		ON CONFLICT (node, stack_id) DO UPDATE SET up_to_id = excluded.up_to_id`,
		k.Node, k.ID, before, k.ID, before)
	if err != nil {
		return err
	}
	return s.exec(ctx, tx, "hand over events of "+k.ID, "DELETE FROM webhook_owed WHERE node = ? AND stack_id = ?", before, k.ID)
}

func (s *Store) addRemains(ctx context.Context, q querier, r Remains) error {
	return s.exec(ctx, q, "record what a node has of "+r.StackID, `INSERT INTO remains (stack_id, node, all_go, expected, since) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (stack_id, node) DO UPDATE SET all_go = excluded.all_go, expected = excluded.expected, since = excluded.since`,
		r.StackID, r.Node, r.AllGo, r.Expected, micros(r.Since))
}

// Expect records that a node is about to get copies of a stack that another one owns, all of
// which go unless it becomes the owner.
func (s *Store) Expect(ctx context.Context, stackID, node string) error {
	return s.addRemains(ctx, s.write, Remains{StackID: stackID, Node: node, AllGo: true, Expected: true, Since: stack.Now()})
}

// Renounce records that a node will not become the owner of a stack after all, before its
// copies go.
func (s *Store) Renounce(ctx context.Context, stackID, node string) error {
	return s.exec(ctx, s.write, "renounce "+stackID, "UPDATE remains SET expected = ? WHERE stack_id = ? AND node = ?", false, stackID, node)
}

const selectRemains = `SELECT r.stack_id, r.node, r.all_go, r.expected, r.since, r.volumes, r.seen_at
	FROM remains r JOIN stacks k ON k.id = r.stack_id WHERE k.status <> 'deleted' AND `

func (r *Remains) places() []any {
	return []any{&r.StackID, &r.Node, &r.AllGo, &r.Expected, (*micros)(&r.Since), &plainJSON{&r.Volumes}, (*micros)(&r.SeenAt)}
}

// Remains returns what a node may have of a stack that another one owns; ok is false if
// nothing is recorded.
func (s *Store) Remains(ctx context.Context, stackID, node string) (r Remains, ok bool, err error) {
	return readOne(ctx, s, s.read, "read what a node has of "+stackID, (*Remains).places, selectRemains+"r.stack_id = ? AND r.node = ?", stackID, node)
}

// RemainsOn returns the stacks of others that a node may have something of, or all nodes for
// the node "".
func (s *Store) RemainsOn(ctx context.Context, node string) ([]Remains, error) {
	return readAll(ctx, s, s.read, "read what nodes have of stacks", (*Remains).places,
		selectRemains+"(r.node = ? OR ? = '') ORDER BY r.node, r.stack_id", node, node)
}

// DataLeft returns where data of a stack, or for "" of any, was found on nodes that do not own
// it.
func (s *Store) DataLeft(ctx context.Context, stackID string) ([]Remains, error) {
	return readAll(ctx, s, s.read, "read where data is left", (*Remains).places,
		selectRemains+"(r.stack_id = ? OR ? = '') AND r.seen_at IS NOT NULL AND r.volumes NOT IN ('null', '[]') ORDER BY r.node, r.stack_id", stackID, stackID)
}

// MarkRemains records in which volumes of a stack of another node a node has found data. It
// wakes the watchers of the stack.
func (s *Store) MarkRemains(ctx context.Context, stackID, node string, volumes []string) error {
	now := micros(stack.Now())
	err := s.exec(ctx, s.write, "record what a node has of "+stackID, `INSERT INTO remains (stack_id, node, all_go, expected, since, volumes, seen_at)
		VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (stack_id, node) DO UPDATE SET volumes = excluded.volumes, seen_at = excluded.seen_at`,
		stackID, node, false, false, now, &plainJSON{&volumes}, now)
	if err == nil {
		s.watch.wake(stackID)
	}
	return err
}

// ForgetRemains records that a node has nothing any more of a stack of another.
func (s *Store) ForgetRemains(ctx context.Context, stackID, node string) error {
	return s.exec(ctx, s.write, "forget what a node has of "+stackID, "DELETE FROM remains WHERE stack_id = ? AND node = ?", stackID, node)
}
