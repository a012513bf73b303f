package supervisor

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// copied is another database with the stacks of this one. What happens to one of the two
// does not happen to the other.
func (m *memstore) copied() *memstore {
	m.mu.Lock()
	defer m.mu.Unlock()
	other := newMemstore()
	other.last = m.last
	maps.Copy(other.stacks, m.stacks) // rows are replaced, never changed
	maps.Copy(other.deleted, m.deleted)
	maps.Copy(other.events, m.events)
	return other
}

// on starts the server again on another database.
func (w *world) on(db *memstore) {
	w.t.Helper()
	w.stopServer()
	w.db = db
	w.startServer()
}

// there is what the engine has of a stack.
func (w *world) there(st *stack.Stack) engine.Objects {
	w.t.Helper()
	synctest.Wait()
	all, err := w.driver.Inventory(w.t.Context(), st.ID)
	require.NoError(w.t, err)
	return all[st.ID]
}

func TestOrphans_OfAnEmptyDatabaseLoseAllButTheirDataOnceTheGraceIsOver(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st, expired := w.long(service("web")), w.expired(service("web"))
		require.NoError(t, w.claim(st.ID))
		synctest.Wait()
		before := w.there(st)
		known := w.db
		w.on(newMemstore())
		w.settle()
		ids, err := w.sup.ForeignData(w.t.Context())
		require.NoError(t, err)
		require.ElementsMatch(t, []string{st.ID, expired.ID}, ids)
		volume, snapshot := engine.Key{Stack: st.ID, Service: "web"}.Data(), engine.Key{Stack: expired.ID, Service: "web"}.Snapshot()
		require.True(t, w.logged(volume))
		require.True(t, w.logged(snapshot))
		require.Equal(t, before, w.there(st))

		time.Sleep(time.Hour) // the grace
		w.settle()
		require.Equal(t, []string{volume}, w.there(st).Names())
		require.Equal(t, []string{snapshot}, w.there(expired).Names())
		require.False(t, w.dir.Has(st.ID))
		w.on(known)
		require.Contains(t, w.becomes(st.ID, stack.Failed).Error, "its source on this host is missing")
	}, func(c *Config) { c.Limits.Retention = 24 * time.Hour })
}

// Without a database the users of orphans are not reserved, so the start is to be tried again.
func TestStart_TakesNoStackBeforeTheUsersOfOrphansAreReserved(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		orphan := w.live(service("web"))
		w.stopServer()
		w.db = newMemstore()
		w.db.noReserve = fmt.Errorf("reserve: %w", store.ErrUnavailable)
		w.newServer()
		require.ErrorIs(t, w.sup.Start(w.t.Context()), store.ErrUnavailable)
		w.db.noReserve = nil
		require.NoError(t, w.sup.Start(w.t.Context()))
		require.Greater(t, w.live(service("web")).Seq, orphan.Seq)

		w.stopServer()
		w.db = newMemstore()
		w.db.noReserve = errors.New("the disk is full")
		w.startServer()
		require.True(t, w.logged("a new stack may get the user of one that the database does not know"))
	})
}

// An older row does not explain the generations that were deployed after it. Its stack
// fails, since what it served is gone, and loses nothing of them before the grace is over
// or a deploy takes their number.
func TestOrphans_OfAnOlderRowStayForTheGrace(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.program("", 1, keeping)
		st, site := w.long(service("web")), w.long(pages("web"))
		late := w.createRunning(24*time.Hour, exits(1), built("web"))
		w.becomes(late.ID, stack.Failed)
		all := []*stack.Stack{st, site, late}
		for _, s := range all {
			require.NoError(t, w.claim(s.ID))
		}
		older := w.db.copied()
		for generation := 2; generation <= 3; generation++ {
			for _, s := range all {
				w.deploy(s.ID, s.Generation.Services[0].Spec)
				w.serves(s.ID, generation)
			}
		}
		w.settle()
		newest := map[*stack.Stack]engine.Objects{}
		for _, s := range all {
			newest[s] = withoutReady(w.get(s.ID), w.there(s))
		}
		published := w.dir.Site(site.ID, "web", 3)
		newer := w.db
		again := older.copied()
		w.on(older)
		for _, s := range all {
			w.becomes(s.ID, stack.Failed)
			w.settle()
			require.Equal(t, newest[s], w.there(s))
		}
		for _, name := range []string{engine.Key{Stack: st.ID, Service: "web", Generation: 3}.Process(0), engine.Key{Stack: late.ID, Service: "web"}.Image(3), published} {
			require.True(t, w.logged(name), name)
		}
		require.FileExists(t, published) // a link

		w.on(newer)
		w.settle()
		require.Equal(t, 200, w.ask(site, "web"))
		for _, s := range []*stack.Stack{st, late} {
			require.Equal(t, "L3", w.consistent(s, "with its own row"))
		}

		w.on(again)
		for _, s := range all {
			w.becomes(s.ID, stack.Failed)
		}
		w.deploy(site.ID, pages("web"))
		w.serves(site.ID, 2) // it takes the number of one that stays
		w.deploy(site.ID, pages("web"))
		w.serves(site.ID, 3)
		require.Equal(t, newest[st], w.there(st))
		time.Sleep(time.Hour)
		w.settle()
		data := engine.Key{Stack: st.ID, Service: "web"}.Data()
		own := engine.Key{Stack: st.ID, Service: "web"}.Layer(1) // which the older row names
		require.Equal(t, []string{data, own}, w.there(st).Names())
		w.deploy(st.ID, service("web"))
		w.serves(st.ID, 2)
		require.Equal(t, map[string]string{"kept": st.ID}, w.engine.Volume(data))
	})
}

// A stack that the database knows as deleted goes at once, its data included. What is
// another installation's stays.
func TestOrphans_OfADeletedStackGoAtOnceAndOthersStay(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.long(service("web"))
		gone := w.long(service("web"))
		other := w.engine.Driver(enginetest.Options{Instance: "other"})
		require.NoError(t, other.Place(w.t.Context(), engine.Key{Stack: "stk_0123456789ab", Generation: 1}, 7))
		w.stopServer()
		require.NoError(t, w.change(gone, func(st *stack.Stack) ([]stack.Event, error) { return st.Delete(stack.Now()) }))
		w.startServer()
		require.Empty(t, w.there(gone).Names())
		require.False(t, w.dir.Has(gone.ID))
		require.Equal(t, "L1", w.consistent(st, "beside it"))
		time.Sleep(2 * time.Hour)
		stays, err := other.Networks(w.t.Context(), engine.Key{})
		require.NoError(t, err)
		require.Len(t, stays, 1)
	})
}

// An engine that accepts requests and answers none holds up no delete for good, and no
// end of the server. The next server finishes what was begun.
func TestEngineSilence_HoldsUpNoDeleteAndNoShutdown(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		kept, gone := w.long(service("web")), w.long(service("web"))
		atStep(-1, func(method string, _ func(string) error) { w.hold(method, "") }, nil)
		begun := w.createFor(time.Hour, service("web"))
		at := time.Now()
		for _, st := range []*stack.Stack{gone, begun} {
			require.NoError(t, w.sup.Delete(w.t.Context(), st.ID))
			require.Equal(t, 404, w.ask(st, "web"))
		}
		require.LessOrEqual(t, time.Since(at), 2*deleteWait)
		require.Equal(t, toProcess, w.ask(kept, "web"))
		at = time.Now()
		w.stopServer()
		require.LessOrEqual(t, time.Since(at), closeWait)
		w.release()
		w.startServer()
		w.settle()
		require.Equal(t, "L1", w.consistent(kept, "in the end"))
		for _, st := range []*stack.Stack{gone, begun} {
			require.Equal(t, "-", w.consistent(st, "in the end"))
		}
	})
}

// An engine that answers nothing for longer than it may is not an event: what was
// asked of it is answered in the end, and what needs no engine goes on.
func TestEngineSilence_IsWaitedFor(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		site, st, crashing := w.long(pages("web")), w.long(service("web")), w.long(service("web"))
		building := w.commanding(everything("web"))
		atStep(-1, func(method string, _ func(string) error) { w.hold(method, "") }, nil)
		w.deploy(st.ID, service("web"))
		w.crash(crashing, "web-g1", 3)
		time.Sleep(engineAnswer + 3*time.Second)
		synctest.Wait()
		require.Equal(t, 200, w.ask(site, "web"))
		require.True(t, w.answers(st, "web"))
		require.NotContains(t, w.events(crashing.ID), "service.crashed", "nobody could have said so")
		w.release()
		w.serves(st.ID, 2)
		w.becomes(building.ID, stack.Live)
		w.awaitEvent(crashing.ID, "service.restarted", 1)
		w.settle()
		for s, crashes := range map[*stack.Stack]int{st: 0, building: 0, crashing: 1} {
			require.Equal(t, crashes, count(w.events(s.ID), "service.crashed"))
			require.NotContains(t, w.events(s.ID), "stack.restored")
			require.Regexp(t, "^L", w.consistent(s, "in the end"))
		}
	})
}

// An engine that goes away again while stacks come back, or a claimed one is restored, is
// waited for.
func TestEngineAway_AgainInTheMiddleOfTheRecovery(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st, expired := w.createRunning(time.Hour, keeping, service("web")), w.createRunning(5*time.Second, keeping, service("web"))
		w.awaitEvent(expired.ID, "stack.expired", 1)
		synctest.Wait()
		both := []*stack.Stack{st, expired}
		for _, s := range both {
			w.program(s.ID, 1, w.slow)
		}
		require.NoError(t, w.claim(expired.ID))
		for range 3 {
			w.away(5 * time.Second)
			for _, s := range both {
				w.runs(s, "web-g1")
			}
		}
		w.release()
		for _, s := range both {
			w.awaitEvent(s.ID, "stack.restored", 1)
			w.settle()
			require.NotContains(t, w.events(s.ID), "service.crashed")
			require.Equal(t, 1, count(w.events(s.ID), "stack.restored"))
			require.Equal(t, map[string]string{"kept": s.ID}, w.engine.Volume(engine.Key{Stack: s.ID, Service: "web"}.Data()))
			require.Equal(t, "L1", w.consistent(s, "in the end"))
		}
	}, func(c *Config) { c.Limits.Retention = time.Hour })
}
