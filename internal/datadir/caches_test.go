package datadir

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMarkFilled_LastsUntilItIsTakenBack(t *testing.T) {
	d := Dir(t.TempDir())
	const id = "stk_3f2a9c1b7d4e"
	require.Empty(t, d.Filled(id))
	require.Error(t, d.MarkFilled(id, "web"), "there is no such stack")
	require.NoError(t, os.MkdirAll(d.Stack(id), 0o700))
	require.NoError(t, d.MarkFilled(id, "web"))
	require.NoError(t, d.MarkFilled(id, "web"))
	require.NoError(t, d.MarkFilled(id, "api"))
	require.Equal(t, []string{"api", "web"}, d.Filled(id))
	require.NoError(t, d.UnmarkFilled(id, "web"))
	require.NoError(t, d.UnmarkFilled(id, "web"))
	require.Equal(t, []string{"api"}, d.Filled(id))
}
