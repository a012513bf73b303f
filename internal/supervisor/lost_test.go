package supervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// shelf is an archive in memory.
type shelf struct {
	mu   sync.Mutex
	kept map[string][]byte // by stack and name
	away bool
	rows *memstore

	forgotten []string // stacks that were to be forgotten once more
	// meet is called before what a node asks for; nil for nothing.
	meet func(ctx context.Context, what string, st *stack.Stack)
}

// owned is as the one of package depot.
func (a *shelf) owned(ctx context.Context, st *stack.Stack) (*stack.Stack, error) {
	now, err := a.rows.Get(ctx, st.ID)
	if err == nil && now.Epoch != st.Epoch {
		return nil, store.ErrNotOwner
	}
	return now, err
}

func (a *shelf) asked(ctx context.Context, what string, st *stack.Stack) {
	a.mu.Lock()
	meet := a.meet
	a.mu.Unlock()
	if meet != nil {
		meet(ctx, what, st)
	}
}

// meets sets what is called before what a node asks for.
func (a *shelf) meets(meet func(ctx context.Context, what string, st *stack.Stack)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.meet = meet
}

// names are those of what is kept of a stack, sorted.
func (a *shelf) names(id string) (names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for kept := range a.kept {
		if name, of := strings.CutPrefix(kept, id+" "); of {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (a *shelf) Has(_ context.Context, st *stack.Stack, name string) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.kept[st.ID+" "+name] != nil, a.fault()
}

func (a *shelf) Put(ctx context.Context, st *stack.Stack, name string, write func(context.Context, io.Writer) error) error {
	a.asked(ctx, "put", st)
	if _, err := a.owned(ctx, st); err != nil {
		return err
	}
	var content bytes.Buffer
	err := write(ctx, &content)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err = errors.Join(err, a.fault()); err == nil {
		a.kept[st.ID+" "+name] = content.Bytes()
	}
	return err
}

func (a *shelf) Get(_ context.Context, st *stack.Stack, name string, read func(io.Reader) error) error {
	a.mu.Lock()
	content, err := a.kept[st.ID+" "+name], a.fault()
	a.mu.Unlock()
	if err != nil {
		return err
	}
	if content == nil {
		return fmt.Errorf("%s: %w", name, engine.ErrNotFound)
	}
	return read(bytes.NewReader(content))
}

func (a *shelf) Begin(ctx context.Context, st *stack.Stack) (*stack.Stack, error) {
	return a.owned(ctx, st)
}

func (a *shelf) ForgetDeleted(_ context.Context, id string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forgotten = append(a.forgotten, id)
	return nil
}

func (a *shelf) Keep(ctx context.Context, st *stack.Stack, keeps func(now *stack.Stack, name string) bool) error {
	a.asked(ctx, "keep", st)
	now, err := a.owned(ctx, st)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.kept, func(kept string, _ []byte) bool {
		name, of := strings.CutPrefix(kept, st.ID+" ")
		return of && !keeps(now, name)
	})
	return a.fault()
}

func (a *shelf) fault() error {
	if a.away {
		return errors.New("the registry does not answer")
	}
	return nil
}

func (a *shelf) leave(away bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.away = away
}

// fleet is a stack of each kind on a node: with data and without, a site, an expired one, and
// one whose deploy is under way.
type fleet struct{ with, without, site, expired, deploying *stack.Stack }

func (f fleet) all() []*stack.Stack {
	return []*stack.Stack{f.with, f.without, f.site, f.expired, f.deploying}
}

func (w *world) fleet() fleet {
	w.t.Helper()
	f := fleet{
		with: w.createRunning(time.Hour, keeping, service("web")), without: w.long(service("web")), site: w.long(pages("web")),
		expired: w.createRunning(5*time.Second, keeping, service("web")), deploying: w.long(service("web")),
	}
	w.becomes(f.with.ID, stack.Live)
	w.awaitEvent(f.expired.ID, "stack.expired", 1)
	w.settle() // all is kept apart
	w.command(silent)
	building := service("web")
	building.Build = "make"
	w.deploy(f.deploying.ID, building)
	synctest.Wait()
	return f
}

// empties are the stacks that EmptyStacks returns, sorted.
func (w *world) empties() []string {
	w.t.Helper()
	seen, err := w.sup.EmptyStacks(w.t.Context())
	require.NoError(w.t, err)
	return slices.Sorted(maps.Keys(seen))
}

func sorted(ids ...string) []string {
	slices.Sort(ids)
	return ids
}

func TestTakeOver_TakesWhatNeedsNoDataOfTheLostNode(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, _ *links) {
		f := a.fleet()
		empty := a.empties()
		require.Equal(t, sorted(f.without.ID, f.site.ID, f.deploying.ID), empty)
		page := a.body(a.get(f.site.ID), "web", "/")
		before := map[string]int{}
		for _, st := range f.all() {
			before[st.ID] = len(a.events(st.ID))
		}
		a.stopServer() // its processes go on
		for range 2 {
			require.NoError(t, b.sup.TakeOver(b.t.Context(), Lost{Node: "a", Empty: empty}))
		}
		b.settle()
		require.Equal(t, []string{"stack.restored"}, b.after(f.without.ID, before[f.without.ID]))
		require.Equal(t, []string{"stack.restored"}, b.after(f.site.ID, before[f.site.ID]))
		require.ElementsMatch(t, []string{"stack.restored", "stack.deploy_failed"}, b.after(f.deploying.ID, before[f.deploying.ID]))
		require.Empty(t, b.after(f.expired.ID, before[f.expired.ID]))
		require.Equal(t, page, b.body(b.get(f.site.ID), "web", "/"))
		require.Equal(t, "L1", b.consistent(b.get(f.without.ID), "taken over"))
		require.Equal(t, "L1", b.consistent(b.get(f.deploying.ID), "taken over"))
		require.Equal(t, "E1", b.consistent(b.get(f.expired.ID), "taken over"))
		require.Equal(t, "a", b.get(f.with.ID).Node, "it waits")
		b.nowhere(f.with)
		b.program(f.expired.ID, 1, keeping)
		require.NoError(t, b.claim(f.expired.ID))
		b.serves(f.expired.ID, 1)
		data := engine.Key{Stack: f.expired.ID, Service: "web"}.Data()
		require.Equal(t, map[string]string{"kept": f.expired.ID}, b.engine.Volume(data))

		a.startServer()
		a.release()
		a.settle()
		a.settle()
		require.Equal(t, "L1", a.consistent(a.get(f.with.ID), "back"))
		for _, st := range []*stack.Stack{f.without, f.site, f.deploying} {
			a.nowhere(st)
		}
		a.runs(f.expired)
		require.Equal(t, 404, a.ask(f.expired, "web"))
	})
}

// A takeover whose commit is answered too late is not undone by the next attempt.
func TestTakeOver_AgainAfterOneThatWasNotAnswered(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, _ *links) {
		st := a.long(service("web"))
		a.settle()
		empty := a.empties()
		a.stopServer()
		b.db.commitsSlowly(store.ErrInDoubt)
		require.ErrorIs(t, b.sup.TakeOver(b.t.Context(), Lost{Node: "a", Empty: empty}), store.ErrInDoubt)
		b.db.answers(nil)
		require.NoError(t, b.sup.TakeOver(b.t.Context(), Lost{Node: "a", Empty: empty}))
		b.settle()
		require.Equal(t, "b", b.get(st.ID).Node)
		require.Equal(t, "L1", b.consistent(b.get(st.ID), "taken over"))
		require.True(t, b.answers(b.get(st.ID), "web"))
		kept, _ := b.remains(st, "b")
		require.Empty(t, kept)
	})
}

// What a stack has on a node stays if the node has become its owner since somebody else was read to
// be it.
func TestRemoveForeign_LeavesWhatHasComeMeanwhile(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, _ *world, _ *links) {
		st := a.createRunning(time.Hour, keeping, service("web"))
		st = a.becomes(st.ID, stack.Live)
		before := *st
		before.Node = "b"
		there := a.there(st)
		require.NoError(t, a.db.Expect(a.t.Context(), st.ID, "a"))
		require.NoError(t, a.sup.removeForeign(a.t.Context(), &before, &orphan{}, there))
		require.Equal(t, there.Names(), a.there(st).Names())
		require.NoError(t, a.db.ForgetRemains(a.t.Context(), st.ID, "a"))
	})
}

// A volume that was made after volumes were listed may have data.
func TestEmptyStacks_CountsNoVolumeThatWasNotListed(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		g := w.served(st)
		volumes, err := w.driver.Volumes(w.t.Context(), engine.Key{Stack: st.ID})
		require.NoError(t, err)
		require.True(t, g.hasNoData(w.t.Context(), volumes))
		require.False(t, g.hasNoData(w.t.Context(), nil))
	})
}

// A volume that was empty, and has data when its node comes back, stays, and is named.
func TestTakeOver_DataThatWasWrittenAfterAllStays(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, _ *links) {
		late := make(chan struct{})
		a.program("", 1, func(p *enginetest.Process) int {
			go func() {
				<-late
				p.Write(stack.DataDir, "late", "yes")
			}()
			return listen(p)
		})
		st := a.long(service("web"))
		a.settle()
		empty := a.empties()
		a.stopServer()
		require.NoError(t, b.sup.TakeOver(b.t.Context(), Lost{Node: "a", Empty: empty}))
		b.settle()
		close(late)
		synctest.Wait()
		a.startServer()
		a.settle()
		data := engine.Key{Stack: st.ID, Service: "web"}.Data()
		require.Equal(t, []string{data}, a.there(st).Names())
		kept, _ := a.remains(st, "a")
		require.Equal(t, []string{data}, kept)
		require.Equal(t, "L1", b.consistent(b.get(st.ID), "taken over"))
		require.Empty(t, b.engine.Volume(data))
	})
}

// The time of a stack that waits for its lost node may run out meanwhile: it expires once the
// node is back, with its data.
func TestTakeOver_AStackWhoseTimeRunsOutExpiresWhenItsNodeIsBack(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, _ *links) {
		st := a.createRunning(time.Hour, keeping, service("web"))
		a.becomes(st.ID, stack.Live)
		a.settle()
		before := len(a.events(st.ID))
		a.stopServer()
		for range 3 {
			time.Sleep(time.Hour)
			require.NoError(t, b.sup.TakeOver(b.t.Context(), Lost{Node: "a"}))
			b.settle()
		}
		row := b.get(st.ID)
		require.Equal(t, stack.Live, row.Status)
		require.Equal(t, "a", row.Node)
		require.Empty(t, b.after(st.ID, before))
		b.nowhere(st)

		a.startServer()
		a.settle()
		require.Equal(t, []string{"stack.expired"}, a.after(st.ID, before))
		require.Equal(t, "E1", a.consistent(a.get(st.ID), "back"))
		a.runs(st)
		require.NoError(t, a.claim(st.ID))
		a.serves(st.ID, 1)
		require.Equal(t, map[string]string{"kept": st.ID}, a.engine.Volume(engine.Key{Stack: st.ID, Service: "web"}.Data()))
	})
}

// A node that comes back ends what others run by now before anything else, and only that.
func TestStopForeign_EndsWhatOthersTook(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, _ *links) {
		f := a.fleet()
		empty := a.empties()
		a.stopServer()
		require.NoError(t, b.sup.TakeOver(b.t.Context(), Lost{Node: "a", Empty: empty}))
		b.settle()
		a.runs(f.without, "web-g1")
		a.newServer()
		require.NoError(t, a.sup.StopForeign(a.t.Context()))
		a.runs(f.without)
		a.runs(f.with, "web-g1")
		a.release()
		require.NoError(t, a.sup.Start(a.t.Context()))
		a.settle()
		require.Equal(t, "L1", a.consistent(a.get(f.with.ID), "back"))
		a.nowhere(f.without)
	})
}

func TestTakeOver_WhatIsNotKeptInTheRegistryWaits(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, l *links) {
		l.archive.leave(true)
		st := a.long(service("web"))
		a.settle()
		empty := a.empties()
		a.stopServer()
		require.ErrorContains(t, b.sup.TakeOver(b.t.Context(), Lost{Node: "a", Empty: empty}), "does not answer")
		l.archive.leave(false)
		require.NoError(t, b.sup.TakeOver(b.t.Context(), Lost{Node: "a", Empty: empty}))
		b.settle()
		require.Equal(t, "a", b.get(st.ID).Node)
		b.nowhere(st)
		require.True(t, b.logged("waits for it"))

		a.startServer()
		a.settle()
		a.settle()
		a.stopServer()
		require.NoError(t, b.sup.TakeOver(b.t.Context(), Lost{Node: "a", Empty: empty}), "it was kept later")
		b.settle()
		require.Equal(t, "L1", b.consistent(b.get(st.ID), "taken over"))
	})
}

// A node that is cut off runs nothing that another may take, before that does.
func TestIsolated_StopsWhatOthersMayTake(t *testing.T) {
	t.Parallel()
	for name, taken := range map[string]bool{"and takes it up again": false, "and lets it go": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inCluster(t, func(a, b *world, _ *links) {
				f := a.fleet()
				empty := a.empties()
				before := len(a.events(f.without.ID))
				a.sup.Isolated(a.t.Context(), empty, time.Second)
				for _, st := range []*stack.Stack{f.without, f.deploying} {
					a.runs(st)
					require.Equal(t, 502, a.ask(st, "web"))
				}
				require.Equal(t, 502, a.ask(f.site, "web"))
				require.True(t, a.answers(f.with, "web"))
				if taken {
					require.NoError(t, b.sup.TakeOver(b.t.Context(), Lost{Node: "a", Empty: empty}))
				}
				a.release()
				a.sup.Rejoined()
				a.settle()
				a.settle()
				require.Equal(t, []string{"stack.restored"}, a.after(f.without.ID, before))
				owner, other := a, b
				if taken {
					owner, other = b, a
				}
				for _, st := range []*stack.Stack{f.without, f.deploying} {
					require.Equal(t, "L1", owner.consistent(owner.get(st.ID), "in the end"))
					other.nowhere(st)
				}
				require.Equal(t, 200, owner.ask(f.site, "web"))
				require.Equal(t, "L1", a.consistent(a.get(f.with.ID), "in the end"))
			})
		})
	}
}

// The programs of an isolated node get no longer than others wait, whatever they do and their
// manifests say.
func TestIsolated_StopsInTime(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, _ *world, _ *links) {
		spec := service("web")
		spec.StopTimeout = time.Minute
		st := a.createRunning(time.Hour, a.stubborn, spec)
		a.becomes(st.ID, stack.Live)
		before := time.Now()
		a.sup.Isolated(a.t.Context(), []string{st.ID}, 3*time.Second)
		require.InDelta(t, 3, time.Since(before).Seconds(), 1)
		a.runs(st)
		a.sup.Rejoined()
		a.settle()
		require.Equal(t, "L1", a.consistent(a.get(st.ID), "in the end"))
	})
}

// A stack that is about to come to a node that is cut off does not run there either, and does
// once it is the node's own.
func TestIsolated_StopsAGuest(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, l *links) {
		st := a.live(service("web"))
		b.program("", 1, b.stubborn)
		l.meet = onceAt("after start", func() error {
			b.runs(st, "web-g1")
			b.sup.Isolated(b.t.Context(), nil, 3*time.Second)
			time.Sleep(4 * time.Second)
			b.runs(st)
			return nil
		})
		require.NoError(t, a.sup.Move(a.t.Context(), st.ID, "b"))
		b.settle()
		require.True(t, b.answers(st, "web"))
		require.Equal(t, "L1", b.consistent(b.get(st.ID), "in the end"))
	})
}

func TestDelete_OfAStackOfALostNode(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, _ *links) {
		st := a.createRunning(time.Hour, keeping, service("web"))
		a.becomes(st.ID, stack.Live)
		a.settle()
		a.stopServer()
		require.ErrorIs(t, b.sup.Delete(b.t.Context(), st.ID), store.ErrNotOwner)
		b.sup.cfg.Lost = func(node string) bool { return node == "a" }
		require.NoError(t, b.sup.Delete(b.t.Context(), st.ID))
		require.Equal(t, 1, count(b.events(st.ID), "stack.deleted"))
		require.Equal(t, stack.NotFound, stack.KindOf(b.sup.Delete(b.t.Context(), st.ID)))
		a.startServer()
		require.Equal(t, "-", a.consistent(st, "once its node is back"))
	})
}

// What was seen of a stack just before it is stopped to expire counts for a moment: nothing
// writes to its data any more.
func TestEmptyStacks_HaveOneThatIsBeingStoppedToExpire(t *testing.T) {
	inWorld(t, func(w *world) {
		st := w.createRunning(20*time.Second, nil, service("web"))
		w.becomes(st.ID, stack.Live)
		synctest.Wait() // it serves
		stopping, goOn := make(chan struct{}), make(chan struct{})
		w.engine.Before("Stop", func(string) error {
			close(stopping)
			<-goOn
			return nil
		})
		for stopped := false; !stopped; {
			require.Equal(t, []string{st.ID}, w.empties())
			select {
			case <-stopping:
				stopped = true
			case <-time.After(time.Second):
			}
		}
		require.Equal(t, []string{st.ID}, w.empties())
		time.Sleep(emptyLife + time.Second)
		require.Empty(t, w.empties(), "it was seen too long ago")
		close(goOn)
		w.settle()
	})
}

func TestEmptyStacks_HaveOneThatIsBeingMoved(t *testing.T) {
	inCluster(t, func(a, b *world, l *links) {
		st := a.live(service("web"))
		synctest.Wait() // it serves
		require.Equal(t, []string{st.ID}, a.empties())
		stopped := false
		l.meet = onceAt("before start", func() error {
			stopped = true
			require.Equal(t, []string{st.ID}, a.empties())
			time.Sleep(emptyLife + time.Second)
			require.Empty(t, a.empties(), "it was seen too long ago")
			return nil
		})
		require.NoError(t, a.sup.Move(a.t.Context(), st.ID, "b"))
		require.True(t, stopped)
		require.True(t, b.answers(st, "web"))
	})
}
