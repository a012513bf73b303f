package supervisor

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
)

// An engine that goes away, or the end of the stack's time, may come before the
// deploy has read its row.
func TestDeploy_ThatIsStoppedAsItBeginsEndsInTheRow(t *testing.T) {
	s, st := withStack(t)
	r := s.runner(st.ID)
	source := filepath.Join(string(s.cfg.Dir), "source")
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
	s.cfg.Engine = fakeEngine(t, &running)
	r := s.runner(st.ID)
	d := &deployment{gen: r.generation(st, st.Deploying, st.Services)}
	newTestProcess(d.gen)
	mend := sync.OnceFunc(breakDatabase(t, s))
	r.log = slog.New(onLog(func(message string) {
		if strings.Contains(message, "the database does not work") {
			running.Store(false)
			mend()
		}
	}))

	err := d.switchOver(t.Context())

	require.ErrorContains(t, err, "exited with code 3 after it was healthy")
	require.Nil(t, r.serving())
	st, err = s.cfg.Store.Get(t.Context(), st.ID)
	require.NoError(t, err)
	require.Equal(t, stack.Building, st.Status)
}

// A fault of the host may keep the server from taking over a process that runs.
func TestDeploy_MakesWayWhereNothingIsServed(t *testing.T) {
	s, st := withStack(t)
	st, err := s.cfg.Store.Update(t.Context(), st.ID, func(st *stack.Stack) ([]stack.Event, error) {
		events, err := st.Deployed(st.Services, s.cfg.URLs, stack.Now())
		if err != nil {
			return nil, err
		}
		redeploying, err := st.Deploy(st.Services)
		return append(events, redeploying...), err
	})
	require.NoError(t, err)
	var ended []string
	s.cfg.Engine = answeringEngine(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/containers/json"):
			assert.Contains(t, r.URL.Query().Get("filters"), "berth.service=web")
			fmt.Fprintf(w, `[{"Id": "old", "Labels": {%[1]q: "1"}}, {"Id": "next", "Labels": {%[1]q: "2"}}, {"Id": "box"}]`, "berth.generation")
		case strings.HasSuffix(r.URL.Path, "/stop"), r.Method == http.MethodDelete:
			now, err := s.cfg.Store.Get(t.Context(), st.ID)
			assert.NoError(t, err)
			assert.Equal(t, stack.Stopped, now.Services[0].Status, "as a server would find it that follows this one")
			_, asked, _ := strings.Cut(r.URL.Path, "/containers/")
			ended = append(ended, r.Method+" "+asked)
			w.WriteHeader(http.StatusNoContent)
		}
	})
	d := &deployment{gen: s.runner(st.ID).generation(st, st.Deploying, st.Services)}

	require.NoError(t, d.makeWay(t.Context(), "web"))

	require.Equal(t, []string{"POST old/stop", "DELETE old"}, ended)
}
