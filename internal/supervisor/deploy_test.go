package supervisor

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/stack"
)

// at is the fault of a database that takes no change with an event of a type.
func at(kind stack.EventType) func(string, []stack.Event) error {
	return func(_ string, events []stack.Event) error {
		if slices.ContainsFunc(events, func(e stack.Event) bool { return e.Type == kind }) {
			return errors.New("the database does not work")
		}
		return nil
	}
}

// An engine that goes away, or the end of the stack's time, may come before the
// deploy has read its row.
func TestDeploy_ThatIsStoppedAsItBeginsEndsInTheRow(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		accepted := false
		w.db.breaks(func(_ string, events []stack.Event) error {
			if accepted {
				return errors.New("the database does not work")
			}
			accepted = len(events) > 0 && events[0].Type == stack.EventRedeploying
			return nil
		})
		w.deploy(st.ID, service("web"))
		w.away(3 * time.Second)
		w.settle()
		w.db.breaks(nil)

		w.awaitEvent(st.ID, "stack.restored", 1)
		st = w.becomes(st.ID, stack.Live)
		require.Contains(t, st.DeployError, "the Docker engine of this host was restarted")
		require.Empty(t, w.dir.Sources(st.ID))
		w.runs(st, "web-g1")
	})
}

func TestDeploy_LooksAgainWhetherItsProcessesRunWhenTheDatabaseWorksAgain(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		w.db.breaks(at(stack.EventLive))
		w.deploy(st.ID, service("web"))
		w.settle()
		w.crash(st, "web-g2", 3)
		w.db.breaks(nil)

		w.awaitEvent(st.ID, "stack.deploy_failed", 1)
		st = w.becomes(st.ID, stack.Live)
		require.Contains(t, st.DeployError, "exited with code 3 after it was healthy")
		require.True(t, w.answers(st, "web"))
		w.runs(st, "web-g1")
	})
}

// A fault of the host may keep the server from taking over a process that runs.
func TestDeploy_MakesWayWhereNothingIsServed(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(recreate("web"))
		w.sup.lookup(st.ID).swapServed(nil)
		var then stack.ServiceStatus
		w.engine.Before("Stop", func(string) error {
			if then == "" {
				then = w.get(st.ID).Services[0].Status
			}
			return nil
		})
		w.program(st.ID, 2, func(p *enginetest.Process) int {
			w.runs(st, "web-g2")
			return listen(p)
		})
		w.deploy(st.ID, recreate("web"))
		w.serves(st.ID, 2)
		require.Equal(t, stack.Stopped, then, "as a server would find it that follows this one")
	})
}

// A source that is not read to its end goes with the deploy that a stop has ended.
func TestDeploy_ThatAStopEndedLeavesNoSource(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		w.program(st.ID, 2, silent)
		w.deploy(st.ID, service("web"))
		time.Sleep(time.Second)
		w.stopServer()
		w.startServer()
		w.awaitEvent(st.ID, "stack.deploy_failed", 1)
		synctest.Wait()
		require.Empty(t, w.dir.Sources(st.ID))
		w.runs(st, "web-g1")
	})
}
