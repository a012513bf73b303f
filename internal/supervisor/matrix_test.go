package supervisor

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/stack"
)

// underWay are the jobs during which something else happens to a stack. Each returns a
// stack with the job under way, which does not end before the release.
var underWay = map[string]func(w *world, release <-chan struct{}) *stack.Stack{
	"nothing": func(w *world, _ <-chan struct{}) *stack.Stack { return w.live(service("web")) },
	"a first deploy": func(w *world, release <-chan struct{}) *stack.Stack {
		w.program("", 1, slow(release))
		defer w.program("", 1, nil)
		st := w.create(service("web"))
		w.runs(st, "web-g1")
		return st
	},
	"a redeploy": func(w *world, release <-chan struct{}) *stack.Stack { return w.redeploying(service("web"), release) },
	"a recreate deploy": func(w *world, release <-chan struct{}) *stack.Stack {
		return w.redeploying(recreate("web"), release)
	},
	"a restore": func(w *world, release <-chan struct{}) *stack.Stack {
		st := w.createFor(5*time.Second, service("web"))
		w.awaitEvent(st.ID, "stack.expired", 1)
		w.program(st.ID, 1, slow(release))
		require.NoError(w.t, w.claim(st.ID))
		w.runs(st, "web-g1")
		return st
	},
	"a crash": func(w *world, release <-chan struct{}) *stack.Stack {
		st := w.live(service("web"))
		w.program(st.ID, 1, slow(release))
		w.crash(st, "web-g1", 1)
		w.awaitEvent(st.ID, "service.crashed", 1)
		time.Sleep(2 * time.Second)
		return st
	},
	"a backoff": func(w *world, _ <-chan struct{}) *stack.Stack {
		st := w.live(service("web"))
		w.crash(st, "web-g1", 1)
		w.awaitEvent(st.ID, "service.crashed", 1)
		return st
	},
	"a crash loop": func(w *world, _ <-chan struct{}) *stack.Stack {
		st := w.live(service("web"))
		w.program(st.ID, 1, exits(1))
		w.crash(st, "web-g1", 1)
		w.awaitEvent(st.ID, "service.crashed", 5)
		return st
	},
	"a restart": func(w *world, release <-chan struct{}) *stack.Stack {
		return w.restarting(service("web"), release)
	},
	"a restart in place": func(w *world, release <-chan struct{}) *stack.Stack {
		return w.restarting(recreate("web"), release)
	},
}

// redeploying is a stack whose second generation is on its way.
func (w *world) redeploying(spec stack.Spec, release <-chan struct{}) *stack.Stack {
	w.t.Helper()
	st := w.live(spec)
	w.program(st.ID, 2, slow(release))
	w.deploy(st.ID, spec)
	if spec.Strategy == stack.Recreate {
		w.runs(st, "web-g2")
	} else {
		w.runs(st, "web-g1", "web-g2")
	}
	return st
}

// restarting is a claimed stack of which a restart is on its way.
func (w *world) restarting(spec stack.Spec, release <-chan struct{}) *stack.Stack {
	w.t.Helper()
	st := w.live(spec)
	require.NoError(w.t, w.claim(st.ID))
	w.program(st.ID, 1, slow(release))
	_, err := w.sup.Restart(w.t.Context(), st.ID, "web")
	require.NoError(w.t, err)
	time.Sleep(4 * time.Second)
	return st
}

// slow is a program that listens once it is released.
func slow(release <-chan struct{}) enginetest.Program {
	return func(p *enginetest.Process) int {
		select {
		case <-release:
			return listen(p)
		case <-p.Terminated:
		case <-p.Killed:
		}
		return 0
	}
}

// happens are what may happen to a stack meanwhile.
var happens = map[string]func(w *world, st *stack.Stack) error{
	"a deploy": func(w *world, st *stack.Stack) error {
		_, err := w.sup.Deploy(w.t.Context(), st.ID, &stack.Manifest{Services: []stack.Spec{service("web")}}, "", w.upload(), nil)
		return err
	},
	"a claim": func(w *world, st *stack.Stack) error { return w.claim(st.ID) },
	"an extension": func(w *world, st *stack.Stack) error {
		_, err := w.db.Update(w.t.Context(), st.ID, func(st *stack.Stack) ([]stack.Event, error) {
			return st.Extend(30*time.Minute, limits, stack.Now())
		})
		return err
	},
	"a revocation": func(w *world, st *stack.Stack) error {
		_, err := w.db.Update(w.t.Context(), st.ID, (*stack.Stack).RevokeAgent)
		return err
	},
	"a restart": func(w *world, st *stack.Stack) error {
		_, err := w.sup.Restart(w.t.Context(), st.ID, "web")
		return err
	},
	"a crash": func(w *world, st *stack.Stack) error {
		for _, generation := range []int{1, 2} {
			w.crash(st, fmt.Sprintf("web-g%d", generation), 1)
		}
		return nil
	},
	"a delete": func(w *world, st *stack.Stack) error { return w.sup.Delete(w.t.Context(), st.ID) },
	"time": func(w *world, _ *stack.Stack) error {
		time.Sleep(limits.TTL + time.Minute)
		return nil
	},
}

// Whatever happens to a stack while something is being done with it, in the end it serves
// what its row says, or nothing, and nothing else is left.
func TestStack_IsWhatItsRowSaysWhateverHappensMeanwhile(t *testing.T) {
	t.Parallel()
	for what, happen := range happens {
		inWorld(t, func(w *world) {
			release := make(chan struct{})
			stacks := map[string]*stack.Stack{}
			for job, begin := range underWay {
				stacks[job] = begin(w, release)
			}
			for job, st := range stacks {
				go func() {
					var own *stack.Error
					if err := happen(w, st); err != nil && !errors.As(err, &own) {
						w.t.Errorf("%s during %s: %v", what, job, err)
					}
				}()
			}
			time.Sleep(time.Second)
			close(release)
			time.Sleep(limits.TTL)
			w.settle()
			for job, st := range stacks {
				w.consistent(st.ID, what+" during "+job)
			}
		})
	}
}

// The engine goes away and comes back, or the server does.
func TestStack_IsWhatItsRowSaysWhateverGoesAwayMeanwhile(t *testing.T) {
	t.Parallel()
	for what, happen := range map[string]func(w *world){
		"the engine goes away": func(w *world) { w.away(5 * time.Second) },
		"the server is stopped": func(w *world) {
			w.stopServer()
			w.startServer()
		},
		"the server is stopped and the engine goes away": func(w *world) {
			w.stopServer()
			w.engine.Leave()
			w.engine.Return()
			w.startServer()
		},
	} {
		inWorld(t, func(w *world) {
			release := make(chan struct{})
			stacks := map[string]*stack.Stack{}
			for job, begin := range underWay {
				stacks[job] = begin(w, release)
			}
			happen(w)
			time.Sleep(time.Second)
			close(release)
			w.settle()
			for job, st := range stacks {
				w.consistent(st.ID, what+" during "+job)
			}
		})
	}
}

// consistent requires that what there is of a stack is what its row says.
func (w *world) consistent(id, when string) {
	w.t.Helper()
	synctest.Wait()
	there, err := w.driver.Inventory(w.t.Context(), id)
	require.NoError(w.t, err)
	st, err := w.db.Get(w.t.Context(), id)
	if stack.KindOf(err) == stack.NotFound {
		assert.Empty(w.t, there, "%s: it is deleted", when)
		assert.False(w.t, w.dir.Has(id), "%s: it is deleted", when)
		return
	}
	require.NoError(w.t, err)
	var running []string
	for _, c := range there[id].Containers {
		assert.True(w.t, c.Running, "%s: %s is left", when, c.Name)
		running = append(running, c.Name)
	}
	assert.Zero(w.t, st.Deploying, "%s: the stack is %s", when, st.Status)
	var want []string
	switch st.Status {
	case stack.Live:
		for i := range st.Services {
			key := engine.Key{Stack: id, Service: st.Services[i].Spec.Name, Generation: st.Generation}
			want = append(want, key.Process(st.Services[i].Replaced))
			assert.True(w.t, w.reaches(st, st.Services[i].Spec.Name), "%s: nothing answers", when)
		}
	case stack.Failed:
	case stack.Expired:
		assert.Empty(w.t, there[id].Volumes, when)
	default:
		assert.Fail(w.t, "at rest", "%s: the stack is %s; events: %v", when, st.Status, w.events(id))
	}
	slices.Sort(want)
	assert.Equal(w.t, want, running, "%s: the stack is %s: %s", when, st.Status, st.Error)
	for _, image := range there[id].Images {
		for _, tag := range image.Tags {
			if number, ok := engine.GenerationOf(tag); ok {
				assert.Equal(w.t, st.Generation, number, "%s: image %s is left", when, tag)
			}
		}
	}
}

// reaches reports whether the routes lead to the process of a service, and it listens.
func (w *world) reaches(st *stack.Stack, service string) bool {
	g := w.sup.lookup(st.ID).serving()
	if g == nil || g.target(service) == nil {
		return false
	}
	return w.engine.Connects(g.process(service).addr())
}
