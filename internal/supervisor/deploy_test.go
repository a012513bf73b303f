package supervisor

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
)

// An engine that goes away, or the end of the stack's time, may come before the
// deploy has read its row.
func TestDeploy_ThatIsStoppedAsItBeginsEndsInTheRow(t *testing.T) {
	s, st := withStack(t)
	r := s.runner(st.ID)
	source := filepath.Join(s.Dir, "source")
	require.NoError(t, os.Mkdir(source, 0o700))
	ctx, stop := context.WithCancelCause(t.Context())
	stop(errEngineLeft(st.Deploying))

	r.deploy(ctx, st.Deploying, st.Services, source)

	require.NoDirExists(t, source)
	ended, err := r.updateOnce(t.Context(), r.endStopped)
	require.NoError(t, err)
	require.Zero(t, ended.Deploying)
	require.Equal(t, stack.Failed, ended.Status)
	require.Contains(t, ended.Error, "the Docker engine of this host was restarted")
}
