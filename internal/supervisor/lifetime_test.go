package supervisor

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/stack"
)

// An expiry that could not stop everything has stopped something: all of it comes back
// if the stack is claimed before the next attempt.
func TestExpiry_WithoutAnEngineAgainstAClaim(t *testing.T) {
	t.Parallel()
	for _, builds := range []bool{false, true} {
		inWorld(t, func(w *world) {
			st := w.live(service("web"))
			time.Sleep(limits.TTL - 2*time.Second)
			if builds {
				w.program(st.ID, 2, silent)
				w.deploy(st.ID, service("web"))
				time.Sleep(time.Second)
			}
			w.engine.Leave()
			time.Sleep(time.Minute)
			require.NoError(t, w.claim(st.ID))
			time.Sleep(time.Minute)
			w.engine.Return()
			w.settle()
			require.Equal(t, "L1", w.consistent(st, "claimed"), "a deploy: %t", builds)
		})
	}
}

// A deploy that the expiry stopped runs nothing beside what the claim brings back.
func TestExpiry_ThatCannotStopADeployAgainstAClaim(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(recreate("web"))
		time.Sleep(limits.TTL - 2*time.Second)
		var building, beside atomic.Int32
		var stuck atomic.Bool
		w.engine.Before("Stop", func(string) error {
			if stuck.Load() {
				return errors.New("the process did not end")
			}
			return nil
		})
		w.program(st.ID, 2, func(p *enginetest.Process) int {
			building.Add(1)
			defer building.Add(-1)
			return silent(p)
		})
		w.deploy(st.ID, recreate("web"))
		time.Sleep(time.Second)
		w.program(st.ID, 1, func(p *enginetest.Process) int {
			beside.Add(building.Load())
			return listen(p)
		})
		stuck.Store(true)
		time.Sleep(5 * time.Second)
		w.db.breaks(func(id string, events []stack.Event) error {
			if at(stack.EventClaimed)(id, events) != nil {
				stuck.Store(false)
			}
			return nil
		})
		require.NoError(t, w.claim(st.ID))
		w.settle()
		require.Zero(t, beside.Load())
		require.Equal(t, "L1", w.consistent(st, "claimed"))
	})
}

// A stack may be claimed as soon as its row says that it has expired.
func TestExpiry_LeadsNobodyAwayFromWhatAClaimBringsBack(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		w.program(st.ID, 1, silent)
		w.db.after(func(id string, events []stack.Event) {
			if at(stack.EventExpired)(id, events) != nil {
				go func() { require.NoError(t, w.claim(st.ID)) }()
				time.Sleep(time.Millisecond)
			}
		})
		w.await(st.ID, "restored", func(st *stack.Stack) bool { return st.Restoring() })
		time.Sleep(time.Second)
		require.Equal(t, http.StatusServiceUnavailable, w.ask(st, "web"))
	})
}

// An expiry that cannot end one of the processes holds up neither what the owner does
// with a stack that is claimed meanwhile, nor what comes back.
func TestExpiry_ThatCannotStopAProcessAgainstAClaim(t *testing.T) {
	t.Parallel()
	for _, redeployed := range []bool{false, true} {
		inWorld(t, func(w *world) {
			st := w.live(service("web"))
			stuck := w.served(st).process("web").id
			w.engine.Before("Stop", func(id string) error {
				if id == stuck {
					return errors.New("the process did not end")
				}
				return nil
			})
			time.Sleep(limits.TTL + time.Second)
			require.NoError(t, w.claim(st.ID))
			if redeployed {
				w.becomes(st.ID, stack.Live)
				w.deploy(st.ID, service("web"))
				w.awaitEvent(st.ID, "stack.live", 2)
			}
			w.settle()
			require.Equal(t, stack.Live, w.get(st.ID).Status, "redeployed: %t", redeployed)
			require.Zero(t, w.get(st.ID).Deploying, "redeployed: %t", redeployed)
			require.True(t, w.answers(st, "web"), "redeployed: %t", redeployed)
		})
	}
}

// A stack that is claimed while its processes stop is building until it serves again.
func TestExpiry_AgainstAClaimWhileAProcessTakesItsTime(t *testing.T) {
	t.Parallel()
	for _, redeploys := range []bool{false, true} {
		inWorld(t, func(w *world) {
			spec := service("web")
			spec.StopTimeout = time.Minute
			st := w.createRunning(limits.TTL, func(p *enginetest.Process) int {
				p.Write(stack.DataDir, "kept", "data of web")
				return w.stubborn(p)
			}, spec)
			st = w.becomes(st.ID, stack.Live)
			time.Sleep(time.Until(st.ExpiresAt.Add(-time.Second)))
			if redeploys {
				w.program(st.ID, 2, silent)
				w.deploy(st.ID, spec)
			}
			time.Sleep(2 * time.Second)
			require.Equal(t, stack.Live, w.get(st.ID).Status)
			w.program(st.ID, 1, nil)
			require.NoError(t, w.claim(st.ID))
			require.True(t, w.get(st.ID).Restoring())
			require.Equal(t, http.StatusServiceUnavailable, w.ask(st, "web"))
			w.release()
			w.becomes(st.ID, stack.Live)
			w.settle()
			require.Equal(t, "L1", w.consistent(st, "claimed"), "a deploy: %t", redeploys)
			require.Equal(t, map[string]string{"kept": "data of web"}, w.engine.Volume(engine.Key{Stack: st.ID, Service: "web"}.Data()))
			events := w.events(st.ID)
			require.Equal(t, []string{"stack.claimed", "service.ready", "stack.restored"}, events[len(events)-3:])
			require.NotContains(t, events, "stack.expired")
		})
	}
}

// A deploy that the expiry ended before it began is not the next one, which gets the same
// number.
func TestExpiry_EndsADeployThatWaitsForIt(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		spec := service("web")
		spec.StopTimeout = 10 * time.Minute
		stopped, kept, restored := make(chan struct{}), make(chan struct{}), make(chan struct{})
		st := w.createRunning(5*time.Second, func(p *enginetest.Process) int {
			listen(p)
			<-stopped
			return 0
		}, spec)
		await := func(done chan struct{}) func(string) error {
			return func(object string) error {
				if object != "" {
					<-done
				}
				return nil
			}
		}
		w.engine.Before("Snapshot", await(kept))
		w.db.after(func(id string, events []stack.Event) {
			if at(stack.EventRedeploying)(id, events) != nil {
				time.Sleep(2 * time.Second) // the expiry begins before the deploy is queued
				w.db.after(nil)
			}
		})
		time.Sleep(4 * time.Second)
		w.deploy(st.ID, service("web"))
		close(stopped)
		w.awaitEvent(st.ID, "stack.expired", 1)
		synctest.Wait()
		require.NoError(t, w.claim(st.ID))
		w.program(st.ID, 1, nil)
		w.engine.After("Restore", func(string) error {
			w.engine.Before("Discard", await(restored))
			return nil
		})
		close(kept)
		w.becomes(st.ID, stack.Live)
		w.deploy(st.ID, pages("web"))
		close(restored)
		w.settle()
		now := w.serves(st.ID, 2)
		require.True(t, now.Generation.Services[0].Spec.IsStatic(), "it is what was uploaded last")
		require.Empty(t, w.dir.Sources(st.ID, w.get(st.ID).Generation.Source.Folder))
	})
}
