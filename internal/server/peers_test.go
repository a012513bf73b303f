package server

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/edge"
	"github.com/berth-host/berth/internal/peer"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// two are the nodes n1, which is this one, and n2, which nobody reaches.
type two struct{}

func (two) Self() string                        { return "n1" }
func (two) Member(node string) bool             { return node == "n1" || node == "n2" }
func (two) Address(string) (string, peer.State) { return "127.0.0.1:1", peer.Away }
func (two) Name(node string) string             { return node }
func (two) Manager() bool                       { return false }

func TestForwarder_AsksTheOwner(t *testing.T) {
	db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "berth.db"), Sealer: auth.NewSealer(auth.Key{}), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer db.Close()
	ids := map[string]string{}
	for _, node := range []string{"n1", "n2"} {
		k := stack.New("shop", []stack.Spec{{Name: "web"}}, stack.Now())
		k.Node = node
		require.NoError(t, db.Create(t.Context(), k, nil))
		ids[node] = k.ID
	}
	s := &Server{store: db, routes: &proxy.Routes{}, log: slog.New(slog.DiscardHandler), cfg: Config{AppsDomain: "apps.test", BaseURL: &url.URL{Scheme: "http", Host: "berth.test"}}}
	require.NoError(t, s.openOthers(t.Context(), &others{
		nodes: two{},
		place: func(context.Context, []string) (string, error) { return "", io.EOF },
		asked: func(string, time.Time) {},
	}, "127.0.0.1:0"))
	defer s.others.close()
	here := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "here") })
	for path, want := range map[string]int{
		"/v0/stacks/" + ids["n1"] + "/logs": 200, "/v0/stacks/" + ids["n2"] + "/logs": 502, "/v0/stacks/" + ids["n2"]: 200,
		"/v0/stacks/stk_ffffffffffff/logs": 200,
	} {
		w := httptest.NewRecorder()
		s.forwarder(here).ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		assert.Equal(t, want, w.Code, path)
	}
	require.NoError(t, s.staying())
	s.leaving.Store(true)
	assert.Equal(t, stack.Unavailable, stack.KindOf(s.staying()))
}

// A balancer that looks every few seconds must see that a node stops, while the node serves.
func TestLeave_SaysSoForFiveSecondsBeforeTheListenersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{edge: edge.NewServer(edge.Config{}), others: &others{edge: edge.NewServer(edge.Config{})}}
		require.NoError(t, s.staying())
		began := time.Now()
		left := make(chan struct{})
		go func() {
			s.leave()
			close(left)
		}()
		synctest.Wait()
		require.Equal(t, stack.Unavailable, stack.KindOf(s.staying()), "at once")
		<-left
		require.Equal(t, 5*time.Second, time.Since(began))
		(&Server{}).leave()
		require.Equal(t, 5*time.Second, time.Since(began), "one machine ends at once")
	})
}
