package integration

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// openStore opens the database of a server that is stopped, for what cannot be
// brought about through the API.
func (h *Host) openStore(t *testing.T) *store.Store {
	t.Helper()
	require.False(t, h.alive(), "the database belongs to the server while it runs")
	key, err := auth.LoadKey(filepath.Join(h.dir, "key"))
	require.NoError(t, err)
	db, err := store.Open(t.Context(), store.Options{
		Path: filepath.Join(h.dir, "berth.db"), Sealer: auth.NewSealer(key), Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	return db
}

// addEvents gives a stack more events than it would ever have in a test.
func (h *Host) addEvents(t *testing.T, st *Stack, n int) {
	t.Helper()
	db := h.openStore(t)
	events := make([]stack.Event, n)
	for i := range events {
		events[i] = stack.Event{Type: stack.EventRestored}
	}
	_, err := db.Update(t.Context(), st.ID, func(*stack.Stack) ([]stack.Event, error) { return events, nil })
	require.NoError(t, err)
	require.NoError(t, db.Close())
}

// account makes an account in the database and returns its API key.
func (h *Host) account(t *testing.T, email string) (key string) {
	t.Helper()
	key = auth.NewAPIKey()
	db := h.openStore(t)
	_, err := db.CreateAccount(t.Context(), email, "", store.Key{Hash: auth.Hash(key)})
	require.NoError(t, err)
	require.NoError(t, db.Close())
	return key
}

// takeDatabase takes the database of a server that is stopped away, and returns
// what puts it back in place of the one that is there by then.
func (h *Host) takeDatabase(t *testing.T) (putBack func()) {
	t.Helper()
	require.False(t, h.alive(), "the database belongs to the server while it runs")
	aside := t.TempDir()
	move := func(from, to string) {
		files, err := filepath.Glob(filepath.Join(from, "berth.db*"))
		require.NoError(t, err)
		for _, file := range files {
			require.NoError(t, os.Rename(file, filepath.Join(to, filepath.Base(file))))
		}
	}
	move(h.dir, aside)
	return func() {
		move(h.dir, t.TempDir())
		move(aside, h.dir)
	}
}

// copyDatabase copies the database of a server that is stopped, and returns what
// puts the copy in its place.
func (h *Host) copyDatabase(t *testing.T) (putBack func()) {
	t.Helper()
	path := filepath.Join(h.dir, "berth.db")
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return func() {
		h.takeDatabase(t)
		require.NoError(t, os.WriteFile(path, content, 0o600))
	}
}
