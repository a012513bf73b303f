package supervisor

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// remains returns which data of a stack a node keeps that does not own it; ok is false if
// nothing is recorded.
func (w *world) remains(st *stack.Stack, node string) (data []string, ok bool) {
	w.t.Helper()
	r, ok, err := w.db.Remains(w.t.Context(), st.ID, node)
	require.NoError(w.t, err)
	return r.Volumes, ok
}

// A node that comes back after another has taken its stacks serves none of them. Data that
// only it has stays, and everybody can read where.
func TestRemains_OfAStackThatAnotherNodeTookAreItsDataAlone(t *testing.T) {
	t.Parallel()
	for name, running := range map[string]bool{"while the server runs": true, "while it does not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inNodes(t, func(a, _ *world) {
				with, without, site := a.createRunning(time.Hour, keeping, service("web")), a.live(service("web")), a.live(pages("web"))
				a.becomes(with.ID, stack.Live)
				all := []*stack.Stack{with, without, site}
				synctest.Wait()
				if !running {
					a.stopServer()
				}
				for _, st := range all {
					a.goesTo(st, "c")
				}
				if !running {
					a.startServer()
				}
				a.settle()
				data := engine.Key{Stack: with.ID, Service: "web"}.Data()
				for range 2 {
					for _, st := range all {
						a.runs(st)
						require.Equal(t, 404, a.ask(st, "web"))
						require.False(t, a.dir.Has(st.ID))
						require.Equal(t, 1, count(a.events(st.ID), "stack.live"))
						require.NotContains(t, a.events(st.ID), "stack.restored")
					}
					require.Equal(t, []string{data}, a.there(with).Names())
					require.Equal(t, map[string]string{"kept": with.ID}, a.engine.Volume(data))
					require.Empty(t, a.there(without).Names())
					require.Empty(t, a.there(site).Names())
					kept, _ := a.remains(with, "a")
					require.Equal(t, []string{data}, kept)
					for _, st := range []*stack.Stack{without, site} {
						_, ok := a.remains(st, "a")
						require.False(t, ok)
					}
					require.True(t, a.logged(data))
					time.Sleep(2 * time.Hour)
					a.reboot()
					a.settle()
				}
				require.NoError(t, a.change(with, func(st *stack.Stack) ([]stack.Event, error) { return st.Delete(stack.Now()) }))
				a.settle()
				a.settle()
				require.Empty(t, a.there(with).Names(), "a delete leaves nothing anywhere")
			}, long)
		})
	}
}

// A volume that cannot be read counts as one with data.
func TestRemains_WhatCannotBeReadStays(t *testing.T) {
	t.Parallel()
	inNodes(t, func(a, _ *world) {
		st := a.live(service("web"))
		synctest.Wait()
		a.engine.Before("HasData", func(string) error { return errors.New("input/output error") })
		a.goesTo(st, "c")
		a.settle()
		require.Equal(t, []string{engine.Key{Stack: st.ID, Service: "web"}.Data()}, a.there(st).Names())
		a.engine.Before("HasData", nil)
		a.settle()
		a.settle()
		require.Empty(t, a.there(st).Names())
		_, ok := a.remains(st, "a")
		require.False(t, ok)
	}, long)
}

// Everything goes of what the row says that it may: the other node has all of it.
func TestRemains_AllGoesOfAStackThatWasMovedAway(t *testing.T) {
	t.Parallel()
	inNodes(t, func(a, _ *world) {
		live, expired := a.createRunning(time.Hour, keeping, service("web")), a.expired(service("web"))
		a.becomes(live.ID, stack.Live)
		synctest.Wait()
		a.stopServer()
		for _, st := range []*stack.Stack{live, expired} {
			require.NoError(t, a.db.Expect(a.t.Context(), st.ID, "b"))
			_, err := a.db.Update(a.t.Context(), st.ID, func(st *stack.Stack) ([]stack.Event, error) {
				st.Node, st.Epoch = "b", st.Epoch+1
				return nil, nil
			}, store.Leaving())
			require.NoError(t, err)
		}
		a.startServer()
		for _, st := range []*stack.Stack{live, expired} {
			require.Empty(t, a.there(st).Names())
			require.False(t, a.dir.Has(st.ID))
		}
		a.settle()
		_, ok := a.remains(live, "a")
		require.False(t, ok)
	}, long)
}
