package supervisor

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
)

// Whoever takes a stack over changes its row, which wakes the loop, before it has queued
// what comes first.
func TestLoop_KeepsNoDeadlineBeforeItIsAskedTo(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := stack.New("shop", []stack.Spec{service("web")}, stack.Now())
		st.ExpiresAt = stack.Now()
		require.NoError(t, w.db.Create(t.Context(), st, nil))
		r := w.sup.runner(st.ID)
		synctest.Wait()
		w.touch(st.ID)
		w.settle()
		require.NotContains(t, w.events(st.ID), "stack.expired")
		r.tell((*loop).startKeepingTime)
		w.awaitEvent(st.ID, "stack.expired", 1)
	})
}

// touch changes a stack's row without consequence.
func (w *world) touch(id string) {
	w.t.Helper()
	_, err := w.db.Update(w.t.Context(), id, func(*stack.Stack) ([]stack.Event, error) { return nil, nil })
	require.NoError(w.t, err)
}

// hangingStore is a Store that answers nothing while it hangs.
type hangingStore struct {
	Store
	hangs atomic.Bool
}

func (s *hangingStore) Get(ctx context.Context, id string) (*stack.Stack, error) {
	if s.hangs.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Store.Get(ctx, id)
}

func TestLoop_AnswersAlthoughTheDatabaseDoesNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &hangingStore{Store: newMemstore()}
		s := New(Config{Store: db, Log: slog.New(slog.DiscardHandler)})
		defer s.Close()
		r := s.runner("stk_000000000000")
		db.hangs.Store(true)
		began := time.Now()
		r.tell((*loop).startKeepingTime)
		answer, err := ask(t.Context(), r, func(*loop) int { return 7 })
		require.NoError(t, err)
		require.Equal(t, 7, answer)
		require.Equal(t, storeWait, time.Since(began))
	})
}
