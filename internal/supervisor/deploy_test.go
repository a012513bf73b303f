package supervisor

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
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

func TestDeploy_LooksAgainWhetherItsProcessesRunWhenTheDatabaseWorksAgain(t *testing.T) {
	s, st := withStack(t)
	var running atomic.Bool
	running.Store(true)
	s.Engine = fakeEngine(t, &running)
	r := s.runner(st.ID)
	d := &deployment{generation: r.generation(st, st.Deploying, st.Services)}
	newTestProcess(d.generation)
	mend := sync.OnceFunc(breakDatabase(t, s))
	s.Log = slog.New(onLog(func(message string) {
		if strings.Contains(message, "the database does not work") {
			running.Store(false)
			mend()
		}
	}))

	err := d.switchOver(t.Context())

	require.ErrorContains(t, err, "exited with code 3 after it was healthy")
	require.Nil(t, r.serving())
	st, err = s.Store.Get(t.Context(), st.ID)
	require.NoError(t, err)
	require.Equal(t, stack.Building, st.Status)
}
