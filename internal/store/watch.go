package store

import (
	"context"
	"sync"
	"time"
)

// watchers wakes the goroutines that wait for a stack to change.
type watchers struct {
	mu sync.Mutex
	by map[string]map[chan struct{}]struct{} // stack id, "" for all
}

// Watch returns a channel that receives a value after each commit that touched the
// stack; "" watches all stacks. A commit of another process may touch any stack. One
// unreceived value stands for all that follow, so a reader that reads the stack again
// after each value misses nothing. The caller calls stop when it no longer listens; the
// channel is never closed.
func (s *Store) Watch(id string) (woken <-chan struct{}, stop func()) {
	return s.watch.addWatcher(id)
}

// otherEvery is how often FollowOthers looks.
const otherEvery = time.Second

// FollowOthers wakes all watchers after each commit of another process, such as an
// operator's command, until ctx ends. It counts what was committed since Open.
func (s *Store) FollowOthers(ctx context.Context) {
	tick := time.NewTicker(otherEvery)
	defer tick.Stop()
	for version := s.version; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now, err := dataVersion(ctx, s.write)
		if err != nil || now == version {
			continue // what cannot be read now is read at the next look
		}
		version = now
		s.watch.wakeAll()
	}
}

func (w *watchers) addWatcher(id string) (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by == nil {
		w.by = map[string]map[chan struct{}]struct{}{}
	}
	if w.by[id] == nil {
		w.by[id] = map[chan struct{}]struct{}{}
	}
	w.by[id][ch] = struct{}{}
	return ch, func() { w.removeWatcher(id, ch) }
}

func (w *watchers) removeWatcher(id string, ch chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.by[id], ch)
	if len(w.by[id]) == 0 {
		delete(w.by, id)
	}
}

func (w *watchers) wake(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range []string{id, ""} {
		w.send(key)
	}
}

func (w *watchers) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range w.by {
		w.send(key)
	}
}

func (w *watchers) send(key string) {
	for ch := range w.by[key] {
		select {
		case ch <- struct{}{}:
		default: // not received yet: it stands for this one too
		}
	}
}
