package supervisor

import (
	"testing"

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

	require.False(t, p.restartInPlace(p.ctx, st)) // no crash is allowed: the first is one too many

	st, err = s.Store.Get(t.Context(), st.ID)
	require.NoError(t, err)
	require.Equal(t, 1, st.Services[0].Unhealthy)
	require.True(t, st.Services[0].InPlace)
}
