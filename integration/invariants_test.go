package integration

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // the driver named sqlite

	"github.com/berth-host/berth/integration/invariants"
)

// query reads from the database, whether or not a server runs.
func (h *Host) query(ctx context.Context, query string, each func(*sql.Rows) error) error {
	name := "file:" + filepath.Join(h.dir, "berth.db") + "?_busy_timeout=10000&_query_only=1"
	return invariants.In("sqlite", name)(ctx, query, each)
}

// rows reads every stack, deleted ones included.
func (h *Host) rows(ctx context.Context) ([]invariants.Row, error) {
	return invariants.Rows(ctx, h.query)
}

// history reads every event, in order.
func (h *Host) history(t *testing.T) []invariants.Occurrence {
	t.Helper()
	all, err := invariants.History(context.Background(), h.query)
	require.NoError(t, err)
	return all
}

// atOnce reads every stack and every event as they were at one moment: between
// two reads a stack's time may run out.
func (h *Host) atOnce(t *testing.T) (stacks []invariants.Row, events []invariants.Occurrence) {
	t.Helper()
	eventually(t, "the stacks stay as they are while their events are read", func() (err error) {
		if stacks, err = h.rows(t.Context()); err != nil {
			return err
		}
		events = h.history(t)
		after, err := h.rows(t.Context())
		if err == nil && !reflect.DeepEqual(stacks, after) {
			err = errors.New("one has changed")
		}
		return err
	})
	return stacks, events
}

// inOrder asserts that the installation is as its rows say: no build or restore
// is under way, what the engine and the disk have is exactly what each stack
// implies, and the history since before is one that docs/api.md allows.
func (h *Host) inOrder(t *testing.T, before []invariants.Occurrence) {
	t.Helper()
	eventually(t, "everything is as the rows say", func() error { return h.asTheRowsSay(t.Context()) })
	rows, now := h.atOnce(t)
	require.GreaterOrEqual(t, len(now), len(before), "events are lost")
	require.Equal(t, before, now[:len(before)], "recorded events have changed")
	require.NoError(t, invariants.Follow(now, rows))
}

// asTheRowsSay compares the engine and the disk with the rows.
func (h *Host) asTheRowsSay(ctx context.Context) error {
	rows, err := h.rows(ctx)
	if err != nil {
		return err
	}
	there, err := h.inventory(ctx)
	if err != nil {
		return err
	}
	return invariants.Compare(rows, there)
}

// inventory lists what the engine and the disk have, by stack id: names without
// the stack's own part.
func (h *Host) inventory(ctx context.Context) (map[string][]string, error) {
	docker, err := h.docker()
	if err != nil {
		return nil, err
	}
	defer docker.Close()
	all, err := invariants.Inventory(ctx, docker, byLabel(h.instance))
	return all, errors.Join(err, h.inventoryFiles(all))
}

// inventoryFiles adds the folders of the stacks, and unfinished uploads under
// the id "".
func (h *Host) inventoryFiles(all map[string][]string) error {
	var errs []error
	for _, pattern := range []string{"*/logs", "*/sources/*", "*/sites/*/*"} {
		found, err := filepath.Glob(filepath.Join(h.dir, "stacks", pattern))
		errs = append(errs, err)
		for _, path := range found {
			hex, rest, _ := strings.Cut(strings.TrimPrefix(path, filepath.Join(h.dir, "stacks")+"/"), "/")
			all["stk_"+hex] = append(all["stk_"+hex], "file "+rest)
		}
	}
	uploads, err := filepath.Glob(filepath.Join(h.dir, "uploads", "*"))
	all[""] = append(all[""], uploads...)
	return errors.Join(append(errs, err)...)
}
