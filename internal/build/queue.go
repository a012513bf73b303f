package build

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
)

// queue hands out a fixed number of slots. One that comes free goes to the
// client that has the fewest, and among such to who asked first: however many
// builds a client has, they hold up another's for no longer than those under way
// take.
type queue struct {
	slots   int
	mu      sync.Mutex
	free    int
	held    map[string]int // slots by client
	waiting []*ticket      // in the order of asking
}

// ticket is one waiter: granted is closed when it gets its slot, place holds
// its newest place in line, counted from 1, unless that is the one last told.
type ticket struct {
	client  string
	granted chan struct{}
	place   chan int
	told    int
}

func newQueue(slots int) *queue { return &queue{slots: slots, free: slots, held: map[string]int{}} }

// acquire waits for a client's slot and calls moved with the place in line,
// first when it has to wait at all and then whenever it changes, back included.
// The caller returns the slot by calling release once.
func (q *queue) acquire(ctx context.Context, client string, moved func(place int)) (release func(), err error) {
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

// state is how many have a slot and how many wait for one.
func (q *queue) state() (running, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.slots - q.free, len(q.waiting)
}

func (q *queue) join(client string) *ticket {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := &ticket{client: client, granted: make(chan struct{}), place: make(chan int, 1)}
	q.waiting = append(q.waiting, t)
	q.advance()
	return t
}

// leave gives up a place in line, or the slot if it was granted meanwhile.
func (q *queue) leave(t *ticket) {
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

func (q *queue) release(client string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.free++
	if q.held[client]--; q.held[client] == 0 {
		delete(q.held, client)
	}
	q.advance()
}

// advance gives the slots that are free to the first in line, and tells the
// others their places.
func (q *queue) advance() {
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

// line is who waits in the order of their turns: after as many slots as their
// client has and has asked for before.
func (q *queue) line() []*ticket {
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
