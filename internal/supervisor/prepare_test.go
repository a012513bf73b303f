package supervisor

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/stack"
)

// edited is a stack that serves a second generation, which a command has built, with what
// is ready for the next one by now.
func (w *world) edited() *stack.Stack {
	w.t.Helper()
	st := w.long(compiled("web"))
	w.deployOf(st.ID, dependencies("1", "one"), compiled("web"))
	st = w.serves(st.ID, 2)
	time.Sleep(5 * time.Second)
	synctest.Wait()
	return st
}

// readyFor returns the id of the container that is ready for the build of the service web;
// "" if there is none. It requires that its networks are there, or gone, with it.
func (w *world) readyFor(st *stack.Stack) (id string) {
	w.t.Helper()
	synctest.Wait()
	there := w.there(st)
	for _, c := range there.Containers {
		if c.Name == (engine.Key{Stack: st.ID, Service: "web"}).Build() && c.Running {
			id = c.ID
		}
	}
	next := engine.Key{Stack: st.ID, Generation: w.get(st.ID).Generation.Number + 1}
	require.Equal(w.t, id != "", there.HasNetwork(next.Network()))
	require.Equal(w.t, id != "", there.HasNetwork(next.Builds().Network()))
	return id
}

// builtIn makes build commands note the container that is there for them.
func (w *world) builtIn(st *stack.Stack) (container func() string) {
	var last noted[string]
	w.command(func(p *enginetest.Process) int {
		last.set(p.Read("/app", "server.js") + " in " + w.builds(st))
		return 0
	})
	return last.get
}

func (w *world) builds(st *stack.Stack) string {
	c, err := w.driver.Look(w.t.Context(), engine.Key{Stack: st.ID, Service: "web"}.Build())
	if err != nil {
		return err.Error()
	}
	return c.ID
}

func TestPrepare_HasAContainerReadyForTheBuildThatFollows(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.edited()
		for generation := 3; generation <= 4; generation++ {
			id := w.readyFor(st)
			require.NotEmpty(t, id)
			built := w.builtIn(st)
			w.deployOf(st.ID, dependencies("1", "two"), compiled("web"))
			w.serves(st.ID, generation)
			if generation == 3 {
				require.Equal(t, "two in "+id, built())
			}
			w.settle()
			require.NotEqual(t, id, w.readyFor(st), "it was used")
		}
	})
}

func TestPrepare_LeavesNothing(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(w *world, st *stack.Stack){
		"after a while": func(*world, *stack.Stack) { time.Sleep(readyWait) },
		"when the token is revoked": func(w *world, st *stack.Stack) {
			require.NoError(w.t, w.claim(st.ID))
			require.NoError(w.t, w.change(st, (*stack.Stack).RevokeAgent))
		},
		"when the server stops":      func(w *world, _ *stack.Stack) { w.stopServer() },
		"when the stack expires":     func(w *world, st *stack.Stack) { w.becomes(st.ID, stack.Expired) },
		"when room is made":          func(w *world, _ *stack.Stack) { w.sup.Reclaim(func() bool { return false }) },
		"after a deploy without it":  func(w *world, st *stack.Stack) { w.deploy(st.ID, service("web")); w.serves(st.ID, 3) },
		"after a deploy that failed": func(w *world, st *stack.Stack) { w.failsNext(st) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				st := w.edited()
				require.NotEmpty(t, w.readyFor(st))
				act(w, st)
				synctest.Wait()
				require.Empty(t, w.readyFor(st))
			})
		})
	}
}

// failsNext makes a deploy whose build fails.
func (w *world) failsNext(st *stack.Stack) {
	w.command(func(*enginetest.Process) int { return 1 })
	w.deployOf(st.ID, dependencies("1", "two"), compiled("web"))
	w.awaitEvent(st.ID, "stack.deploy_failed", 1)
}

func TestPrepare_IsForStacksThatAreEdited(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.long(compiled("web"))
		w.settle()
		require.Empty(t, w.readyFor(st), "a first deploy is often the last")
		w.deploy(st.ID, service("web"))
		st = w.serves(st.ID, 2)
		time.Sleep(5 * time.Second)
		require.Empty(t, w.readyFor(st), "nothing is built by a command")
	})
}

func TestPrepare_OfAtMostSoManyStacks(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		var first *stack.Stack
		for range maxReady {
			st := w.edited()
			require.NotEmpty(t, w.readyFor(st))
			if first == nil {
				first = st
			}
		}
		require.Empty(t, w.readyFor(w.edited()))
		require.NoError(t, w.sup.Delete(w.t.Context(), first.ID))
		synctest.Wait()
		require.NotEmpty(t, w.readyFor(w.edited()))
	})
}

// The command that waits in the container for the source may not be that of the build.
func TestPrepare_IsForABuildWithAnotherCommand(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.edited()
		id := w.readyFor(st)
		built := w.builtIn(st)
		web := compiled("web")
		web.Build = "./once"
		w.deployOf(st.ID, dependencies("1", "two"), web)
		w.serves(st.ID, 3)
		require.Equal(t, "two in "+id, built())
	})
}

// A build does not use a container that is not as it would make its own.
func TestPrepare_IsNotForAnotherBuild(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(w *world, st *stack.Stack){
		"other dependencies": func(w *world, st *stack.Stack) {
			w.deployOf(st.ID, dependencies("2", "two"), compiled("web"))
		},
		"a fresh build": func(w *world, st *stack.Stack) {
			w.fresh(st.ID, dependencies("1", "two"), compiled("web"))
		},
		"it has ended": func(w *world, st *stack.Stack) {
			require.NoError(w.t, w.driver.Stop(w.t.Context(), w.readyFor(st)))
			w.deployOf(st.ID, dependencies("1", "two"), compiled("web"))
		},
		"it is gone": func(w *world, st *stack.Stack) {
			require.NoError(w.t, w.driver.Remove(w.t.Context(), w.readyFor(st)))
			w.deployOf(st.ID, dependencies("1", "two"), compiled("web"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				st := w.edited()
				id := w.readyFor(st)
				require.NotEmpty(t, id)
				built := w.builtIn(st)
				act(w, st)
				w.serves(st.ID, 3)
				require.Contains(t, built(), "two in container")
				require.NotEqual(t, "two in "+id, built())
			})
		})
	}
}

func TestPrepare_GivesItsNetworksBackWhenNoneIsFree(t *testing.T) {
	t.Parallel()
	inWorldOf(t, enginetest.Options{Subnets: 4}, func(w *world) {
		st := w.edited()
		w.long(service("web"))
		require.NotEmpty(t, w.readyFor(st))
		w.long(service("web"))
		require.Empty(t, w.readyFor(st))
	})
}
