package supervisor

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
)

func seven(*loop) int { return 7 }

// A request ends with its caller's context, and one to a stack that is gone is answered
// that there is none.
func TestAsk_IsAnsweredInEveryState(t *testing.T) {
	t.Parallel()
	for _, at := range underWay {
		inWorld(t, func(w *world) {
			st := at.begin(w)
			r := w.sup.lookup(st.ID)
			if at.job == "delete" {
				w.requireGone(r, isDeleted, "while it winds up")
				return
			}
			answer, err := ask(w.t.Context(), r, seven)
			require.NoError(t, err, at.job)
			require.Equal(t, 7, answer, at.job)

			ended, cancel := context.WithCancel(w.t.Context())
			cancel()
			_, err = ask(ended, r, seven)
			require.ErrorIs(t, err, context.Canceled, at.job)

			asked := time.Now()
			require.NoError(t, w.sup.Delete(ended, st.ID), at.job)
			require.Zero(t, time.Since(asked), at.job)
			synctest.Wait()
			w.requireGone(r, isDeleted, at.job)
			_, err = w.sup.Restart(w.t.Context(), st.ID, "web")
			require.Equal(t, stack.NotFound, stack.KindOf(err), at.job)
		})
	}
}

// requireGone requires that a loop has ended and answers with an error.
func (w *world) requireGone(r *runner, as func(error) bool, when string) {
	w.t.Helper()
	_, err := ask(w.t.Context(), r, seven)
	require.True(w.t, as(err), "%s: %v", when, err)
	require.False(w.t, r.tell(func(*loop) {}), when)
}

func TestAsk_IsToldThatTheServerStops(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		r := w.sup.lookup(st.ID)
		w.stopServer()
		w.requireGone(r, func(err error) bool { return errors.Is(err, context.Canceled) }, "stopped")
		_, err := w.sup.Restart(w.t.Context(), st.ID, "web")
		require.NoError(t, err) // the next server carries on
		require.NoError(t, w.sup.Delete(w.t.Context(), st.ID))
		require.True(t, isDeleted(r.handOver(w.t.Context(), func(*loop) {})))
		w.requireGone(r, isDeleted, "deleted")
	})
}

// The stack is deleted by then, and the rest of it goes once the engine answers.
func TestDelete_EndsWithItsCaller(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		w.hold("Remove", "")
		limited, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		asked := time.Now()
		require.NoError(t, w.sup.Delete(limited, st.ID))
		require.Equal(t, time.Second, time.Since(asked))
		_, err := w.db.Get(w.t.Context(), st.ID)
		require.True(t, isDeleted(err))
		require.True(t, w.dir.Has(st.ID))
		w.release()
		synctest.Wait()
		require.Equal(t, "-", w.consistent(st, "in the end"))
	})
}

// What was handed over is done in its turn, whoever has left by then, or never if the
// loop ends before.
func TestAsk_EndsWithItsCallerWhileTheLoopIsBusy(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		r := w.sup.lookup(w.live(service("web")).ID)
		busy := make(chan struct{})
		r.tell(func(*loop) { <-busy })

		limited, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		var done []string
		_, err := ask(limited, r, func(*loop) int { done = append(done, "asked"); return 0 })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, r.handOver(limited, func(*loop) { done = append(done, "handed over") }))
		require.Empty(t, done)
		close(busy)
		synctest.Wait()
		require.Equal(t, []string{"asked", "handed over"}, done)

		r.tell(func(*loop) { w.sup.cancel() })
		_, err = ask(w.t.Context(), r, func(*loop) int { time.Sleep(time.Second); return 0 }) // either way it returns
		if err != nil {
			require.ErrorIs(t, err, context.Canceled)
		}
	})
}
