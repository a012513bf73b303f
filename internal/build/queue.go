package build

import (
	"context"
	"slices"
	"sync"
)

// queue hands out a fixed number of slots in the order of asking.
type queue struct {
	slots   int
	mu      sync.Mutex
	free    int
	waiting []*ticket
}

// ticket is one waiter: granted is closed when it gets its slot, place holds
// its newest place in line, counted from 1.
type ticket struct {
	granted chan struct{}
	place   chan int
}

func newQueue(slots int) *queue { return &queue{slots: slots, free: slots} }

// acquire waits for a slot and calls moved with the place in line, first when
// it has to wait at all and then whenever it changes. The caller returns the
// slot by calling release once.
func (q *queue) acquire(ctx context.Context, moved func(place int)) (release func(), err error) {
	t := q.join()
	for {
		select {
		case <-t.granted:
			return q.release, nil
		case place := <-t.place:
			moved(place)
		case <-ctx.Done():
			q.leave(t)
			return nil, ctx.Err()
		}
	}
}

// state is how many have a slot and how many wait for one.
func (q *queue) state() (running, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.slots - q.free, len(q.waiting)
}

func (q *queue) join() *ticket {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := &ticket{granted: make(chan struct{}), place: make(chan int, 1)}
	if q.free > 0 {
		q.free--
		close(t.granted)
		return t
	}
	q.waiting = append(q.waiting, t)
	t.place <- len(q.waiting)
	return t
}

// leave gives up a place in line, or the slot if it was granted meanwhile.
func (q *queue) leave(t *ticket) {
	q.mu.Lock()
	i := slices.Index(q.waiting, t)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		q.tellPlaces()
	}
	q.mu.Unlock()
	if i < 0 {
		q.release()
	}
}

func (q *queue) release() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.free++
		return
	}
	close(q.waiting[0].granted)
	q.waiting = slices.Delete(q.waiting, 0, 1)
	q.tellPlaces()
}

// tellPlaces replaces what each waiter has not read yet.
func (q *queue) tellPlaces() {
	for i, t := range q.waiting {
		select {
		case <-t.place:
		default:
		}
		t.place <- i + 1
	}
}
