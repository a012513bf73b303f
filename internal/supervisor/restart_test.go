package supervisor

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/stack"
)

func TestRestartInPlace_ThatFailsCountsAsARestartThatDoesNotGetHealthy(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(recreate("web"))
		require.NoError(t, w.claim(st.ID))
		w.program(st.ID, 1, exits(2))
		w.restart(st)
		w.awaitEvent(st.ID, "service.crashed", 1)
		st = w.get(st.ID)
		require.Equal(t, 1, st.Generation.Services[0].Unhealthy)
		require.True(t, st.Generation.Services[0].InPlace)
		require.Equal(t, map[string]any{"service": "web", "exit_code": nil, "crashes": 1}, w.last(st.ID, "service.crashed").Data)
		w.program(st.ID, 1, nil)
		w.awaitEvent(st.ID, "service.restarted", 1)
		require.True(t, w.answers(st, "web"))
	})
}

func TestLeave_SaysWhatBecameOfTheReplacedProcess(t *testing.T) {
	t.Parallel()
	for says, refusal := range map[string]error{
		"replaced process keeps its name":                               errors.New("not now"),
		"another container took the address of a replaced process; the": engine.ErrAddressTaken,
	} {
		inWorld(t, func(w *world) {
			st := w.live(service("web"))
			require.NoError(t, w.claim(st.ID))
			old := w.served(st).process("web").id
			w.engine.Before("Promote", func(id string) error {
				if id == old {
					return refusal
				}
				return nil
			})
			w.restart(st)
			w.runs(st, "web-g1-r1")
			require.True(t, w.logged(says), says)
			require.True(t, w.answers(st, "web"))
		})
	}
}

func TestRestart_OfAServiceThatWaitsAfterACrashIsAtOnce(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		w.crash(st, "web-g1", 1)
		w.awaitEvent(st.ID, "service.crashed", 1)
		at := time.Now()
		w.restart(st)
		w.awaitEvent(st.ID, "service.restarted", 1)
		require.Less(t, time.Since(at), time.Minute)
		require.True(t, w.answers(st, "web"))
		require.Equal(t, stack.Running, w.get(st.ID).Generation.Services[0].Status)
	}, func(c *Config) { c.Limits.Backoff, c.Limits.BackoffMax = time.Hour, time.Hour })
}

func TestRestart_ThatFailsLeavesTheProcessFromBefore(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		w.program(st.ID, 1, exits(4))
		w.restart(st)
		w.settle()
		require.Contains(t, w.runLog(st), "== the restart failed; the previous process keeps running: ")
		require.NotContains(t, w.events(st.ID), "service.restarted")
		require.NotContains(t, w.events(st.ID), "service.crashed")
		w.endsWith(st, "L1")
	})
}

// It does not serve yet, so that nothing is lost when it is ended.
func TestRestart_OfAProcessThatIsNotHealthyAfterACrash(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.long(service("web"))
		w.program(st.ID, 1, w.slow)
		w.crash(st, "web-g1", 1)
		time.Sleep(5 * time.Second)
		require.Equal(t, http.StatusBadGateway, w.ask(st, "web"))
		w.restart(st)
		time.Sleep(2 * time.Minute)
		require.Equal(t, stack.Restarting, w.get(st.ID).Generation.Services[0].Status)
		w.release()
		w.settle()
		require.True(t, w.answers(st, "web"))
		w.endsWith(st, "L1")
	})
}

// Only one of them may hold what is in $DATA_DIR.
func TestRestart_OfARecreateServiceNeverRunsTwoProcesses(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.createRunning(time.Hour, func(p *enginetest.Process) int {
			if p.Read(stack.DataDir, "lock") == "held" {
				return 8
			}
			p.Write(stack.DataDir, "lock", "held")
			listen(p)
			time.Sleep(3 * time.Second)
			p.Write(stack.DataDir, "lock", "")
			return 0
		}, recreate("web"))
		w.becomes(st.ID, stack.Live)
		id := w.served(st).process("web").id
		w.restart(st)
		w.awaitEvent(st.ID, "service.restarted", 1)
		require.Equal(t, id, w.served(st).process("web").id)
		w.deploy(st.ID, recreate("web"))
		w.serves(st.ID, 2)
		require.NotContains(t, w.events(st.ID), "service.crashed")
		w.endsWith(st, "L2")
	})
}

// Another container may get the address of the process from before, and must not answer
// in its name while the restart goes on.
func TestRestart_WithdrawsAProcessFromBeforeThatEnds(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.restarting(service("web"))
		require.True(t, w.answers(st, "web"))
		require.Equal(t, stack.Restarting, w.get(st.ID).Generation.Services[0].Status)
		w.crash(st, "web-g1", 137)
		w.settle()
		require.Equal(t, http.StatusBadGateway, w.ask(st, "web"))
		require.NotContains(t, w.runLog(st), "the restart failed")
		require.Equal(t, stack.Restarting, w.get(st.ID).Generation.Services[0].Status)
	}, func(c *Config) { c.HealthTimeout = time.Hour })
}

// A process that takes its time to end, or ignores that it is to, keeps no stack from
// being deleted and no server from stopping, whatever is done with it.
func TestDelete_DoesNotWaitForAProcessThatIgnoresItsEnd(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		spec := service("web")
		spec.StopTimeout = 50 * time.Second
		ignores := func(p *enginetest.Process) int {
			<-p.Killed
			return 0
		}
		restarting := w.createRunning(time.Hour, w.stubborn, spec)
		w.becomes(restarting.ID, stack.Live)
		w.program(restarting.ID, 1, ignores)
		w.restart(restarting)
		w.runs(restarting, "web-g1", "web-g1-r1")
		starting := w.createRunning(time.Hour, ignores, spec)
		time.Sleep(70 * time.Second) // its health check is over
		for _, st := range []*stack.Stack{restarting, starting} {
			at := time.Now()
			require.NoError(t, w.sup.Delete(w.t.Context(), st.ID))
			require.Less(t, time.Since(at), 10*time.Second)
			require.Equal(t, "-", w.consistent(st, "deleted"))
		}

		st := w.createRunning(time.Hour, ignores, spec)
		time.Sleep(70 * time.Second)
		at := time.Now()
		w.stopServer()
		require.Less(t, time.Since(at), 10*time.Second)
		w.startServer() // it ends what the one before did not wait for
		require.Equal(t, stack.Failed, w.get(st.ID).Status)
		w.endsWith(st, "F1")
	})
}

// A generation may fall while a restart waits for the watcher of one of its processes.
func TestRestart_AgainstACrashLoopOfAnotherService(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.long(service("web"), service("api"))
		require.NoError(t, w.claim(st.ID))
		web := w.served(st).process("web").id
		w.hold("Look", web)
		w.crash(st, "web-g1", 1)
		synctest.Wait()
		w.restart(st)
		for crash := 1; crash <= limits.Crashes; crash++ {
			w.crash(st, "api-g1", 1)
			w.awaitEvent(st.ID, "service.restarted", crash)
		}
		w.crash(st, "api-g1", 1)
		w.becomes(st.ID, stack.Failed)
		synctest.Wait()
		w.release()
		w.settle()
		require.Equal(t, "F1", w.consistent(st, "fallen"))
	})
}

func TestRestart_OfAllServices(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"), service("api"))
		_, err := w.sup.Restart(w.t.Context(), st.ID, "")
		require.NoError(t, err)
		w.awaitEvent(st.ID, "service.restarted", 2)
		w.runs(st, "api-g1-r1", "web-g1-r1")
		for _, service := range []string{"web", "api"} {
			require.True(t, w.answers(st, service))
		}
	})
}
