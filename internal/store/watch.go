package store

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// watchers wakes the goroutines that wait for a stack to change.
type watchers struct {
	mu      sync.Mutex
	by      map[string][]chan struct{} // stack id, "" for all
	changes []*Changes
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

// Changes gathers the ids of stacks that commits touched.
type Changes struct {
	woken chan struct{}

	mu  sync.Mutex
	ids map[string]bool
	any bool // any stack may have changed
}

// mostChanges is how many ids Changes gathers before it says that any stack may have changed.
const mostChanges = 1000

// WatchIDs returns a watcher of all stacks that knows which have changed. The caller calls stop
// when it no longer listens.
func (s *Store) WatchIDs() (changes *Changes, stop func()) {
	c := &Changes{woken: make(chan struct{}, 1), ids: map[string]bool{}}
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	s.watch.changes = append(s.watch.changes, c)
	return c, func() {
		s.watch.mu.Lock()
		defer s.watch.mu.Unlock()
		s.watch.changes = slices.DeleteFunc(s.watch.changes, func(other *Changes) bool { return other == c })
	}
}

// Woken returns a channel that receives a value when there is something to take.
func (c *Changes) Woken() <-chan struct{} { return c.woken }

// Take returns the stacks that were touched since the last call. If any may have been, it
// returns no ids, and true.
func (c *Changes) Take() (ids []string, any bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gathered, any := c.ids, c.any
	c.ids, c.any = map[string]bool{}, false
	if any {
		return nil, true
	}
	return slices.Sorted(maps.Keys(gathered)), false
}

// add notes that a stack was touched, "" for any.
func (c *Changes) add(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.any = c.any || id == "" || len(c.ids) >= mostChanges; !c.any {
		c.ids[id] = true
	}
	notify(c.woken)
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
	w.gather(id)
}

func (w *watchers) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range w.by {
		w.send(key)
	}
	w.gather("")
}

func (w *watchers) send(key string) {
	for _, ch := range w.by[key] {
		notify(ch)
	}
}

func (w *watchers) gather(id string) {
	for _, c := range w.changes {
		c.add(id)
	}
}

func notify(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default: // not received yet: it stands for this one too
	}
}
