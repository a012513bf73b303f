package supervisor

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
)

func TestRestartInPlace_ThatFailsCountsAsARestartThatDoesNotGetHealthy(t *testing.T) {
	s, st := withStack(t)
	st, err := s.cfg.Store.Update(t.Context(), st.ID, func(st *stack.Stack) ([]stack.Event, error) {
		return st.Deployed(st.Services, s.cfg.URLs, stack.Now())
	})
	require.NoError(t, err)
	_, p := served(t, s, st)

	require.False(t, p.restartInPlace(p.gen.runner.ctx, st))  // no crash is allowed: the first is one too many
	require.NoError(t, p.gen.runner.awaitFallen(t.Context())) // while the engine answers

	st, err = s.cfg.Store.Get(t.Context(), st.ID)
	require.NoError(t, err)
	require.Equal(t, 1, st.Services[0].Unhealthy)
	require.True(t, st.Services[0].InPlace)
}

func TestLeave_SaysWhatBecameOfTheReplacedProcess(t *testing.T) {
	for _, c := range []struct{ path, refusal, says string }{
		{"/disconnect", "not now", "replaced process keeps its name"},
		{"/connect", "Address already in use", "another container took the address of a replaced process"},
	} {
		s, st := withStack(t)
		_, p := served(t, s, st)
		s.cfg.Engine = answeringEngine(t, func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, c.path) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusForbidden)
				fmt.Fprintf(w, `{"message": %q}`, c.refusal)
				return
			}
			fmt.Fprintf(w, `{"HostConfig": {"NetworkMode": %[1]q}, "NetworkSettings": {"Networks": {%[1]q: {}}}}`, p.gen.network)
		})
		told := ""
		p.log = slog.New(onLog(func(message string) { told = message }))
		p.gen.runner.cancel() // so that nothing is waited for
		p.endReplaced(nil)
		assert.Contains(t, told, c.says)
	}
}

// A realias disconnects, then connects, and a fault may come between.
func TestStart_PutsAProcessBackThatIsOffTheNetwork(t *testing.T) {
	s, st := withStack(t)
	_, p := served(t, s, st)
	var connected atomic.Bool
	s.cfg.Engine = answeringEngine(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/connect"):
			connected.Store(true)
		case strings.HasSuffix(r.URL.Path, "/disconnect"):
			http.Error(w, "container c is not connected to the network", http.StatusForbidden)
		case strings.HasSuffix(r.URL.Path, "/containers/c/json"):
			networks := ""
			if connected.Load() {
				networks = fmt.Sprintf(`%q: {"IPAddress": "10.0.0.9"}`, p.gen.network)
			}
			fmt.Fprintf(w, `{"State": {"Running": true}, "Config": {}, "HostConfig": {"NetworkMode": %q}, "NetworkSettings": {"Networks": {%s}}}`, p.gen.network, networks)
		}
	})
	require.NoError(t, p.startAgain(t.Context(), time.Time{}))
	require.Equal(t, "10.0.0.9:8080", p.addr())
}
