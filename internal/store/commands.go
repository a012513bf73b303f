package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// commandsKept is how many commands of each stack are kept.
const commandsKept = 100

// AddCommand stores a command that is about to run, and removes all but the last hundred
// of its stack. It skips that of a deleted stack. ByOwner is an option. It wakes the watchers of
// the stack.
func (s *Store) AddCommand(ctx context.Context, c stack.Command, options ...Option) error {
	with := changeWith(options)
	err := s.transact(ctx, func(tx *sql.Tx) error {
		if with.fence != nil {
			k, err := s.load(ctx, tx, c.StackID)
			if err == nil {
				err = with.checkNode(k)
			}
			if err != nil && stack.KindOf(err) != stack.NotFound {
				return err
			}
		}
		err := s.exec(ctx, tx, "insert a command of "+c.StackID, `INSERT INTO commands
			(id, stack_id, service, run_by, command_sealed, started_at, timed_out, error)
			SELECT ?, id, ?, ?, ?, ?, false, '' FROM stacks WHERE id = ? AND status <> 'deleted'`,
			c.ID, c.Service, c.By, s.commandLine(&c), micros(c.StartedAt), c.StackID)
		if err != nil {
			return err
		}
		return s.exec(ctx, tx, "remove old commands of "+c.StackID, `DELETE FROM commands WHERE stack_id = ? AND seq <=
			(SELECT seq FROM commands WHERE stack_id = ? ORDER BY seq DESC LIMIT 1 OFFSET ?)`, c.StackID, c.StackID, commandsKept)
	})
	if err == nil {
		s.watch.wake(c.StackID)
	}
	return err
}

// EndCommand records how a command ended, unless that is recorded already, and wakes the watchers
// of its stack.
func (s *Store) EndCommand(ctx context.Context, c stack.Command) error {
	err := s.exec(ctx, s.write, "end a command of "+c.StackID,
		"UPDATE commands SET ended_at = ?, exit_code = ?, timed_out = ?, error = ? WHERE id = ? AND ended_at IS NULL",
		micros(c.EndedAt), c.ExitCode, c.TimedOut, c.Error, c.ID)
	if err == nil {
		s.watch.wake(c.StackID)
	}
	return err
}

// EndCommands ends all commands of a node's stacks that have not ended, those of a server that
// has died, at a time and with an error. Once it returns, no change of that server is under way,
// even one whose commit nobody waited for.
func (s *Store) EndCommands(ctx context.Context, node string, at time.Time, why string) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		return s.exec(ctx, tx, "end commands", `UPDATE commands SET ended_at = ?, error = ?
			WHERE ended_at IS NULL AND stack_id IN (SELECT id FROM stacks WHERE node = ?)`, micros(at), why, node)
	})
}

// Commands returns the last limit commands of a stack, newest first.
func (s *Store) Commands(ctx context.Context, stackID string, limit int) ([]stack.Command, error) {
	return readAll(ctx, s, s.read, "read commands of "+stackID, func(c *stack.Command) []any {
		return []any{
			&c.ID, &c.StackID, &c.Service, &c.By, s.commandLine(c), (*micros)(&c.StartedAt),
			(*micros)(&c.EndedAt), &c.ExitCode, &c.TimedOut, &c.Error,
		}
	}, `SELECT id, stack_id, service, run_by, command_sealed, started_at, ended_at, exit_code, timed_out, error
		FROM commands WHERE stack_id = ? ORDER BY seq DESC LIMIT ?`, stackID, limit)
}

// commandLine is the place of a command's line.
func (s *Store) commandLine(c *stack.Command) *sealedJSON {
	return &sealedJSON{sealer: s.sealer, row: &c.ID, column: "command", value: &c.Line}
}

// forgetCommands removes the commands of a deleted stack.
func (s *Store) forgetCommands(ctx context.Context, tx *sql.Tx, stackID string) error {
	return s.exec(ctx, tx, "remove commands of "+stackID, "DELETE FROM commands WHERE stack_id = ?", stackID)
}
