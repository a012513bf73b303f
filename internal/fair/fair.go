// Package fair shares out what is scarce, so that clients that want much do not hold up a
// client that wants little: slots in turn (Queue), and a limited number of places for
// each client (Places). It does not depend on what they are for.
package fair

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
)

// Queue hands out a fixed number of slots. A free slot goes to the client that has the
// fewest, and among such clients to the first that asked: however many slots a client
// asks for, it delays another only by what is under way. Its methods may be called by
// several goroutines at once.
type Queue struct {
	slots   int
	mu      sync.Mutex
	free    int
	held    map[string]int // slots by client
	waiting []*ticket      // in the order of asking
}

// ticket is one waiter. granted is closed when it gets its slot; place holds its newest
// place in line, counted from 1, unless the waiter has read it.
type ticket struct {
	client  string
	granted chan struct{}
	place   chan int
	told    int
}

// NewQueue returns a queue with so many free slots.
func NewQueue(slots int) *Queue { return &Queue{slots: slots, free: slots, held: map[string]int{}} }

// Acquire waits for a slot for a client. It calls moved with the place in line, counted
// from 1, when it has to wait and whenever the place changes, in either direction. The
// caller must call release once to return the slot. If ctx ends first, Acquire returns
// its error.
func (q *Queue) Acquire(ctx context.Context, client string, moved func(place int)) (release func(), err error) {
	t := q.join(client)
	for {
		select {
		case <-t.granted:
			return func() { q.release(client) }, nil
		case place := <-t.place:
			moved(place)
		case <-ctx.Done():
			q.leave(t)
			return nil, ctx.Err()
		}
	}
}

// State returns how many slots are taken and how many callers wait for one.
func (q *Queue) State() (running, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.slots - q.free, len(q.waiting)
}

func (q *Queue) join(client string) *ticket {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := &ticket{client: client, granted: make(chan struct{}), place: make(chan int, 1)}
	q.waiting = append(q.waiting, t)
	q.advance()
	return t
}

// leave gives up a place in line, or the slot if it has been granted in the meantime.
func (q *Queue) leave(t *ticket) {
	q.mu.Lock()
	i := slices.Index(q.waiting, t)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		q.advance()
	}
	q.mu.Unlock()
	if i < 0 {
		q.release(t.client)
	}
}

func (q *Queue) release(client string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.free++
	if q.held[client]--; q.held[client] == 0 {
		delete(q.held, client)
	}
	q.advance()
}

// advance gives the free slots to the first in line, and tells the others their places.
func (q *Queue) advance() {
	line := q.line()
	first := min(q.free, len(line))
	for _, t := range line[:first] {
		q.free--
		q.held[t.client]++
		q.waiting = slices.DeleteFunc(q.waiting, func(w *ticket) bool { return w == t })
		close(t.granted)
	}
	for i, t := range line[first:] {
		t.tell(i + 1)
	}
}

// line returns the waiters in the order of their turns: after as many slots as their
// client has and has asked for before.
func (q *Queue) line() []*ticket {
	next := maps.Clone(q.held)
	turns := make(map[*ticket]int, len(q.waiting))
	for _, t := range q.waiting {
		turns[t] = next[t.client]
		next[t.client]++
	}
	return slices.SortedStableFunc(slices.Values(q.waiting), func(a, b *ticket) int { return cmp.Compare(turns[a], turns[b]) })
}

// tell replaces a place that the waiter has not read yet.
func (t *ticket) tell(place int) {
	if place == t.told {
		return
	}
	t.told = place
	select {
	case <-t.place:
	default:
	}
	t.place <- place
}
