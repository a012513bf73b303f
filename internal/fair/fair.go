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
	"time"
)

// Queue hands out a fixed number of slots. A free slot goes to the client that has the
// fewest, and among such clients to the first that asked: however many slots a client
// asks for, it delays another only by what is under way. Its methods may be called by
// several goroutines at once.
type Queue struct {
	slots   int
	keep    time.Duration // how long the last free slot is kept for others; see NewKeepingQueue
	mu      sync.Mutex
	free    int
	held    map[string]int       // slots by client
	ended   map[string]time.Time // when clients that had a slot within keep last returned one
	waiting []*ticket            // in the order of asking
	kept    *time.Timer          // ends the keeping of a slot that somebody waits for
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
func NewQueue(slots int) *Queue { return NewKeepingQueue(slots, 0) }

// NewKeepingQueue returns a queue that keeps its last free slot for others: a client that
// has a slot gets that one only once no other client has had any for so long. No slot is
// ever taken back.
func NewKeepingQueue(slots int, keep time.Duration) *Queue {
	return &Queue{slots: slots, keep: keep, free: slots, held: map[string]int{}, ended: map[string]time.Time{}}
}

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
	if q.keep > 0 {
		maps.DeleteFunc(q.ended, func(_ string, at time.Time) bool { return time.Since(at) >= q.keep })
		q.ended[client] = time.Now()
	}
	q.advance()
}

// advance gives the free slots to the first in line, and tells the others their places.
// If the last free slot is kept from the first, it is from all of the line: each of them
// has a slot then.
func (q *Queue) advance() {
	if q.kept != nil {
		q.kept.Stop()
	}
	line := q.line()
	for len(line) > 0 && q.free > 0 && !q.keepsFrom(line[0].client) {
		t := line[0]
		line = line[1:]
		q.free--
		q.held[t.client]++
		q.waiting = slices.DeleteFunc(q.waiting, func(w *ticket) bool { return w == t })
		close(t.granted)
	}
	for i, t := range line {
		t.tell(i + 1)
	}
}

// keepsFrom reports whether a slot is the last free one and kept from a client. If it is
// kept for what has ended, the line advances once that is long enough ago; if for another
// client's slot, once that is returned.
func (q *Queue) keepsFrom(client string) bool {
	if q.keep == 0 || q.free > 1 || q.held[client] == 0 {
		return false
	}
	if len(q.held) > 1 {
		return true
	}
	var last time.Time
	for other, at := range q.ended {
		if other != client && at.After(last) {
			last = at
		}
	}
	left := q.keep - time.Since(last)
	if last.IsZero() || left <= 0 {
		return false
	}
	q.kept = time.AfterFunc(left, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.advance()
	})
	return true
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
