package supervisor

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
)

// Between the change of a row and the look for its runner a stack can be deleted.
func TestSupervisor_MakesNoRunnerForAStackThatWasDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := stack.New("shop", []stack.Spec{service("web")}, stack.Now())
		require.NoError(t, w.db.Create(w.t.Context(), st, nil))
		_, err := w.db.Update(w.t.Context(), st.ID, func(st *stack.Stack) ([]stack.Event, error) { return st.DeployFailed("it broke", stack.Now()) })
		require.NoError(t, err)
		_, err = w.sup.Deploy(w.t.Context(), st.ID, source.Upload{Manifest: &stack.Manifest{Services: []stack.Spec{service("web")}}, Source: w.upload()}, nil)
		require.Equal(t, stack.NewNoStack(st.ID), err)
		require.Equal(t, stack.NewNoStack(st.ID), w.claim(st.ID))
		require.Nil(t, w.sup.lookup(st.ID))
		require.False(t, w.sup.cfg.Routes.Has(w.sup.cfg.URLs.Hostname(st, "web")))
	})
}

func TestRunner_RoutesNothingOnceItHasEnded(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		r := w.sup.lookup(st.ID)
		require.True(t, w.sup.cfg.Routes.Has(w.sup.cfg.URLs.Hostname(st, "web")))
		require.NoError(t, w.sup.Delete(w.t.Context(), st.ID))
		r.route(st, nil)
		require.False(t, w.sup.cfg.Routes.Has(w.sup.cfg.URLs.Hostname(st, "web")))
	})
}

// A request to delete a stack may get there while the server stops, or after.
func TestDelete_WhileTheServerStopsLeavesNothing(t *testing.T) {
	t.Parallel()
	for when, stop := range map[string]func(w *world, st *stack.Stack){
		"stopping": func(w *world, st *stack.Stack) {
			r := w.sup.lookup(st.ID)
			r.work.Go(func() { time.Sleep(10 * time.Second) })
			w.sup.cancel()
			synctest.Wait()
		},
		"stopped": func(w *world, _ *stack.Stack) { w.stopServer() },
	} {
		inWorld(t, func(w *world) {
			st := w.live(service("web"))
			stop(w, st)
			require.NoError(w.t, w.sup.Delete(w.t.Context(), st.ID))
			require.Equal(w.t, "-", w.consistent(st, when))
		})
	}
}
