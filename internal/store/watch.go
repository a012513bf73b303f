package store

import (
	"context"
	"slices"
	"sync"
)

// watchers wakes the goroutines that wait for a stack to change.
type watchers struct {
	mu sync.Mutex
	by map[string][]chan struct{} // stack id, "" for all
}

// Watch returns a channel that receives a value after each commit that touched the
// stack; "" watches all stacks. A commit of another process may touch any stack. One
// unreceived value stands for all that follow, so a reader that reads the stack again
// after each value misses nothing. The caller calls stop when it no longer listens; the
// channel is never closed.
func (s *Store) Watch(id string) (woken <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	s.watch.add(id, ch)
	return ch, func() { s.watch.remove(id, ch) }
}

// FollowOthers wakes watchers after each commit of another process, such as an operator's
// command or another server, until ctx ends. It counts what was committed since Open.
func (s *Store) FollowOthers(ctx context.Context) {
	s.dialect.follow(ctx, func(stackID string) {
		if stackID == "" {
			s.watch.wakeAll()
		} else {
			s.watch.wake(stackID)
		}
	})
}

func (w *watchers) add(id string, ch chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.by[id] = append(w.by[id], ch)
}

func (w *watchers) remove(id string, ch chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.by[id] = slices.DeleteFunc(w.by[id], func(other chan struct{}) bool { return other == ch })
	if len(w.by[id]) == 0 {
		delete(w.by, id)
	}
}

func (w *watchers) wake(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.send(id)
	w.send("")
}

func (w *watchers) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range w.by {
		w.send(key)
	}
}

func (w *watchers) send(key string) {
	for _, ch := range w.by[key] {
		select {
		case ch <- struct{}{}:
		default: // not received yet: it stands for this one too
		}
	}
}
