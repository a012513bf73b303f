package supervisor

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A loop that is too busy to hear of an exit holds up neither the stream of events nor
// other stacks.
func TestExits_OfABusyStackHoldUpNoOther(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		busy, other := w.long(service("web")), w.long(service("web"))
		r, done := w.sup.lookup(busy.ID), make(chan struct{})
		r.tell(func(*loop) { <-done })
		w.crash(busy, "web-g1", 1)
		for range 2 * maxExits {
			r.noteExit("unknown")
		}
		w.crash(other, "web-g1", 1)
		w.awaitEvent(other.ID, "service.restarted", 1)
		require.NotContains(t, w.events(busy.ID), "service.crashed")
		close(done)
		w.awaitEvent(busy.ID, "service.restarted", 1)
	})
}

// An exit that the engine does not report is found by looking.
func TestExits_ThatAreLostAreFound(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.long(service("web"))
		r, done := w.sup.lookup(st.ID), make(chan struct{})
		r.tell(func(*loop) { <-done })
		for range maxExits {
			r.noteExit("unknown")
		}
		w.crash(st, "web-g1", 1)
		synctest.Wait()
		close(done)
		ended := time.Now()
		w.awaitEvent(st.ID, "service.crashed", 1)
		require.LessOrEqual(t, time.Since(ended), w.sup.cfg.CheckEvery)
	})
}
