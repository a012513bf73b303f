package supervisor

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// inNodes runs a test in two worlds with one database: nodes with an engine and a data
// directory each, whose servers have started.
func inNodes(t *testing.T, test func(a, b *world), configure ...func(*Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a, b := newWorld(t, enginetest.Options{}), newWorld(t, enginetest.Options{})
		b.db = a.db
		for node, w := range map[string]*world{"a": a, "b": b} {
			defer w.close()
			w.configure = func(c *Config) {
				c.Node = node
				for _, f := range configure {
					f(c)
				}
			}
			w.startServer()
		}
		test(a, b)
	})
}

// goesTo makes another node the owner of a stack, as if its own had been away.
func (w *world) goesTo(st *stack.Stack, node string) {
	w.t.Helper()
	require.NoError(w.t, w.change(st, func(st *stack.Stack) ([]stack.Event, error) {
		st.Node, st.Epoch = node, st.Epoch+1
		return nil, nil
	}))
}

func TestNodes_EachHasItsOwnStacks(t *testing.T) {
	t.Parallel()
	inNodes(t, func(a, b *world) {
		ofA, ofB := a.live(service("web")), b.live(service("web"))
		require.Equal(t, "a", a.get(ofA.ID).Node)
		require.EqualValues(t, 1, a.get(ofA.ID).Epoch)
		for range 2 {
			a.settle()
			require.Equal(t, "L1", a.consistent(ofA, "on its node"))
			require.Equal(t, "L1", b.consistent(ofB, "on its node"))
			require.Equal(t, 404, b.ask(ofA, "web"))
			require.Empty(t, b.there(ofA).Names())
			a.reboot()
			b.reboot()
		}
		require.Equal(t, 2, count(a.events(ofA.ID), "stack.restored"), "once for each server of its node")
	}, long)
}

// long lets stacks live as long as a test.
func long(c *Config) {
	c.Limits.TTL, c.Limits.TTLMax, c.Limits.Retention = 24*time.Hour, 24*time.Hour, 24*time.Hour
}

// Whatever is being done with a stack, its node lets it go once another one owns it, and
// no longer changes its row.
func TestNodes_AStackIsLetGoOnceAnotherNodeOwnsIt(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(w *world) *stack.Stack{
		"live":   func(w *world) *stack.Stack { return w.live(service("web")) },
		"deploy": func(w *world) *stack.Stack { return w.redeploying(service("web")) },
		"halted": func(w *world) *stack.Stack { return w.redeploying(recreate("web")) },
		"build": func(w *world) *stack.Stack {
			spec := service("web")
			spec.Build = "make"
			return w.commanding(spec)
		},
		"crash": func(w *world) *stack.Stack {
			st := w.live(service("web"))
			w.program(st.ID, 1, w.slow)
			w.crash(st, "web-g1", 1)
			w.awaitEvent(st.ID, "service.crashed", 1)
			w.runs(st, "web-g1")
			return st
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inNodes(t, func(a, _ *world) {
				st := begin(a)
				synctest.Wait()
				a.goesTo(st, "c")
				row, events := a.get(st.ID), a.events(st.ID)
				a.release()
				a.settle()
				require.Equal(t, row, a.get(st.ID))
				require.Equal(t, events, a.events(st.ID))
				require.Nil(t, a.sup.lookup(st.ID))
				require.Equal(t, 404, a.ask(st, "web"))
				a.runs(st)
			}, long)
		})
	}
}

// A create that took effect although nobody was told leaves a row that no runner knows.
func TestCreate_ThatIsNotKnownToHaveTakenEffectIsTakenUp(t *testing.T) {
	t.Parallel()
	for _, node := range []string{"", "a"} {
		inWorld(t, func(w *world) {
			w.db.answers(store.ErrInDoubt)
			st := stack.New("shop", []stack.Spec{service("web")}, stack.Now())
			st.ExpiresAt = stack.Now().Add(limits.TTLMax)
			require.ErrorContains(w.t, w.sup.Create(w.t.Context(), st, w.upload(), nil), "not known")
			w.db.answers(nil)
			require.Equal(w.t, stack.Building, w.get(st.ID).Status)
			require.Contains(w.t, w.becomes(st.ID, stack.Failed).Error, "upload the source again")
			w.deploy(st.ID, service("web"))
			require.Equal(w.t, "L2", w.consistent(w.becomes(st.ID, stack.Live), "in the end"))
		}, func(c *Config) { c.Node = node })
	}
}

// The same holds for a deploy of a stack and for its claim.
func TestChange_ThatIsNotKnownToHaveTakenEffectIsSettled(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		ask := func(do func() error) {
			w.t.Helper()
			synctest.Wait()
			w.db.answers(store.ErrInDoubt)
			require.ErrorIs(w.t, do(), store.ErrInDoubt)
			w.db.answers(nil)
		}
		deploy := func() error {
			_, err := w.sup.Deploy(w.t.Context(), st.ID, source.Upload{Manifest: &stack.Manifest{Services: []stack.Spec{service("web")}}, Source: w.upload()}, nil)
			return err
		}
		ask(deploy)
		w.await(st.ID, "the deploy to fail", func(st *stack.Stack) bool { return st.DeployError != "" })
		require.Contains(w.t, w.get(st.ID).DeployError, "upload the source again")
		require.Equal(w.t, "L1", w.consistent(w.get(st.ID), "after a deploy"))

		building := service("web")
		building.Build = "make"
		w.command(silent)
		w.deploy(st.ID, building)
		ask(func() error { return w.supersede(st.ID, service("web")) })
		w.await(st.ID, "the deploy to fail", func(st *stack.Stack) bool { return st.DeployError != "" && st.Deploying == 0 })
		require.Equal(w.t, "L1", w.consistent(w.get(st.ID), "after a deploy that superseded one"))

		w.awaitEvent(st.ID, "stack.expired", 1)
		ask(func() error { return w.claim(st.ID) })
		require.Equal(w.t, "L1", w.consistent(w.becomes(st.ID, stack.Live), "after a claim"))
	})
}

// What has not taken effect changes nothing, even if the next request does the same.
func TestChange_ThatTookNoEffectFailsNothing(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		synctest.Wait()
		w.db.breaks(func(_ string, events []stack.Event) error {
			if len(events) > 0 {
				return errors.New("away")
			}
			return nil
		})
		_, err := w.sup.Deploy(w.t.Context(), st.ID, source.Upload{Manifest: &stack.Manifest{Services: []stack.Spec{service("web")}}, Source: w.upload()}, nil)
		require.ErrorContains(w.t, err, "away")
		w.db.breaks(nil)
		time.Sleep(time.Microsecond) // no two requests are of the same moment
		w.deploy(st.ID, service("web"))
		require.Equal(w.t, "L2", w.consistent(w.serves(st.ID, 2), "in the end"))
	})
}

// The row may tell of its new owner before a node hears of it.
func TestNodes_AChangeIsRefusedOnceAnotherNodeOwnsTheStack(t *testing.T) {
	t.Parallel()
	inNodes(t, func(a, _ *world) {
		st := a.live(service("web"))
		synctest.Wait()
		a.goesTo(st, "c")
		_, err := a.sup.Restart(a.t.Context(), st.ID, "web")
		require.ErrorIs(t, err, store.ErrNotOwner)
		require.ErrorIs(t, a.sup.Delete(a.t.Context(), st.ID), store.ErrNotOwner)
		synctest.Wait()
		require.ErrorIs(t, a.sup.Delete(a.t.Context(), st.ID), store.ErrNotOwner)
		require.Equal(t, "live", string(a.get(st.ID).Status))
	}, long)
}
