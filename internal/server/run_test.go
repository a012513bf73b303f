package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/berth-host/berth/internal/api"
	"github.com/berth-host/berth/internal/appserver"
	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/cluster"
	"github.com/berth-host/berth/internal/edge"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
	"github.com/berth-host/berth/internal/supervisor"
	"github.com/berth-host/berth/internal/webhook"
)

// noRetries is a queue in which nothing waits.
type noRetries struct{ webhook.Queue }

func (noRetries) Waiting() map[string]time.Time { return map[string]time.Time{} }

// drainedServer returns a server of a node that is being drained and has a stack, so that it
// would not end before that has moved. It answers requests with here, and closes stopped once
// nothing of it works on stacks any more.
func drainedServer(t *testing.T, here http.Handler) (s *Server, stopped chan struct{}) {
	t.Helper()
	db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "berth.db"), Sealer: auth.NewSealer(auth.Key{}), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	self := store.Node{ID: "n1", Name: "w1", Holder: "a"}
	k := stack.New("shop", []stack.Spec{{Name: "web"}}, stack.Now())
	k.Node = "n1"
	require.NoError(t, db.Create(t.Context(), k, nil))
	_, err = db.RegisterNode(t.Context(), self, time.Hour)
	require.NoError(t, err)
	require.NoError(t, db.DrainNode(t.Context(), "n1", true))
	stopped = make(chan struct{})
	log := slog.New(slog.DiscardHandler)
	s = &Server{
		cfg: Config{Drain: time.Hour}, log: log, manager: newManager(), routes: &proxy.Routes{}, store: db, gate: newGate(here),
		supervisor: supervisor.New(supervisor.Config{Store: db, Log: log}),
		api:        api.New(api.Config{Store: db, Log: log}),
		pages: appserver.New(appserver.Options{
			Routes: func(*fiber.App) {}, Around: func(next fasthttp.RequestHandler) fasthttp.RequestHandler { return next }, Log: log,
		}),
		webhooks:   webhook.New(webhook.Config{Store: db, Queue: noRetries{}, Log: log}),
		endCluster: func() { close(stopped) },
	}
	s.ousted, s.oust = context.WithCancelCause(context.Background())
	s.cluster, err = cluster.Join(t.Context(), cluster.Config{Store: db, Self: self, Lease: time.Hour, Log: log})
	require.NoError(t, err)
	s.listener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.edge = edge.NewServer(edge.Config{BaseHost: "127.0.0.1", Routes: s.routes, API: s.gate, Log: log})
	return s, stopped
}

// Two servers must not work on the stacks of one node, however long requests to the first take
// and whether or not it has been asked to stop before.
func TestEnd_StopsItsStacksAtOnceWhenAnotherServerHasTakenTheNode(t *testing.T) {
	for name, asked := range map[string]bool{"while it serves": false, "while its stacks move away": true} {
		t.Run(name, func(t *testing.T) {
			arrived, release := make(chan struct{}), make(chan struct{})
			s, stopped := drainedServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				close(arrived)
				<-release
				io.WriteString(w, "done")
			}))
			go s.edge.Serve(s.listener)
			answered := make(chan string, 1)
			go func() {
				res, err := http.Get("http://" + s.listener.Addr().String() + "/v0/me")
				if err != nil {
					answered <- err.Error()
					return
				}
				defer res.Body.Close()
				body, _ := io.ReadAll(res.Body)
				answered <- string(body)
			}()
			<-arrived

			taken := errors.New("another has taken it")
			if !asked {
				s.oust(taken)
			}
			ended := make(chan error, 1)
			go func() { ended <- s.end(nil) }()
			if asked {
				select {
				case <-ended:
					t.Fatal("it ends with a stack")
				case <-time.After(100 * time.Millisecond):
				}
				s.oust(taken)
			}
			<-stopped
			require.Empty(t, ended, "it does not wait for the request")
			require.Eventually(t, func() bool {
				_, err := s.store.Nodes(context.Background())
				return err != nil
			}, time.Minute, time.Millisecond, "the database stays open")
			close(release)
			require.Equal(t, taken, <-ended)
			require.Equal(t, "done", <-answered)
		})
	}
}
