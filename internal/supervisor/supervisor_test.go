package supervisor

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/admission"
	"github.com/berth-host/berth/internal/datadir"
	"github.com/berth-host/berth/internal/docker"
	"github.com/berth-host/berth/internal/engine"
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
	require.NoError(t, db.Create(t.Context(), st, nil))
	gate := admission.New(admission.Config{Stacks: db.All, Firewall: walls(func([]string) error { return nil }), Log: slog.New(slog.DiscardHandler)})
	s := New(Config{Store: db, Admission: gate, Dir: datadir.Dir(dir), Routes: &proxy.Routes{}, URLs: stack.URLs{Base: &url.URL{Scheme: "http", Host: "localhost"}}, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(s.Close)
	return s, st
}

// walls is a firewall that calls a function instead of changing rules.
type walls func(mail []string) error

func (f walls) Apply(_ context.Context, mail []string) error { return f(mail) }

// onLog is a log that calls a function with each message.
type onLog func(message string)

func (onLog) Enabled(context.Context, slog.Level) bool             { return true }
func (f onLog) Handle(_ context.Context, record slog.Record) error { f(record.Message); return nil }
func (f onLog) WithAttrs([]slog.Attr) slog.Handler                 { return f }
func (f onLog) WithGroup(string) slog.Handler                      { return f }

// breakDatabase makes everything fail that reads or changes a stack's row, until
// mend is called.
func breakDatabase(t *testing.T, s *Supervisor) (mend func()) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(string(s.cfg.Dir), "berth.db"))
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	_, err = db.ExecContext(t.Context(), `ALTER TABLE stacks RENAME TO lost`)
	require.NoError(t, err)
	return func() {
		_, err := db.ExecContext(t.Context(), `ALTER TABLE lost RENAME TO stacks`)
		require.NoError(t, err)
	}
}

// fakeEngine is an engine that knows one container, c, and whether it runs. It
// starts none and lists nothing.
func fakeEngine(t *testing.T, running *atomic.Bool) engine.Driver {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/containers/c/json") {
			fmt.Fprintf(w, `{"Id": "c", "State": {"Running": %t, "ExitCode": 3}, "Config": {}, "HostConfig": {}, "NetworkSettings": {}}`, running.Load())
			return
		}
		if strings.HasSuffix(r.URL.Path, "/start") {
			w.WriteHeader(http.StatusInternalServerError)
		}
		if list := path.Base(r.URL.Path); r.Method == http.MethodGet && (list == "json" || list == "networks") {
			fmt.Fprint(w, "[]")
			return
		}
		fmt.Fprint(w, "{}")
	}))
	t.Cleanup(server.Close)
	t.Setenv("DOCKER_HOST", "tcp://"+server.Listener.Addr().String())
	opened, err := docker.Open(t.Context(), docker.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, opened.Close()) })
	return docker.NewDriver(opened, docker.Info{}, docker.DriverOptions{Instance: "test"})
}

// newTestProcess is the process in the container c of a generation's first
// service, whose log has been read.
func newTestProcess(g *generation) *process {
	p := g.newProcess(&g.services[0], "c", "web")
	ended := make(chan struct{})
	close(ended)
	p.ip, p.follower = "127.0.0.1", &follower{cancel: func() {}, ended: ended, last: newLastLines()}
	g.setProcess(p)
	g.setTarget(p.service.Spec.Name, p.newTarget())
	return p
}

// Between the change of a row and the look for its runner a stack can be deleted.
func TestSupervisor_MakesNoRunnerForAStackThatWasDeletedMeanwhile(t *testing.T) {
	s, st := withStack(t)
	_, err := s.cfg.Store.Update(t.Context(), st.ID, func(st *stack.Stack) ([]stack.Event, error) { return st.DeployFailed("it broke") })
	require.NoError(t, err)
	dir := filepath.Join(string(s.cfg.Dir), "upload")
	require.NoError(t, os.Mkdir(dir, 0o700))
	_, err = s.Deploy(t.Context(), st.ID, &stack.Manifest{Services: []stack.Spec{{Name: "web"}}}, "", dir, nil)
	require.Equal(t, stack.NewNoStack(st.ID), err)
	ana, err := s.cfg.Store.(*store.Store).CreateAccount(t.Context(), "ana@example.com", "", store.Key{Hash: []byte("key")})
	require.NoError(t, err)
	_, err = s.Claim(t.Context(), st.ID, ana.ID, ana.Email)
	require.Equal(t, stack.NewNoStack(st.ID), err)
	require.Nil(t, s.lookup(st.ID))
	require.False(t, s.cfg.Routes.Has(s.cfg.URLs.Hostname(st, "web")))
}

func TestRunner_RoutesNothingOnceItHasEnded(t *testing.T) {
	s, st := withStack(t)
	s.cfg.Engine = fakeEngine(t, new(atomic.Bool))
	r := s.runner(st.ID)
	r.route(st, nil)
	require.True(t, s.cfg.Routes.Has(s.cfg.URLs.Hostname(st, "web")))
	r.discardStack(st)
	r.route(st, nil)
	require.False(t, s.cfg.Routes.Has(s.cfg.URLs.Hostname(st, "web")))
}
