package supervisor

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/stack"
)

func TestSupersede_TakesThePlaceOfTheFirstBuild(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		spec := service("web")
		spec.Build = "make"
		st := w.commanding(spec)
		require.NoError(t, w.supersede(st.ID, service("api")))
		now := w.get(st.ID)
		require.Equal(t, []any{stack.Building, 1, 2, "", "api"}, []any{now.Status, now.Deploying, now.Attempt, now.Error, now.Generation.Services[0].Spec.Name})

		now = w.becomes(st.ID, stack.Live)
		require.Equal(t, []any{1, 2}, []any{now.Generation.Number, now.Generation.Attempt})
		require.Equal(t, []string{"stack.created", "service.building", "stack.redeploying", "service.building", "service.ready", "stack.live"}, w.events(st.ID))
		require.Equal(t, stack.Superseded, now.DeployOf(st.LastDeploy).Outcome)
		w.settle()
		w.consistent(now, "after a supersede")
		w.runs(st, "api-g1")
	})
}

// A new generation may take its time to fail; who knows better need not wait.
func TestSupersede_EndsARedeployWithItsReason(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.redeploying(service("web"))
		began, mine := time.Now(), w.get(st.ID).LastDeploy
		w.program(st.ID, 2, nil)
		require.NoError(t, w.supersede(st.ID, service("web")))
		require.Equal(t, map[string]any{"generation": 2, "attempt": 2, "error": "attempt 2 was superseded by attempt 3", "serving_generation": 1}, w.last(st.ID, "stack.deploy_failed").Data)
		now := w.serves(st.ID, 2)
		require.Less(t, time.Since(began), time.Second)
		require.Empty(t, now.DeployError)
		ended := now.DeployOf(mine)
		require.Equal(t, []any{2, stack.Superseded, "attempt 2 was superseded by attempt 3", now.LastDeploy.StartedAt}, []any{ended.Attempt, ended.Outcome, ended.Error, ended.EndedAt})
		w.settle()
		w.consistent(now, "after a supersede")
	})
}

func TestSupersede_OfManyAtOnceLeavesTheLast(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.redeploying(recreate("web"))
		w.program(st.ID, 2, nil)
		first := w.get(st.ID).LastDeploy
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() { require.NoError(t, w.supersede(st.ID, recreate("web"))) })
		}
		all.Wait()
		now := w.becomes(st.ID, stack.Live)
		require.Equal(t, now.Attempt, now.Generation.Attempt)
		require.NotEqual(t, stack.Underway, now.DeployOf(first).Outcome)
		w.settle()
		w.consistent(now, "after many")
		require.True(t, w.answers(now, "web"))
	})
}

// What would go live at that moment either does, and the next generation follows, or is
// superseded; nothing is both.
func TestSupersede_AsTheGenerationIsAboutToGoLive(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		var once sync.Once
		w.db.after(func(_ string, events []stack.Event) {
			if len(events) > 0 && events[0].Type == stack.EventReady {
				once.Do(func() { require.NoError(t, w.supersede(st.ID, service("web"))) })
			}
		})
		w.deploy(st.ID, service("web"))
		now := w.serves(st.ID, 2)
		require.Equal(t, 3, now.Generation.Attempt)
		require.Equal(t, 1, count(w.events(st.ID), "stack.deploy_failed"))

		mine := now.LastDeploy
		require.NoError(t, w.supersede(st.ID, service("web")))
		now = w.serves(st.ID, 3)
		require.Equal(t, stack.WentLive, now.DeployOf(mine).Outcome, "it was too late to supersede it")
		w.settle()
		w.consistent(now, "after the last")
	})
}

// The service does not stay down while the next generation is built.
func TestSupersede_BringsBackWhatWasHalted(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.redeploying(recreate("web"))
		spec := recreate("web")
		spec.Build = "make"
		w.command(func(p *enginetest.Process) int {
			select {
			case <-w.released:
			case <-p.Killed:
			}
			return 0
		})
		w.program(st.ID, 2, nil)
		require.NoError(t, w.supersede(st.ID, spec))
		w.await(st.ID, "built", func(st *stack.Stack) bool { return st.LastDeploy.Progress.Phase == stack.PhaseBuild })
		require.True(t, w.answers(st, "web"))
		require.Equal(t, stack.Running, w.get(st.ID).Generation.Services[0].Status)
		w.release()
		w.serves(st.ID, 2)
	})
}

func TestSupersede_GoesOnIfTheOldGenerationDoesNotComeBack(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.redeploying(recreate("web"))
		w.program(st.ID, 1, exits(1))
		w.program(st.ID, 2, nil)
		require.NoError(t, w.supersede(st.ID, recreate("web")))
		now := w.serves(st.ID, 2)
		require.Equal(t, 3, now.Generation.Attempt)
		require.Contains(t, w.last(st.ID, "stack.failed").Data["error"], "Generation 1, which served before, could not be brought back")
		w.settle()
		w.consistent(now, "after the old one failed")
	})
}

// The next server knows nothing of the attempt that was superseded but what the row says.
func TestSupersede_IsKeptByTheNextServer(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.redeploying(recreate("web"))
		require.NoError(t, w.supersede(st.ID, recreate("web")))
		w.stopServer()
		w.startServer()
		now := w.becomes(st.ID, stack.Live)
		require.Equal(t, []any{1, 3, stack.RolledBack}, []any{now.Generation.Number, now.LastDeploy.Attempt, now.LastDeploy.Outcome})
		require.Contains(t, now.DeployError, "the server was restarted")
		require.Equal(t, 2, count(w.events(st.ID), "stack.deploy_failed"))
		w.settle()
		w.consistent(now, "after a restart of the server")
	})
}

func TestSupersede_IsRefusedOnceTheTimeHasRunOutAndDuringARestore(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.expired(service("web"))
		synctest.Wait()
		require.Equal(t, stack.Conflict, stack.KindOf(w.supersede(st.ID, service("web"))))
		w.program(st.ID, 1, w.slow)
		require.NoError(t, w.claim(st.ID))
		require.ErrorContains(t, w.supersede(st.ID, service("web")), "being restored")
		w.release()
		w.becomes(st.ID, stack.Live)
		require.Empty(t, w.dir.Sources(st.ID, w.get(st.ID).Generation.Source.Folder))
	})
}
