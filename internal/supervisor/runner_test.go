package supervisor

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// queue runs a job once the ones before it have ended by themselves.
func (r *runner) queue(do func(context.Context)) {
	r.tell(func(l *loop) { l.queue(do) })
}

func TestRunner_QueuedJobsRunOneAtATimeAndNoneIsStopped(t *testing.T) {
	s := New(Config{Store: newMemstore(), Log: slog.New(slog.DiscardHandler)})
	r := s.runner("stk_000000000000", 0)
	var running, done atomic.Int32
	var all sync.WaitGroup
	for range 50 {
		all.Add(1)
		r.queue(func(ctx context.Context) {
			defer all.Done()
			if n := running.Add(1); n != 1 {
				t.Errorf("%d jobs run at once", n)
			}
			for range 1000 { // gives the others their chance
				if ctx.Err() != nil {
					t.Error("a job was stopped by one that was to wait for it")
					break
				}
			}
			running.Add(-1)
			done.Add(1)
		})
	}
	all.Wait()
	s.Close()
	if done.Load() != 50 {
		t.Errorf("%d jobs ran, want 50", done.Load())
	}
}

func TestRunner_StartStopsTheJobThatAnotherWaitsFor(t *testing.T) {
	s := New(Config{Store: newMemstore(), Log: slog.New(slog.DiscardHandler)})
	r := s.runner("stk_000000000000", 0)
	begun := make(chan struct{})
	r.queue(func(ctx context.Context) {
		close(begun)
		<-ctx.Done()
	})
	<-begun
	queued := make(chan struct{})
	r.queue(func(context.Context) { close(queued) })
	started := make(chan struct{})
	r.tell(func(l *loop) { l.interrupt(context.Canceled, func(context.Context) { close(started) }) })
	<-started
	<-queued
	s.Close()
}

func TestLoop_ReadsTheClockAgainAtLeastEveryMinuteBeforeADeadline(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{time.Second: time.Second, time.Minute: time.Minute, 7 * 24 * time.Hour: time.Minute} {
		if got := untilNextLook(left); got != want {
			t.Errorf("with %s left it waits %s, want %s", left, got, want)
		}
	}
}
