package supervisor

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/logfile"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
)

// runLog is what the logs of a stack's processes hold.
func (w *world) runLog(st *stack.Stack) string {
	w.t.Helper()
	synctest.Wait()
	var text strings.Builder
	require.NoError(w.t, w.dir.Logs(w.t.Context(), st, "", "run", logfile.View{Tail: 1000}, &text))
	return text.String()
}

// after are the types of a stack's events after the first n.
func (w *world) after(id string, n int) []string {
	w.t.Helper()
	return w.events(id)[n:]
}

func (w *world) reboot() {
	w.t.Helper()
	w.stopServer()
	w.startServer()
}

func TestCrash_WaitsGrowToTheirBoundAndTheServiceIsRestarting(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		var waits []string
		for n := 1; n <= 4; n++ {
			at := time.Now()
			w.crash(st, "web-g1", 1)
			w.awaitEvent(st.ID, "service.crashed", n)
			require.Equal(t, stack.Restarting, w.get(st.ID).Generation.Services[0].Status)
			w.awaitEvent(st.ID, "service.restarted", n)
			waits = append(waits, time.Since(at).String())
			require.Equal(t, stack.Running, w.get(st.ID).Generation.Services[0].Status)
		}
		require.Equal(t, []string{"400ms", "800ms", "1s", "1s"}, waits)
		for _, wait := range waits {
			require.Contains(t, w.runLog(st), "== restarting in "+wait+"\n")
		}
	}, func(c *Config) { c.Limits.Backoff, c.Limits.BackoffMax = 400*time.Millisecond, time.Second })
}

func TestCrash_ARestartThatDoesNotGetHealthyCounts(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		before := len(w.events(st.ID))
		w.program(st.ID, 1, exits(4))
		w.crash(st, "web-g1", 3)
		st = w.becomes(st.ID, stack.Failed)
		require.Equal(t, "web crashed 6 times in 10 min (last exit code 4); check its logs and redeploy", st.Error)
		events := w.db.Events(st.ID)[before:]
		require.Len(t, events, 7)
		for i, e := range events[:6] {
			want := map[string]any{"service": "web", "exit_code": nil, "crashes": i + 1}
			if i == 0 {
				want["exit_code"] = 3
			}
			require.Equal(t, stack.EventCrashed, e.Type)
			require.Equal(t, want, e.Data)
		}
		require.Equal(t, stack.EventFailed, events[6].Type)
		require.Equal(t, 5, strings.Count(w.runLog(st), `== the restart failed: service web: "serve" exited with code 4`))
		require.Equal(t, "-", w.endsWith(st, "F1"))
	})
}

// endsWith requires what became of a stack at rest, and deletes it.
func (w *world) endsWith(st *stack.Stack, want string) string {
	w.t.Helper()
	w.settle()
	require.Equal(w.t, want, w.consistent(st, "in the end"))
	require.NoError(w.t, w.sup.Delete(w.t.Context(), st.ID))
	return w.consistent(st, "in the end")
}

// A service that takes so long to fail that no window holds its crashes is not
// restarted for ever.
func TestCrash_RestartsInARowThatDoNotGetHealthyFailTheStack(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		before := len(w.events(st.ID))
		w.program(st.ID, 1, exits(4))
		w.crash(st, "web-g1", 3)
		st = w.becomes(st.ID, stack.Failed)
		require.Equal(t, "web did not become healthy in 3 restarts in a row (last exit code 4); check its logs and redeploy", st.Error)
		require.Equal(t, []string{"service.crashed", "service.crashed", "service.crashed", "service.crashed", "stack.failed"}, w.after(st.ID, before))
		require.Equal(t, 1, w.last(st.ID, "service.crashed").Data["crashes"])
	}, func(c *Config) { c.Limits.Crashes, c.Limits.CrashWindow = 2, time.Millisecond })
}

// A container that somebody removed is made anew, with the service's data.
func TestCrash_AContainerThatIsRemovedComesBack(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.createRunning(limits.TTL, keeping, service("web"))
		w.becomes(st.ID, stack.Live)
		for n := 1; n <= 2; n++ {
			id := w.served(st).process("web").id
			require.NoError(t, w.driver.Remove(w.t.Context(), id))
			w.awaitEvent(st.ID, "service.restarted", n)
			require.True(t, w.answers(st, "web"))
			require.Equal(t, map[string]string{"kept": st.ID}, w.engine.Volume(engine.Key{Stack: st.ID, Service: "web"}.Data()))
			require.Equal(t, n, w.last(st.ID, "service.crashed").Data["crashes"])
		}
		w.deploy(st.ID, service("web"))
		w.serves(st.ID, 2)
		w.runs(st, "web-g2")
	})
}

// crashed lets a service crash once and come back, for the n-th time of its stack.
func (w *world) crashed(st *stack.Stack, name string, n int) {
	w.t.Helper()
	w.crash(st, name, 3)
	w.awaitEvent(st.ID, "service.restarted", n)
	synctest.Wait()
}

func TestCrash_IsCountedByServiceAndForgottenByADeployAndARestart(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("api"), service("web"))
		crashes := func() any { return w.last(st.ID, "service.crashed").Data["crashes"] }
		for n := 1; n <= 4; n++ {
			w.crashed(st, "web-g1", n)
			if n == 2 {
				w.reboot()
			}
		}
		require.Equal(t, 4, crashes(), "over a restart of the server")
		w.crashed(st, "api-g1", 5)
		require.Equal(t, 1, crashes(), "another service has a count of its own")
		w.restart(st)
		w.awaitEvent(st.ID, "service.restarted", 6)
		w.crashed(st, "web-g1-r1", 7)
		require.Equal(t, 1, crashes(), "a restart resets the count")
		w.crashed(st, "api-g1", 8)
		require.Equal(t, 2, crashes(), "of that service alone")
		w.deploy(st.ID, service("api"), service("web"))
		w.serves(st.ID, 2)
		w.crashed(st, "api-g2", 9)
		require.Equal(t, 1, crashes(), "a deploy resets the count")
	})
}

// looping lets a service of a stack crash until that is too often.
func (w *world) looping(st *stack.Stack, name string) {
	w.t.Helper()
	w.program(st.ID, 1, exits(9))
	w.crash(st, name, 9)
}

// fallen is a stack that was live until it crashed once too often while the next
// generation was on its way, which gets healthy at the release.
func (w *world) fallen(specs ...stack.Spec) *stack.Stack {
	w.t.Helper()
	st := w.createFor(time.Hour, specs...)
	w.becomes(st.ID, stack.Live)
	w.program(st.ID, 2, w.slow)
	w.deploy(st.ID, service("web"))
	synctest.Wait()
	w.looping(st, "web-g1")
	st = w.await(st.ID, "fallen", func(st *stack.Stack) bool { return st.Status == stack.Building })
	w.runs(st, "web-g2")
	return st
}

func TestFallen_TheDeployGoesOn(t *testing.T) {
	t.Parallel()
	for end, want := range map[string][]string{
		"L2": {"service.ready", "stack.live"},
		"F1": {"stack.failed"},
	} {
		inWorld(t, func(w *world) {
			st := w.fallen(service("web"), service("api"))
			events := w.events(st.ID)
			require.Equal(t, []string{"service.crashed", "stack.failed"}, events[len(events)-2:])
			require.Equal(t, map[string]any{"error": "web crashed 6 times in 10 min (last exit code 9); check its logs and redeploy"}, w.last(st.ID, "stack.failed").Data)
			require.Equal(t, []int{1, 2}, []int{st.Generation.Number, st.Deploying})
			require.Empty(t, st.Error+st.DeployError)
			for i := range st.Generation.Services {
				require.Equal(t, stack.Stopped, st.Generation.Services[i].Status)
				require.Equal(t, http.StatusServiceUnavailable, w.ask(st, st.Generation.Services[i].Spec.Name))
			}
			_, err := w.sup.Deploy(w.t.Context(), st.ID, source.Upload{Manifest: &stack.Manifest{Services: []stack.Spec{service("web")}}, Source: w.upload()}, nil)
			require.ErrorContains(t, err, "already running")
			if end == "F1" {
				w.program(st.ID, 2, exits(7))
				w.crash(st, "web-g2", 7)
			} else {
				w.release()
			}
			w.settle()
			require.Equal(t, want, w.after(st.ID, len(events)))
			now := w.get(st.ID)
			require.Equal(t, end == "F1", strings.Contains(now.Error, "exited with code 7"), now.Error)
			require.Empty(t, now.DeployError)
			if end == "F1" {
				w.program(st.ID, 2, nil)
				w.deploy(st.ID, service("web"))
				w.serves(st.ID, 2)
				end = "L2"
			}
			w.endsWith(st, end)
		})
	}
}

// The generation that was live is brought back.
func TestFallen_ThatExpiresComesBack(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.fallen(service("web"), service("api"))
		w.program(st.ID, 1, nil)
		require.NoError(t, w.extend(st, time.Second))
		w.awaitEvent(st.ID, "stack.expired", 1)
		require.Zero(t, w.get(st.ID).Deploying)
		require.NoError(t, w.claim(st.ID))
		w.serves(st.ID, 1)
		w.runs(st, "api-g1", "web-g1")
	})
}

func TestFallen_ADeployThatWaitsForABuildSlotGoesOn(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		w.command(silent)
		building := everything("web")
		building.Release = ""
		others := make([]*stack.Stack, slots)
		for i := range others {
			others[i] = w.create(building)
		}
		synctest.Wait()
		w.deploy(st.ID, service("web"))
		before := len(w.events(st.ID))
		w.looping(st, "web-g1")
		st = w.await(st.ID, "fallen", func(st *stack.Stack) bool { return st.Status == stack.Building })
		require.Equal(t, 2, st.Deploying)
		require.NotContains(t, w.after(st.ID, before), "service.building")
		require.NoError(t, w.sup.Delete(w.t.Context(), others[0].ID))
		w.serves(st.ID, 2)
		events := w.after(st.ID, before)
		require.Equal(t, []string{"service.crashed", "stack.failed", "service.building", "service.ready", "stack.live"}, events[len(events)-5:])
		w.runs(st, "web-g2")
	})
}

// A service whose process was stopped to make way does not come back for a generation
// in which another one loops.
func TestFallen_WithAServiceThatMadeWay(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		inWorld(t, func(w *world) {
			api := service("api")
			api.DependsOn = []string{"web"}
			st := w.live(recreate("web"), api)
			w.program(st.ID, 2, w.slow)
			w.deploy(st.ID, recreate("web"), api)
			w.runs(st, "api-g1", "web-g2")
			w.looping(st, "api-g1")
			st = w.await(st.ID, "fallen", func(st *stack.Stack) bool { return st.Status == stack.Building })
			require.Equal(t, []stack.ServiceStatus{stack.Stopped, stack.Stopped}, []stack.ServiceStatus{st.Generation.Services[0].Status, st.Generation.Services[1].Status})
			w.runs(st, "web-g2")
			if fails {
				w.program(st.ID, 2, exits(7))
				w.crash(st, "web-g2", 7)
				st = w.becomes(st.ID, stack.Failed)
				require.Contains(t, st.Error, "exited with code 7")
				w.endsWith(st, "F1")
				return
			}
			w.release()
			w.serves(st.ID, 2)
			w.endsWith(st, "L2")
		})
	}
}

// A deploy that waits while a stack is brought back, and fails to come back, is not lost
// either.
func TestFallen_AQueuedDeployFollowsARestoreThatFails(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		w.stopServer()
		w.crash(st, "web-g1", 1)
		w.program(st.ID, 1, w.slow)
		w.startServer()
		w.runs(st, "web-g1")
		before := len(w.events(st.ID))
		w.deploy(st.ID, service("web"))
		require.Equal(t, stack.Live, w.get(st.ID).Status)
		w.crash(st, "web-g1", 1)
		now := w.serves(st.ID, 2)
		require.Empty(t, now.Error)
		require.Equal(t, []string{"stack.redeploying", "stack.failed", "service.building", "service.ready", "stack.live"}, w.after(st.ID, before))
		require.Contains(t, fmt.Sprint(w.last(st.ID, "stack.failed").Data["error"]), "before it answered")
		w.endsWith(st, "L2")
	})
}

// held is the handler of a target; it notes when the target has been drained.
type held struct {
	http.Handler
	closed atomic.Bool
}

func (h *held) Close() error {
	h.closed.Store(true)
	return nil
}

// holdTarget puts a handler in place of the target of a stack's static service.
func (w *world) holdTarget(st *stack.Stack, service string) *held {
	h := &held{Handler: http.NotFoundHandler()}
	g := w.served(st)
	g.setTarget(service, proxy.NewHandler(h))
	g.republish(st)
	return h
}

// The database may not take a change at once that takes targets out of the routes.
func TestCrash_ALoopEndsTargetsAlthoughTheDatabaseFailsOnce(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"), pages("docs"))
		h := w.holdTarget(st, "docs")
		w.program(st.ID, 1, exits(1))
		tried := 0
		w.db.breaks(func(id string, events []stack.Event) error {
			if err := at(stack.EventFailed)(id, events); err != nil {
				if tried++; tried <= 2 {
					return err
				}
			}
			return nil
		})
		w.crash(st, "web-g1", 1)
		w.becomes(st.ID, stack.Failed)
		w.settle()
		require.Equal(t, 3, tried)
		require.True(t, h.closed.Load())
		require.Equal(t, http.StatusServiceUnavailable, w.ask(st, "docs"))
	})
}
