package supervisor

import (
	"errors"
	"slices"
	"sync/atomic"
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
		synctest.Wait()
		require.Empty(t, w.dir.Sources(st.ID, w.get(st.ID).Generation.Source.Folder))
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
		var then atomic.Pointer[stack.ServiceStatus]
		w.engine.Before("Stop", func(string) error {
			then.CompareAndSwap(nil, &w.get(st.ID).Generation.Services[0].Status)
			return nil
		})
		w.program(st.ID, 2, func(p *enginetest.Process) int {
			w.runs(st, "web-g2")
			return listen(p)
		})
		w.deploy(st.ID, recreate("web"))
		w.serves(st.ID, 2)
		require.Equal(t, stack.Stopped, *then.Load(), "as a server would find it that follows this one")
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
		require.Empty(t, w.dir.Sources(st.ID, w.get(st.ID).Generation.Source.Folder))
		w.runs(st, "web-g1")
	})
}

// One that was healthy may have ended while others were brought up.
func TestDeploy_LooksWhetherEveryProcessStillRuns(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		web := service("web")
		web.DependsOn = []string{"api"}
		st := w.long(service("api"), web)
		before := len(w.events(st.ID))
		w.program(st.ID, 2, only("web", w.slow))
		w.deploy(st.ID, service("api"), web)
		w.runs(st, "api-g1", "api-g2", "web-g1", "web-g2")
		require.Equal(t, []string{"stack.redeploying", "service.building", "service.building", "service.ready"}, w.after(st.ID, before))
		w.crash(st, "api-g2", 137)
		w.release()
		w.awaitEvent(st.ID, "stack.deploy_failed", 1)
		require.Contains(t, w.get(st.ID).DeployError, `"serve" exited with code 137 after it was healthy`)
		require.NotContains(t, w.events(st.ID), "service.crashed")
		w.endsWith(st, "L1")
	})
}

func TestDeploy_OfAFailedStack(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.createRunning(time.Hour, exits(1), service("web"))
		w.becomes(st.ID, stack.Failed)
		before := len(w.events(st.ID))
		w.program(st.ID, 2, silent)
		w.deploy(st.ID, service("web"))
		w.runs(st, "web-g2")
		now := w.get(st.ID)
		require.Equal(t, stack.Building, now.Status)
		require.Empty(t, now.Error)
		w.crash(st, "web-g2", 1)
		w.becomes(st.ID, stack.Failed)
		require.Equal(t, []string{"stack.redeploying", "service.building", "stack.failed"}, w.after(st.ID, before))
		w.program(st.ID, 2, nil)
		w.deploy(st.ID, service("web"))
		now = w.serves(st.ID, 2)
		require.Empty(t, now.Error)
		require.Equal(t, []string{"stack.redeploying", "service.building", "service.ready", "stack.live"}, w.after(st.ID, before+3))
		// At once again: what the last deploy cleans up is not what this one makes.
		for generation := 3; generation < 6; generation++ {
			w.deploy(st.ID, service("web"))
			w.serves(st.ID, generation)
		}
		w.endsWith(st, "L5")
	})
}

// A new process that does not get healthy gives back what it holds before the old one is
// started again; what is routed then is what the stack is by then.
func TestRecreate_GivesTheNewProcessItsTimeToStop(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		holding := func(serve enginetest.Program) enginetest.Program {
			return func(p *enginetest.Process) int {
				if p.Read(stack.DataDir, "lock") == "held" {
					return 8
				}
				p.Write(stack.DataDir, "lock", "held")
				serve(p)
				time.Sleep(3 * time.Second)
				p.Write(stack.DataDir, "lock", "")
				return 0
			}
		}
		st := w.createRunning(time.Hour, holding(listen), recreate("web"), pages("pages"))
		w.becomes(st.ID, stack.Live)
		w.program(st.ID, 2, holding(silent))
		w.deploy(st.ID, recreate("web"), pages("pages"))
		w.runs(st, "web-g2")
		require.Equal(t, "noindex", w.page(st, "pages").Header().Get("X-Robots-Tag"))
		require.NoError(t, w.claim(st.ID))
		w.awaitEvent(st.ID, "stack.deploy_failed", 1)
		require.Contains(t, w.get(st.ID).DeployError, "web listens on no port")
		require.True(t, w.answers(st, "web"))
		require.Empty(t, w.page(st, "pages").Header().Get("X-Robots-Tag"))
	})
}

// A process that was asked to end comes back once it has ended.
func TestDeploy_ThatFailsWhileAnOldProcessEndsBringsItBack(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		specs := []stack.Spec{service("web"), recreate("worker")}
		st := w.createRunning(time.Hour, only("worker", func(p *enginetest.Process) int {
			listen(p)
			time.Sleep(5 * time.Second)
			return 0
		}), specs...)
		w.becomes(st.ID, stack.Live)
		w.program(st.ID, 2, only("web", func(*enginetest.Process) int {
			time.Sleep(time.Second)
			return 3
		}))
		w.deploy(st.ID, specs...)
		w.awaitEvent(st.ID, "stack.deploy_failed", 1)
		w.settle()
		require.NotContains(t, w.events(st.ID), "service.crashed")
		require.True(t, w.answers(st, "web"))
		require.True(t, w.answers(st, "worker"))
		w.endsWith(st, "L1")
	})
}

// A process that another one has replaced may still finish its calls.
func TestDeploy_MakesWayForAllThatRuns(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		var running, beside atomic.Int32
		st := w.createRunning(time.Hour, func(p *enginetest.Process) int {
			running.Add(1)
			defer running.Add(-1)
			return listen(p)
		}, service("web"))
		w.becomes(st.ID, stack.Live)
		w.program(st.ID, 2, func(p *enginetest.Process) int {
			beside.Store(running.Load())
			return listen(p)
		})
		w.restart(st)
		w.awaitEvent(st.ID, "service.restarted", 1)
		require.EqualValues(t, 2, running.Load())
		w.deploy(st.ID, recreate("web"))
		w.serves(st.ID, 2)
		require.Zero(t, beside.Load(), "processes beside the new one")
		w.endsWith(st, "L2")
	})
}

// Nothing is served while a fault of the host keeps a generation from coming back, but
// parts of it may run.
func TestDeploy_EndsWhatRunsWhereNothingIsServed(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.long(service("web"))
		w.sup.lookup(st.ID).swapServed(nil)
		w.deploy(st.ID, service("web"))
		w.serves(st.ID, 2)
		at := time.Now()
		w.runs(st, "web-g2")
		require.Less(t, time.Since(at), time.Second)
		w.endsWith(st, "L2")
	})
}

// The next deploy may be accepted as soon as the row says that the one before has failed.
func TestDeploy_ThatFailsLeadsNobodyAwayFromTheNext(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.createRunning(time.Hour, exits(1), service("web"))
		w.db.after(func(id string, events []stack.Event) {
			if at(stack.EventFailed)(id, events) != nil {
				w.program(st.ID, 2, silent)
				go w.deploy(st.ID, service("web"))
				time.Sleep(time.Millisecond)
			}
		})
		w.await(st.ID, "built again", func(st *stack.Stack) bool {
			return st.Status == stack.Building && count(w.events(st.ID), "stack.failed") == 1
		})
		time.Sleep(time.Second)
		require.NotEmpty(t, w.page(st, "web").Header().Get("Retry-After"), "as of a stack that builds")
	})
}

// A process may be found lost with the engine while the row of its stack becomes failed.
func TestRecreate_WhoseRollbackFailsIsTakenDownWhateverIsNoticed(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		api := service("api")
		api.DependsOn = []string{"web"}
		st := w.long(recreate("web"), api)
		g := w.served(st)
		w.program(st.ID, 1, exits(2)) // when it comes back
		w.program(st.ID, 2, exits(1))
		w.db.breaks(func(id string, events []stack.Event) error {
			if at(stack.EventFailed)(id, events) != nil {
				g.runner.tell(func(l *loop) { l.recoverLost(g) })
			}
			return nil
		})
		w.deploy(st.ID, recreate("web"), api)
		w.becomes(st.ID, stack.Failed)
		synctest.Wait() // no leftovers are looked for meanwhile
		require.Equal(t, "F1", w.consistent(st, "failed"))
	})
}
