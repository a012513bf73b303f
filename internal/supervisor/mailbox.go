package supervisor

import (
	"context"
	"sync"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// mailbox holds what others ask of a loop until the loop does it, in order. Putting
// something in never waits, so that what follows from a change of the row is not lost
// with its caller.
type mailbox struct {
	filled chan struct{} // has a value while something is in
	closed chan struct{} // closed when the loop has ended

	mu    sync.Mutex
	asked []func(*loop)
}

func newMailbox() *mailbox {
	return &mailbox{filled: make(chan struct{}, 1), closed: make(chan struct{})}
}

// put hands something to the loop. It returns false if the loop has ended.
func (m *mailbox) put(do func(*loop)) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.closed:
		return false
	default:
	}
	m.asked = append(m.asked, do)
	offer(m.filled, struct{}{})
	return true
}

// take returns what was put in first. The caller has received from filled.
func (m *mailbox) take() func(*loop) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do := m.asked[0]
	m.asked = m.asked[1:]
	if len(m.asked) > 0 {
		offer(m.filled, struct{}{})
	}
	return do
}

// offer sends a value, unless the channel is full.
func offer[T any](to chan<- T, value T) {
	select {
	case to <- value:
	default:
	}
}

// close drops what the loop has not done.
func (m *mailbox) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = nil
	close(m.closed)
}

// ask makes the loop do something and returns the result. If the loop has ended, the
// error is that of gone. If ctx ends first, the loop does it all the same, and the
// caller does not learn the result.
func ask[T any](ctx context.Context, r *runner, do func(*loop) T) (answer T, err error) {
	answered := make(chan T, 1)
	if !r.mailbox.put(func(l *loop) { answered <- do(l) }) {
		return answer, r.gone()
	}
	if err := ctx.Err(); err != nil {
		return answer, err
	}
	select {
	case answer = <-answered:
		return answer, nil
	case <-ctx.Done():
		return answer, ctx.Err()
	case <-r.mailbox.closed:
	}
	select {
	case answer = <-answered: // the last thing that the loop did
		return answer, nil
	default:
		return answer, r.gone()
	}
}

// tell makes the loop do something, after what it was asked before, and does not wait
// for it. It returns false if the loop has ended.
func (r *runner) tell(do func(*loop)) bool { return r.mailbox.put(do) }

// handOver makes the loop do what follows from a change of the row, which a request has
// made, and waits for it so that the answer to the request can rely on it. The only
// error is that the stack is deleted. If the request's context ends first, the loop does
// it all the same; if the server stops, or another node takes the stack, the next one carries
// on from the row. A job may
// use it too, to have something done before it ends.
func (r *runner) handOver(ctx context.Context, do func(*loop)) error {
	_, err := ask(ctx, r, func(l *loop) struct{} {
		do(l)
		return struct{}{}
	})
	if stack.KindOf(err) == stack.NotFound {
		return err
	}
	return nil
}

// gone returns why the loop of a stack has ended: the stack is deleted, another node owns it,
// or the server stops.
func (r *runner) gone() error {
	if r.lost.Load() {
		return store.ErrNotOwner
	}
	if err := r.sup.ctx.Err(); err != nil && !r.deleted.Load() {
		return err
	}
	return stack.NewNoStack(r.id)
}
