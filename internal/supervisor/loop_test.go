package supervisor

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// Whoever takes a stack over changes its row, which wakes the loop, before it has queued
// what comes first.
func TestLoop_KeepsNoDeadlineBeforeItIsAskedTo(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := stack.New("shop", []stack.Spec{service("web")}, stack.Now())
		st.ExpiresAt = stack.Now()
		require.NoError(t, w.db.Create(t.Context(), st, nil))
		r := w.sup.runner(st.ID, 0)
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
	if err := s.hang(ctx); err != nil {
		return nil, err
	}
	return s.Store.Get(ctx, id)
}

func (s *hangingStore) Update(ctx context.Context, id string, fn func(*stack.Stack) ([]stack.Event, error), options ...store.Option) (*stack.Stack, error) {
	if err := s.hang(ctx); err != nil {
		return nil, err
	}
	return s.Store.Update(ctx, id, fn, options...)
}

func (s *hangingStore) hang(ctx context.Context) error {
	if !s.hangs.Load() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

// hangingRunner returns the runner of a stack whose database answers nothing.
func hangingRunner(t *testing.T) *runner {
	t.Helper()
	db := &hangingStore{Store: newMemstore()}
	s := New(Config{Store: db, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(s.Close)
	r := s.runner("stk_000000000000", 0)
	db.hangs.Store(true)
	return r
}

func TestLoop_WaitsForNoRowAndNotLongForAChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := hangingRunner(t)
		for want, busy := range map[time.Duration]func(*loop){
			0: (*loop).startKeepingTime,
			storeWait: func(l *loop) {
				_, err := l.update(r.ctx, nil, func(*stack.Stack) ([]stack.Event, error) { return nil, nil })
				require.ErrorIs(t, err, context.DeadlineExceeded)
			},
		} {
			began := time.Now()
			require.True(t, r.tell(busy))
			answer, err := ask(t.Context(), r, func(*loop) int { return 7 })
			require.NoError(t, err)
			require.Equal(t, 7, answer)
			require.Equal(t, want, time.Since(began))
		}
	})
}

// A process that has ended must lose its address although a change of the row takes long:
// the address may be another process's a moment later.
func TestLoop_HearsOfExitsWhileARowIsChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := hangingRunner(t)
		over := make(chan struct{})
		r.tell(func(l *loop) {
			defer close(over)
			_, _ = l.update(r.ctx, nil, func(*stack.Stack) ([]stack.Event, error) { return nil, nil })
		})
		synctest.Wait()
		r.noteExit("ended")
		synctest.Wait()
		require.Empty(t, r.exits)
		select {
		case <-over:
			require.Fail(t, "the change was over before")
		default:
		}
	})
}

// The row is read again as soon as the database works, and until then less and less
// often.
func TestLoop_KeepsADeadlineThatPassedWithoutADatabase(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		w.db.breaks(always)
		time.Sleep(limits.TTL)
		synctest.Wait()
		require.Less(t, w.times("the database does not work; trying again"), 60, "once in five seconds, in the end")
		w.db.breaks(nil)
		w.awaitEvent(st.ID, "stack.expired", 1)
		require.WithinDuration(t, st.ExpiresAt, time.Now(), 2*storePause)
	})
}

// times is how often a server's log has a text.
func (w *world) times(text string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Count(w.log.String(), text)
}
