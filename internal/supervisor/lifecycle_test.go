package supervisor

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/stack"
)

func TestCreate_BuildsStartsAndServes(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("api"), service("web"))
		w.runs(st, "api-g1", "web-g1")
		require.True(t, w.answers(st, "web"))
		require.Equal(t, 1, st.Generation.Number)
	})
}

// Six crashes within ten minutes are one too many, five are not (docs/api.md, "Crashes").
func TestCrashes_CountOverTheirWindowToTheSecond(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		for last, want := range map[time.Duration]stack.Status{ // of the sixth crash after the first
			limits.CrashWindow - time.Millisecond: stack.Failed,
			limits.CrashWindow + time.Millisecond: stack.Live,
		} {
			st := w.live(service("web"))
			require.NoError(t, w.claim(st.ID))
			first := time.Now()
			for crash := range 6 {
				if crash == 5 {
					time.Sleep(last - time.Since(first))
				}
				w.crash(st, "web-g1", 1)
				w.awaitEvent(st.ID, "service.crashed", crash+1)
				if crash < 5 {
					w.awaitEvent(st.ID, "service.restarted", crash+1)
				}
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, want, w.get(st.ID).Status, "%s after the first", last)
		}
	})
}

// The first restart comes after a second, each next one after twice the time.
func TestCrashes_RestartAfterWaitsThatDouble(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		var starts []time.Time
		w.program("", 1, func(p *enginetest.Process) int {
			starts = append(starts, time.Now())
			if len(starts) > 1 {
				return 1
			}
			return listen(p)
		})
		st := w.live(service("web"))
		w.crash(st, "web-g1", 1)
		st = w.becomes(st.ID, stack.Failed)
		for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second} {
			from := starts[i]
			if i == 0 {
				from = starts[1].Add(-want) // the first process ran for a while
			}
			require.InDelta(t, want.Seconds(), starts[i+1].Sub(from).Seconds(), 0.1, "restart %d", i+1)
		}
		require.Len(t, starts, 6)
		require.Contains(t, st.Error, "web")
		w.runs(st)
	})
}

func TestRedeploy_ReplacesTheGenerationThatServes(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		w.deploy(st.ID, service("web"))
		w.serves(st.ID, 2)
		w.runs(st, "web-g2")
	})
}

func TestRedeploy_ThatDoesNotGetHealthyLeavesTheOldGeneration(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		w.program("", 2, silent)
		w.deploy(st.ID, service("web"))
		w.awaitEvent(st.ID, "stack.deploy_failed", 1)
		st = w.becomes(st.ID, stack.Live)
		require.Equal(t, 1, st.Generation.Number)
		require.Contains(t, st.DeployError, "not healthy within 1m")
		require.True(t, w.answers(st, "web"))
		w.runs(st, "web-g1")
	})
}

// recreate is a service that does not share its data with its next generation.
func recreate(name string) stack.Spec {
	s := service(name)
	s.Strategy = stack.Recreate
	return s
}

func TestRecreate_ThatFailsBringsTheOldProcessBack(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(recreate("web"))
		w.program("", 2, exits(1))
		w.deploy(st.ID, recreate("web"))
		w.awaitEvent(st.ID, "stack.deploy_failed", 1)
		st = w.becomes(st.ID, stack.Live)
		require.Equal(t, 1, st.Generation.Number)
		require.True(t, w.answers(st, "web"))
		w.runs(st, "web-g1")
	})
}

func TestRecreate_WhoseRollbackFailsFailsTheStack(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(recreate("web"))
		w.program("", 1, exits(2)) // when it comes back
		w.program("", 2, exits(1))
		w.deploy(st.ID, recreate("web"))
		st = w.becomes(st.ID, stack.Failed)
		require.Contains(t, st.Error, "exited with code 1")
		require.Contains(t, st.Error, "Generation 1, which served before, could not be brought back")
		require.False(t, w.answers(st, "web"))
		w.runs(st)
	})
}

// A server that stops while a recreate deploy has halted the old process leaves a stack
// that the next server brings back.
func TestRecreate_HaltedByAStopComesBackWithTheNextServer(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(recreate("web"))
		w.program("", 2, silent)
		w.deploy(st.ID, recreate("web"))
		w.runs(st, "web-g2")
		w.stopServer()
		w.startServer()
		w.awaitEvent(st.ID, "stack.deploy_failed", 1)
		st = w.becomes(st.ID, stack.Live)
		require.Equal(t, 1, st.Generation.Number)
		require.Contains(t, st.DeployError, "the server was restarted while generation 2 was being built")
		w.runs(st, "web-g1")
		require.True(t, w.answers(st, "web"))
	})
}

func TestExpiry_NoticesThenStopsAndKeepsTheData(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.program("", 1, func(p *enginetest.Process) int {
			p.Write(stack.DataDir, "kept", "data of web")
			return listen(p)
		})
		st := w.live(service("web"))
		created := st.CreatedAt
		w.awaitEvent(st.ID, "stack.expiring", 1)
		require.Equal(t, limits.TTL-limits.ExpiryNotice, time.Since(created))
		w.awaitEvent(st.ID, "stack.expired", 1)
		require.Equal(t, limits.TTL, time.Since(created).Truncate(time.Second))
		w.runs(st)
		synctest.Wait()
		key := engine.Key{Stack: st.ID, Service: "web"}
		require.Nil(t, w.engine.Volume(key.Data()))

		w.program("", 1, nil)
		require.NoError(t, w.claim(st.ID))
		st = w.becomes(st.ID, stack.Live)
		require.True(t, w.answers(st, "web"))
		require.Equal(t, map[string]string{"kept": "data of web"}, w.engine.Volume(key.Data()))
	})
}

func TestExpiry_EndsTheStackAfterItsRetention(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		time.Sleep(limits.TTL + limits.Retention + time.Minute)
		synctest.Wait()
		_, err := w.db.Get(w.t.Context(), st.ID)
		require.Equal(t, stack.NotFound, stack.KindOf(err))
		there, err := w.driver.Inventory(w.t.Context(), st.ID)
		require.NoError(t, err)
		require.Empty(t, there)
		require.False(t, w.dir.Has(st.ID))
	})
}

// A claim or an extension that comes in the same second as the expiry is not lost.
func TestExpiry_AgainstClaimAndExtend(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(w *world, st *stack.Stack) error{
		"claim": func(w *world, st *stack.Stack) error { return w.claim(st.ID) },
		"extend": func(w *world, st *stack.Stack) error {
			_, err := w.db.Update(w.t.Context(), st.ID, func(st *stack.Stack) ([]stack.Event, error) {
				return st.Extend(time.Hour, limits, stack.Now())
			})
			return err
		},
	} {
		for _, method := range []string{"Containers", "Stop"} { // what the expiry asks of the engine
			inWorld(t, func(w *world) {
				st := w.live(service("web"))
				time.Sleep(limits.TTL - time.Second)
				var err error
				var asked atomic.Bool
				w.engine.Before(method, func(string) error {
					if time.Since(st.CreatedAt) >= limits.TTL && asked.CompareAndSwap(false, true) {
						err = meanwhile(w, st)
					}
					return nil
				})
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if !asked.Load() {
					t.Errorf("%s during %s: it was never asked for", name, method)
				}
				now := w.get(st.ID)
				if err == nil {
					require.Equal(t, stack.Live, now.Status, "%s during %s", name, method)
					require.True(t, w.answers(now, "web"), "%s during %s", name, method)
				} else {
					require.Equal(t, stack.Expired, now.Status, "%s during %s: %v", name, method, err)
				}
			})
		}
	}
}

func TestRestart_ReplacesTheProcessBesideTheOldOne(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		require.NoError(t, w.claim(st.ID))
		_, err := w.sup.Restart(w.t.Context(), st.ID, "web")
		require.NoError(t, err)
		w.awaitEvent(st.ID, "service.restarted", 1)
		w.runs(st, "web-g1-r1")
	})
}

func TestRestart_OfARecreateServiceIsInPlace(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(recreate("web"))
		require.NoError(t, w.claim(st.ID))
		_, err := w.sup.Restart(w.t.Context(), st.ID, "web")
		require.NoError(t, err)
		w.awaitEvent(st.ID, "service.restarted", 1)
		w.runs(st, "web-g1")
	})
}
