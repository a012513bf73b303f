package supervisor

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/stack"
)

// walks are the ways of a stack that ask the engine for something. Each makes a stack
// ready for it, then calls begin and goes the way. In the end the stack has one of the
// outcomes; see consistent.
var walks = []struct {
	way    string
	ends   []string
	walk   func(w *world, begin func()) *stack.Stack
	builds bool // it may fail for the engine, with that reason
}{
	{"create", []string{"L1", "F1"}, func(w *world, begin func()) *stack.Stack {
		begin()
		return w.createFor(time.Hour, everything("web"))
	}, true},
	{"redeploy", []string{"L1", "L2"}, func(w *world, begin func()) *stack.Stack {
		st := w.long(service("web"))
		begin()
		w.deploy(st.ID, everything("web"))
		return st
	}, true},
	{"recreate", []string{"L1", "L2"}, func(w *world, begin func()) *stack.Stack {
		st := w.long(recreate("web"))
		begin()
		w.deploy(st.ID, recreate("web"))
		return st
	}, true},
	{"rollback", []string{"L1"}, func(w *world, begin func()) *stack.Stack {
		st := w.long(recreate("web"))
		w.program(st.ID, 2, exits(1))
		begin()
		w.deploy(st.ID, recreate("web"))
		return st
	}, false},
	{"restart", []string{"L1"}, func(w *world, begin func()) *stack.Stack {
		st := w.long(service("web"))
		begin()
		w.restart(st)
		return st
	}, false},
	{"restart in place", []string{"L1"}, func(w *world, begin func()) *stack.Stack {
		st := w.long(recreate("web"))
		begin()
		w.restart(st)
		return st
	}, false},
	{"crash", []string{"L1"}, func(w *world, begin func()) *stack.Stack {
		st := w.long(service("web"))
		begin()
		w.crash(st, "web-g1", 1)
		return st
	}, false},
	{"expiry", []string{"E1"}, func(w *world, begin func()) *stack.Stack {
		st := w.becomes(w.createFor(time.Hour, service("web")).ID, stack.Live)
		begin()
		require.NoError(w.t, w.extend(st, time.Second))
		return st
	}, false},
	{"restore", []string{"L1"}, func(w *world, begin func()) *stack.Stack {
		st := w.expired(service("web"))
		synctest.Wait()
		begin()
		require.NoError(w.t, w.claim(st.ID))
		return st
	}, false},
	{"delete", []string{"-"}, func(w *world, begin func()) *stack.Stack {
		st := w.long(service("web"))
		begin()
		require.NoError(w.t, w.sup.Delete(w.t.Context(), st.ID))
		return st
	}, false},
	{"start", []string{"L1"}, func(w *world, begin func()) *stack.Stack {
		st := w.long(service("web"))
		w.stopServer()
		w.crash(st, "web-g1", 1)
		begin()
		w.startServer()
		return st
	}, false},
}

// everything is a service with a build and a release command.
func everything(name string) stack.Spec {
	spec := service(name)
	spec.Build, spec.Release = "make", "make"
	return spec
}

// atStep has do called at the n-th call that the supervisor makes for a stack from now
// on, with what hooks a method: Engine.Before or Engine.After. What do returns is the
// answer of that call. It returns how many calls there were.
func atStep(n int64, hook func(string, func(string) error), do func(method string) error) *atomic.Int64 {
	made := new(atomic.Int64)
	methods := reflect.TypeFor[engine.Driver]()
	for i := range methods.NumMethod() {
		method := methods.Method(i).Name
		hook(method, func(object string) error {
			if method == "Accepts" || method == "ImagesSize" || method == "LayerSize" || object == "" { // it looks after all stacks
				return nil
			}
			if made.Add(1) == n {
				return do(method)
			}
			return nil
		})
	}
	return made
}

// goWays goes each way once for every call that it makes, which is another one each
// time, and requires that the stack ends well, with its data. Look says what else is to be.
func goWays(t *testing.T, at func(w *world, step int64) *atomic.Int64, look func(w *world, now *stack.Stack, builds bool, when string)) {
	t.Helper()
	for _, way := range walks {
		t.Run(way.way, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.program("", 1, keeping)
				for step := int64(1); ; step++ {
					var made *atomic.Int64
					st := way.walk(w, func() { made = at(w, step) })
					w.settle()
					if way.ends[0] == "-" {
						time.Sleep(2 * leftoverGrace) // what the engine still had goes with the leftovers
						synctest.Wait()
					}
					if made.Load() < step {
						require.Greater(t, step, int64(3), "%s makes no calls", way.way)
						return
					}
					when := fmt.Sprintf("%s, step %d", way.way, step)
					got := w.consistent(st, when)
					assert.Contains(t, way.ends, got, when)
					if way.way != "crash" {
						assert.NotContains(t, w.events(st.ID), "service.crashed", when)
					}
					if got == "-" {
						continue
					}
					if strings.HasPrefix(got, "L") {
						kept := w.engine.Volume(engine.Key{Stack: st.ID, Service: "web"}.Data())["kept"]
						assert.Equal(t, st.ID, kept, when)
					}
					look(w, w.get(st.ID), way.builds, when)
					require.NoError(t, w.sup.Delete(w.t.Context(), st.ID))
				}
			}, func(c *Config) { c.Limits.Retention, c.CheckEvery = time.Hour, seldom })
		})
	}
}

// keeping is a program that keeps data.
func keeping(p *enginetest.Process) int {
	if p.Read(stack.DataDir, "kept") == "" {
		p.Write(stack.DataDir, "kept", variable(p, "STACK_ID"))
	}
	return listen(p)
}

// An engine that goes away fails a deploy, for that reason, and nothing else: what is
// live comes back, and what ends does.
func TestEngineAway_AtEachStep(t *testing.T) {
	t.Parallel()
	goWays(t, func(w *world, step int64) *atomic.Int64 {
		return atStep(step, w.engine.Before, func(string) error {
			w.engine.Leave()
			time.AfterFunc(3*time.Second, w.engine.Return)
			return engine.ErrUnreachable
		})
	}, func(w *world, now *stack.Stack, builds bool, when string) {
		if reason := now.Error + now.DeployError; builds && reason != "" {
			assert.Contains(w.t, reason, "the Docker engine of this host was restarted while generation", when)
		}
	})
}

// An answer that is lost changes nothing, but for that of a build command, which nobody
// runs twice.
func TestEngineReply_IsLostAtEachStep(t *testing.T) {
	t.Parallel()
	goWays(t, func(w *world, step int64) *atomic.Int64 {
		return atStep(step, w.engine.After, func(method string) error {
			if method == "Exec" {
				return nil
			}
			return engine.ErrUnreachable
		})
	}, func(w *world, now *stack.Stack, builds bool, when string) {
		if builds {
			assert.Empty(w.t, now.Error+now.DeployError, when)
		}
	})
}

// What ends with the engine is restored, and no crash.
func TestEngineAway_BringsLiveStacksBackAsARestore(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("api"), service("web"))
		w.away(10 * time.Second)
		w.awaitEvent(st.ID, "stack.restored", 1)
		w.runs(st, "api-g1", "web-g1")
		require.True(t, w.answers(st, "web"))
		require.NotContains(t, w.events(st.ID), "service.crashed")
		require.Equal(t, 1, strings.Count(strings.Join(w.events(st.ID), " "), "stack.restored"))
	})
}

// What stops an attempt to bring a stack back may end without effect: an expiry that a
// claim came before.
func TestEngineAway_IsNoticedAgainAfterAStoppedAttempt(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.long(service("web"))
		r := w.sup.lookup(st.ID)
		r.tell(func(l *loop) {
			l.queue(func(ctx context.Context) { <-ctx.Done() })
			l.recoverLost(r.serving())
			l.interrupt(errTimeRanOut, func(ctx context.Context) { _ = r.expire(ctx) })
		})
		synctest.Wait()
		w.away(3 * time.Second)
		w.settle()
		require.Equal(t, "L1", w.consistent(st, "after it was away"))
	})
}

// An engine may stay away for a while during a restart, and have its processes go on, or
// not even have been away. The restart goes on, or the stack is brought back.
func TestEngineAway_DuringARestartWhileProcessesGoOn(t *testing.T) {
	t.Parallel()
	for how, leave := range map[string]func(*enginetest.Engine){"gone": (*enginetest.Engine).Disconnect, "hangs": (*enginetest.Engine).Hang} {
		for what, restart := range map[string]func(w *world, st *stack.Stack){
			"crash":  func(w *world, st *stack.Stack) { w.crash(st, "web-g1", 1) },
			"remake": func(w *world, st *stack.Stack) { w.removed(st, "web-g1") },
			"asked":  (*world).restart,
		} {
			for _, method := range []string{"Run", "Restart", "Promote", "Stop"} {
				for _, hook := range []func(*enginetest.Engine, string, func(string) error){(*enginetest.Engine).Before, (*enginetest.Engine).After} {
					when := fmt.Sprintf("%s during %s of %s", how, method, what)
					inWorld(t, func(w *world) {
						st := w.long(recreate("web"))
						once := sync.OnceFunc(func() {
							leave(w.engine)
							time.AfterFunc(40*time.Second, w.engine.Return)
						})
						hook(w.engine, method, func(string) error {
							once()
							return nil
						})
						restart(w, st)
						time.Sleep(3 * time.Minute)
						require.Equal(w.t, "L1", w.consistent(st, when))
					})
				}
			}
		}
	}
}

// removed ends the process of a container and takes the container away.
func (w *world) removed(st *stack.Stack, name string) {
	w.t.Helper()
	w.crash(st, name, 1)
	require.NoError(w.t, w.driver.Remove(w.t.Context(), "berth-"+st.Hex()+"-"+name))
}
