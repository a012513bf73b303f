package supervisor

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// uplink is the way of one node to the database. While it is cut, requests get no answer.
type uplink struct {
	Store
	cut, cutOnceRead *atomic.Bool
	cutToChanges     *atomic.Bool // while rows can be read
	read             func()       // called when the stacks have been read
}

// cuttable lets a test cut a node off from the database now, or once its next server has read its
// stacks.
func (w *world) cuttable() uplink {
	u := uplink{w.db, new(atomic.Bool), new(atomic.Bool), new(atomic.Bool), func() {}}
	before := w.configure
	w.configure = func(c *Config) {
		before(c)
		c.Store = u
	}
	return u
}

func (u uplink) answer(ctx context.Context) error {
	if u.cut.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (u uplink) Kept(ctx context.Context, node string) ([]*stack.Stack, error) {
	if err := u.answer(ctx); err != nil {
		return nil, err
	}
	all, err := u.Store.Kept(ctx, node)
	if u.cutOnceRead.Swap(false) {
		u.cut.Store(true)
	}
	u.read()
	return all, err
}

func (u uplink) Get(ctx context.Context, id string) (*stack.Stack, error) {
	if err := u.answer(ctx); err != nil {
		return nil, err
	}
	return u.Store.Get(ctx, id)
}

func (u uplink) Deleted(ctx context.Context, id string) (bool, error) {
	if err := u.answer(ctx); err != nil {
		return false, err
	}
	return u.Store.Deleted(ctx, id)
}

func (u uplink) Update(ctx context.Context, id string, fn func(*stack.Stack) ([]stack.Event, error), options ...store.Option) (*stack.Stack, error) {
	if u.cutToChanges.Load() {
		<-ctx.Done()
	}
	if err := cmp.Or(u.answer(ctx), ctx.Err()); err != nil {
		return nil, err
	}
	return u.Store.Update(ctx, id, fn, options...)
}

// standsStill requires that nothing of a stack runs and nothing leads to it.
func (w *world) standsStill(st *stack.Stack) {
	w.t.Helper()
	require.Empty(w.t, w.there(st).Containers)
	require.Equal(w.t, 502, w.ask(st, "web"))
}

// A node may be cut off while its server starts, before the database knows of what it adopts.
func TestIsolated_StopsWhatAStartHasJustAdopted(t *testing.T) {
	t.Parallel()
	for name, taken := range map[string]bool{"and takes it up again": false, "and lets it go": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inCluster(t, func(a, b *world, _ *links) {
				f, other := a.fleet(), a.long(pages("web"))
				a.settle()
				empty := a.empties()
				way := a.cuttable()
				a.stopServer()
				a.newServer()
				way.cutOnceRead.Store(true)
				started := make(chan error, 1)
				go func() { started <- a.sup.Start(a.t.Context()) }()
				synctest.Wait() // it tells of the first stack, and gets no answer
				require.Empty(t, started)
				a.sup.Isolated(a.t.Context(), empty, 3*time.Second)
				require.Empty(t, a.there(f.without).Containers)
				require.NoError(t, <-started)
				a.settle()
				for _, st := range []*stack.Stack{f.without, f.deploying, f.site, other} {
					a.standsStill(st)
				}
				a.runs(f.with, "web-g1")
				if taken {
					require.NoError(t, b.sup.TakeOver(b.t.Context(), Lost{Node: "a", Empty: empty}))
					b.settle()
				}
				way.cut.Store(false)
				a.release()
				a.sup.Rejoined()
				a.settle()
				a.settle()
				owner := a
				if taken {
					owner = b
				}
				for _, st := range []*stack.Stack{f.without, f.deploying} {
					require.Equal(t, "L1", owner.consistent(owner.get(st.ID), "in the end"))
				}
				for _, st := range []*stack.Stack{f.site, other} {
					require.Equal(t, 200, owner.ask(st, "web"))
				}
				require.Equal(t, "L1", a.consistent(a.get(f.with.ID), "in the end"))
				if taken {
					for _, st := range []*stack.Stack{f.without, f.deploying, f.site, other} {
						a.nowhere(st)
					}
				}
			})
		})
	}
}

// A start may take long before it looks at any stack.
func TestIsolated_StopsWhatAStartHasNotTakenYet(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, _ *world, _ *links) {
		f := a.fleet()
		empty := a.empties()
		before := len(a.events(f.without.ID))
		a.stopServer()
		a.newServer()
		var calls atomic.Int32
		a.engine.Before("Remove", func(string) error {
			if calls.Add(1) == 1 {
				return errors.New("it is busy")
			}
			return nil
		})
		a.sup.Isolated(a.t.Context(), empty, 3*time.Second)
		require.Empty(t, a.there(f.without).Containers)
		a.runs(f.with, "web-g1")
		require.NoError(t, a.sup.Start(a.t.Context()))
		a.settle()
		for _, st := range []*stack.Stack{f.without, f.site} {
			a.standsStill(st)
		}
		a.sup.Rejoined()
		a.release()
		a.settle()
		require.Equal(t, []string{"stack.restored"}, a.after(f.without.ID, before))
		for _, st := range []*stack.Stack{f.without, f.with} {
			require.Equal(t, "L1", a.consistent(a.get(st.ID), "in the end"))
		}
		require.Equal(t, 200, a.ask(f.site, "web"))
	})
}

// What a start read before its node was cut off may be wrong when the node is back.
func TestStart_ReadsAgainWhatItTakesAfterItsNodeWasCutOff(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, _ *links) {
		stays, goes := a.long(service("web")), a.long(service("web"))
		a.settle()
		before := len(a.events(stays.ID))
		a.stopServer()
		read := false
		way := a.cuttable()
		a.newServer()
		way.cutOnceRead.Store(true)
		way.read = func() {
			if !read {
				read = true
				a.sup.Isolated(a.t.Context(), []string{stays.ID, goes.ID}, time.Second)
				require.NoError(t, b.sup.TakeOver(b.t.Context(), Lost{Node: "a", Empty: []string{goes.ID}}))
				way.cut.Store(false)
				a.sup.Rejoined()
			}
		}
		a.sup.cfg.Store = way
		require.NoError(t, a.sup.Start(a.t.Context()))
		a.settle()
		b.settle()
		require.True(t, read)
		require.Equal(t, []string{"stack.restored"}, a.after(stays.ID, before))
		require.Equal(t, "L1", a.consistent(a.get(stays.ID), "in the end"))
		require.Equal(t, "L1", b.consistent(b.get(goes.ID), "in the end"))
		a.nowhere(goes)
	})
}

// A stack is not served while the database has not answered that it is back, and the row may say
// so all the same.
func TestIsolated_StopsWhatIsBeingBroughtBack(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, _ *world, _ *links) {
		way := a.cuttable()
		a.stopServer()
		a.startServer()
		site := a.expired(pages("web"))
		st, texts := a.writer()
		send(texts, "kept")
		a.settle()
		time.Sleep(period)
		synctest.Wait()
		require.True(t, a.get(st.ID).HasSnapshot())
		a.db.after(func(id string, events []stack.Event) {
			if id == site.ID && events[0].Type == "service.ready" {
				a.db.answers(store.ErrInDoubt) // to what comes next
			}
		})
		require.NoError(t, a.claim(site.ID))
		synctest.Wait()
		require.Equal(t, stack.Live, a.get(site.ID).Status, "nobody knows")
		require.Equal(t, 200, a.ask(site, "web"))
		a.engine.Leave()
		time.Sleep(time.Minute)
		way.cutToChanges.Store(true)
		a.engine.Return()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Nil(t, a.sup.lookup(st.ID).serving())
		require.Nil(t, a.sup.lookup(site.ID).serving())
		way.cut.Store(true)

		a.sup.Isolated(a.t.Context(), nil, 3*time.Second)
		a.settle()
		for _, st := range []*stack.Stack{st, site} {
			a.standsStill(st)
		}
		way.cut.Store(false)
		way.cutToChanges.Store(false)
		a.db.answers(nil)
		a.sup.Rejoined()
		a.settle()
		require.Equal(t, 200, a.ask(site, "web"))
		require.Equal(t, "L1", a.consistent(a.get(st.ID), "in the end"))
	}, restoring)
}

// An engine that fails does not make others wait for nothing: as long as a container is left, it
// is killed again.
func TestIsolated_ReturnsWhenNoContainerIsLeft(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, _ *world, _ *links) {
		st := a.createRunning(time.Hour, a.stubborn, service("web"))
		a.becomes(st.ID, stack.Live)
		synctest.Wait()
		var calls atomic.Int32
		a.engine.Before("Stop", func(string) error { return errors.New("it is busy") })
		a.engine.Before("Remove", func(string) error {
			if calls.Add(1) == 1 {
				return errors.New("it is busy")
			}
			return nil
		})
		a.sup.Isolated(a.t.Context(), []string{st.ID}, 3*time.Second)
		a.standsStill(st)
		a.engine.Before("Stop", nil)
		a.sup.Rejoined()
		a.settle()
		require.Equal(t, "L1", a.consistent(a.get(st.ID), "in the end"))
	})
}

// A site whose restore the loss of its node cut off needs nothing of it.
func TestTakeOver_TakesASiteThatWasBeingRestored(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, _ *links) {
		site, with := a.expired(pages("web")), a.createRunning(5*time.Second, keeping, service("web"))
		a.awaitEvent(with.ID, "stack.expired", 1)
		a.settle()
		way := a.cuttable()
		a.stopServer()
		a.startServer()
		a.db.after(func(string, []stack.Event) { way.cut.Store(true) })
		for _, st := range []*stack.Stack{site, with} {
			require.NoError(t, a.claim(st.ID))
			way.cut.Store(false)
		}
		way.cut.Store(true)
		a.db.after(nil)
		a.stopServer()
		for _, st := range []*stack.Stack{site, with} {
			require.True(t, a.get(st.ID).Restoring())
		}
		require.NoError(t, b.sup.TakeOver(b.t.Context(), Lost{Node: "a"}))
		b.settle()
		require.Equal(t, stack.Live, b.get(site.ID).Status)
		require.Equal(t, 200, b.ask(site, "web"))
		require.Equal(t, "a", b.get(with.ID).Node, "its data is on its node")

		way.cut.Store(false)
		a.startServer()
		a.settle()
		a.nowhere(site)
		require.Equal(t, "L1", a.consistent(a.get(with.ID), "back"))
		require.Equal(t, map[string]string{"kept": with.ID}, a.engine.Volume(engine.Key{Stack: with.ID, Service: "web"}.Data()))
	})
}
