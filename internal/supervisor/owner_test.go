package supervisor

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
)

func TestRestartInPlace_ThatFailsCountsAsARestartThatDoesNotGetHealthy(t *testing.T) {
	s, st := withStack(t)
	st, err := s.Store.Update(t.Context(), st.ID, func(st *stack.Stack) ([]stack.Event, error) {
		return st.Deployed(st.Services, s.URLs, stack.Now())
	})
	require.NoError(t, err)
	_, p := served(t, s, st)

	require.False(t, p.restartInPlace(p.ctx, st))  // no crash is allowed: the first is one too many
	require.NoError(t, p.awaitFallen(t.Context())) // while the engine answers

	st, err = s.Store.Get(t.Context(), st.ID)
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
		s.Engine = answeringEngine(t, func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, c.path) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusForbidden)
				fmt.Fprintf(w, `{"message": %q}`, c.refusal)
				return
			}
			fmt.Fprint(w, `{"NetworkSettings": {}}`)
		})
		told := ""
		s.Log = slog.New(onLog(func(message string) { told = message }))
		p.cancel() // so that nothing is waited for
		p.leave(nil)
		assert.Contains(t, told, c.says)
	}
}
