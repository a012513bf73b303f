package supervisor

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/admission"
	"github.com/berth-host/berth/internal/docker"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// answeringEngine answers requests to the engine as a test likes.
func answeringEngine(t *testing.T, answer http.HandlerFunc) engine.Driver {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "e.sock")
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path.Base(r.URL.Path) == "info" {
			_, _ = w.Write([]byte("{}"))
			return
		}
		answer(w, r)
	}))
	server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	t.Setenv("DOCKER_HOST", "unix://"+socket)
	opened, err := docker.Open(t.Context(), docker.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { opened.Close() })
	return docker.NewDriver(opened, docker.Info{}, docker.DriverOptions{Instance: "test"})
}

func TestEnsureNetwork_HasTheFirewallKnowANetworkThatIsThere(t *testing.T) {
	s, st := withStack(t)
	ana, err := s.cfg.Store.(*store.Store).CreateAccount(t.Context(), "ana@example.com", "", store.Key{Hash: []byte("key")})
	require.NoError(t, err)
	g := s.runner(st.ID).generation(st, 1, st.Services)
	s.cfg.Engine = answeringEngine(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/networks") {
			fmt.Fprintf(w, `[{"Id": "1", "Name": %q}]`, g.network)
		}
	})
	looks := 0
	s.cfg.Admission = admission.New(admission.Config{Stacks: s.cfg.Store.All, Firewall: walls(func([]string) error {
		looks++
		return nil
	}), Log: s.cfg.Log})
	require.NoError(t, g.ensureNetwork(t.Context()))
	require.Zero(t, looks, "of a stack that nobody has claimed")
	_, err = s.cfg.Store.Update(t.Context(), st.ID, func(st *stack.Stack) ([]stack.Event, error) {
		st.Owner = ana.ID
		return nil, nil
	})
	require.NoError(t, err)
	require.NoError(t, g.ensureNetwork(t.Context()))
	require.Equal(t, 1, looks)
}

func TestLeftovers_AreTheNetworksThatTheServedGenerationIsNotOn(t *testing.T) {
	const former, served, next = "berth-3f2a9c1b7d4e", "berth-3f2a9c1b7d4e-g2", "berth-3f2a9c1b7d4e-g3"
	s := New(Config{Store: newMemstore(), Log: slog.New(slog.DiscardHandler)})
	for _, c := range []struct {
		status stack.Status
		there  []string
		left   []string
	}{
		{stack.Live, []string{served}, nil},
		{stack.Live, []string{served, next}, []string{next}},
		{stack.Live, []string{former}, nil},
		{stack.Live, []string{former, next}, []string{next}},
		{stack.Live, []string{former, served}, []string{former}},
		{stack.Failed, []string{former, served}, []string{former, served}},
		{stack.Expired, []string{served}, []string{served}},
	} {
		var there engine.Objects
		for _, name := range c.there {
			there.Networks = append(there.Networks, engine.Network{Name: name})
		}
		var left []string
		for _, n := range s.leftovers(&stack.Stack{ID: "stk_3f2a9c1b7d4e", Generation: 2, Status: c.status}, there).objects.Networks {
			left = append(left, n.Name)
		}
		assert.Equal(t, c.left, left, "of a %s stack with %v", c.status, c.there)
	}
}
