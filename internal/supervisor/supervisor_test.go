package supervisor

import (
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// open is a sealer that seals nothing.
type open struct{}

func (open) Seal(plain []byte, _, _ string) []byte           { return plain }
func (open) Open(sealed []byte, _, _ string) ([]byte, error) { return sealed, nil }

// withStack is a supervisor whose database has one stack, and that stack.
func withStack(t *testing.T) (*Supervisor, *stack.Stack) {
	t.Helper()
	dir := t.TempDir()
	db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(dir, "berth.db"), Sealer: open{}, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	st := stack.New("shop", []stack.Spec{{Name: "web"}}, stack.Now())
	require.NoError(t, db.Create(t.Context(), st, 0))
	s := New(Config{Store: db, Dir: dir, Routes: &proxy.Routes{}, URLs: stack.URLs{Base: &url.URL{Scheme: "http", Host: "localhost"}}, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(s.Close)
	return s, st
}

// Between the change of a row and the look for its runner a stack can be deleted.
func TestSupervisor_MakesNoRunnerForAStackThatWasDeletedMeanwhile(t *testing.T) {
	s, st := withStack(t)
	_, err := s.Store.Update(t.Context(), st.ID, func(st *stack.Stack) ([]stack.Event, error) { return st.DeployFailed("it broke") })
	require.NoError(t, err)
	dir := filepath.Join(s.Dir, "upload")
	require.NoError(t, os.Mkdir(dir, 0o700))
	_, err = s.Deploy(t.Context(), st.ID, &stack.Manifest{Services: []stack.Spec{{Name: "web"}}}, "", dir, nil)
	require.Equal(t, stack.NewNoStack(st.ID), err)
	ana, err := s.Store.CreateAccount(t.Context(), "ana@example.com", "", store.Key{Hash: []byte("key")})
	require.NoError(t, err)
	_, err = s.Claim(t.Context(), st.ID, ana.ID, ana.Email)
	require.Equal(t, stack.NewNoStack(st.ID), err)
	require.Nil(t, s.lookup(st.ID))
	require.False(t, s.Routes.Has("web-"+st.Hex()))
}

func TestRunner_RoutesNothingOnceItHasEnded(t *testing.T) {
	s, st := withStack(t)
	r := s.runner(st.ID)
	r.route(st, nil)
	require.True(t, s.Routes.Has("web-"+st.Hex()))
	r.close()
	r.unroute(st)
	r.route(st, nil)
	require.False(t, s.Routes.Has("web-"+st.Hex()))
}
