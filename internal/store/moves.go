package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// Move is what an operator has asked for: that a stack goes to another node.
type Move struct {
	StackID string
	Target  string
	AskedAt time.Time
	Error   string // why it did not go; "" while its owner is to act
}

const selectMoves = "SELECT m.stack_id, m.target, m.asked_at, m.error FROM moves m JOIN stacks k ON k.id = m.stack_id WHERE k.status <> 'deleted' AND "

func (m *Move) places() []any { return []any{&m.StackID, &m.Target, (*micros)(&m.AskedAt), &m.Error} }

// AskMove records that a stack is to go to a node, whatever was asked for before.
func (s *Store) AskMove(ctx context.Context, stackID, target string) (Move, error) {
	m := Move{StackID: stackID, Target: target, AskedAt: stack.Now()}
	return m, s.exec(ctx, s.write, "ask for the move of "+stackID, `INSERT INTO moves (stack_id, target, asked_at) VALUES (?, ?, ?)
		ON CONFLICT (stack_id) DO UPDATE SET target = excluded.target, asked_at = excluded.asked_at, error = ''`,
		m.StackID, m.Target, micros(m.AskedAt))
}

// MoveOf returns what was last asked for a stack; ok is false if nothing was, or it is done.
func (s *Store) MoveOf(ctx context.Context, stackID string) (m Move, ok bool, err error) {
	return readOne(ctx, s, s.read, "read the move of "+stackID, (*Move).places, selectMoves+"m.stack_id = ?", stackID)
}

// MovesFrom returns the moves on which a node is to act: those of its stacks that have not
// failed.
func (s *Store) MovesFrom(ctx context.Context, node string) ([]Move, error) {
	return readAll(ctx, s, s.read, "read the moves of a node's stacks", (*Move).places, selectMoves+"k.node = ? AND m.error = '' ORDER BY m.asked_at, m.stack_id", node)
}

// FailMove records why a stack did not go, unless something else has been asked for since.
func (s *Store) FailMove(ctx context.Context, m Move, why string) error {
	return s.exec(ctx, s.write, "record the move of "+m.StackID, "UPDATE moves SET error = ? WHERE stack_id = ? AND asked_at = ?", why, m.StackID, micros(m.AskedAt))
}

// NoteStuck records why a stack of a node that is being drained did not go, unless its owner is
// to act on a move that was asked for.
func (s *Store) NoteStuck(ctx context.Context, stackID, target, why string) error {
	return s.exec(ctx, s.write, "record why "+stackID+" did not go", `INSERT INTO moves (stack_id, target, asked_at, error) VALUES (?, ?, ?, ?)
		ON CONFLICT (stack_id) DO UPDATE SET target = excluded.target, asked_at = excluded.asked_at, error = excluded.error WHERE moves.error <> ''`,
		stackID, target, micros(stack.Now()), why)
}

// Stuck returns the moves that failed of the stacks that a node still has.
func (s *Store) Stuck(ctx context.Context, node string) ([]Move, error) {
	return readAll(ctx, s, s.read, "read the moves that failed", (*Move).places, selectMoves+"k.node = ? AND m.error <> '' ORDER BY m.stack_id", node)
}

// EndMove forgets a move that is done or was given up, unless something else has been asked
// for since.
func (s *Store) EndMove(ctx context.Context, m Move) error {
	return s.exec(ctx, s.write, "end the move of "+m.StackID, "DELETE FROM moves WHERE stack_id = ? AND asked_at = ?", m.StackID, micros(m.AskedAt))
}

// forgetStuck removes why a stack did not go, since it has gone.
func (s *Store) forgetStuck(ctx context.Context, tx *sql.Tx, stackID string) error {
	return s.exec(ctx, tx, "forget why "+stackID+" did not go", "DELETE FROM moves WHERE stack_id = ? AND error <> ''", stackID)
}

// forgetMove removes what was asked for a deleted stack.
func (s *Store) forgetMove(ctx context.Context, tx *sql.Tx, stackID string) error {
	return s.exec(ctx, tx, "forget the move of "+stackID, "DELETE FROM moves WHERE stack_id = ?", stackID)
}

// Standing is what an operator asks of a stack. It has nothing that is sealed.
type Standing struct {
	ID, Name string
	Status   stack.Status
	Node     string
	Epoch    int64
}

// Standing returns that of a stack; NotFound if it is unknown or deleted. It needs no Sealer.
func (s *Store) Standing(ctx context.Context, id string) (Standing, error) {
	found, ok, err := readOne(ctx, s, s.read, "read stack "+id, func(st *Standing) []any {
		return []any{&st.ID, &st.Name, (*string)(&st.Status), &st.Node, &st.Epoch}
	}, "SELECT id, name, status, node, epoch FROM stacks WHERE id = ? AND status <> 'deleted'", id)
	if err == nil && !ok {
		err = stack.NewNoStack(id)
	}
	return found, err
}
