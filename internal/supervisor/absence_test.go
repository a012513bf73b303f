package supervisor

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
)

// steps are what a deploy asks of the engine, in order.
var steps = []string{"HasImage", "Prepare", "CopyIn", "Commit", "Place", "Run", "Look", "Follow"}

// leaveAt makes the engine go away when it is asked for a method about something for the
// first time, and come back after a while.
func (w *world) leaveAt(method string, about func(object string) bool, away time.Duration) (left *bool) {
	left = new(bool)
	w.engine.Before(method, func(object string) error {
		if !*left && about(object) {
			*left = true
			w.engine.Leave()
			time.AfterFunc(away, w.engine.Return)
		}
		return nil
	})
	return left
}

func anything(string) bool { return true }

// An engine that goes away during a deploy fails it, for that reason, and the stack
// serves what it served before.
func TestEngineAway_AtEachStepOfARedeploy(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		for _, step := range steps {
			st := w.live(service("web"))
			left := w.leaveAt(step, anything, 3*time.Second)
			w.deploy(st.ID, service("web"))
			st = w.await(st.ID, "over", func(st *stack.Stack) bool { return st.Deploying == 0 })
			w.engine.Before(step, nil)
			if !*left {
				t.Errorf("%s: a redeploy does not ask for it", step)
			}
			st = w.becomes(st.ID, stack.Live)
			w.settle()
			if st = w.get(st.ID); st.Generation == 1 {
				require.Contains(t, st.DeployError, "the Docker engine of this host was restarted while generation 2 was being built", step)
				w.runs(st, "web-g1")
			} else {
				w.runs(st, "web-g2") // it was over by then
			}
			require.True(t, w.answers(st, "web"), step)
			require.NotContains(t, w.events(st.ID), "service.crashed", step)
			require.NoError(t, w.sup.Delete(w.t.Context(), st.ID))
		}
	})
}

// What ends with the engine is restored, and no crash.
func TestEngineAway_BringsLiveStacksBackAsARestore(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("api"), service("web"))
		w.engine.Leave()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		w.engine.Return()
		w.awaitEvent(st.ID, "stack.restored", 1)
		w.runs(st, "api-g1", "web-g1")
		require.True(t, w.answers(st, "web"))
		require.NotContains(t, w.events(st.ID), "service.crashed")
	})
}

func TestEngineAway_DuringTheRestoreOfAClaimedStack(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		for _, step := range []string{"Volumes", "Restore", "Place", "Run", "Look"} {
			st := w.live(service("web"))
			w.awaitEvent(st.ID, "stack.expired", 1)
			w.settle()
			left := w.leaveAt(step, anything, 3*time.Second)
			require.NoError(t, w.claim(st.ID))
			st = w.becomes(st.ID, stack.Live)
			w.engine.Before(step, nil)
			w.settle()
			if !*left {
				t.Errorf("%s: a restore does not ask for it", step)
			}
			require.True(t, w.answers(st, "web"), step)
			w.runs(st, "web-g1")
			require.NoError(t, w.sup.Delete(w.t.Context(), st.ID))
		}
	})
}
