package supervisor

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// transferRetry is the Retry-After of a request for data that another one has.
const transferRetry = 5 * time.Second

// transfers are the copies of a stack's data that are under way. Its zero value is ready.
type transfers struct {
	mu       sync.Mutex
	reading  map[string]bool // by service
	backedUp bool
	replaced chan struct{} // closed at the end of a replacement; nil while there is none
}

// begin takes the place of a copy of a service's data. Data is replaced while no other data
// of the stack is, and nobody reads it. The error is a Conflict.
func (t *transfers) begin(service string, replace bool) (end func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.replaced != nil:
		return nil, &stack.Error{Kind: stack.Conflict, RetryAfter: transferRetry, Detail: "data of this stack is being replaced; try again once that has ended"}
	case t.reading[service]:
		return nil, &stack.Error{Kind: stack.Conflict, RetryAfter: transferRetry, Detail: "the data of " + service + " is being downloaded; try again once that has ended"}
	case replace && t.backedUp:
		return nil, &stack.Error{Kind: stack.Conflict, RetryAfter: transferRetry, Detail: "the data of this stack is being backed up; try again once that has ended"}
	case replace:
		t.replaced = make(chan struct{})
		return t.endReplacing, nil
	}
	if t.reading == nil {
		t.reading = map[string]bool{}
	}
	t.reading[service] = true
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.reading, service)
	}, nil
}

// beginBackup takes the place of a backup of all data of the stack, once none is being
// replaced. Downloads go on.
func (t *transfers) beginBackup(ctx context.Context) (end func(), err error) {
	for {
		if err := t.awaitReplaced(ctx); err != nil {
			return nil, err
		}
		t.mu.Lock()
		if t.replaced == nil {
			t.backedUp = true
			t.mu.Unlock()
			return t.endBackup, nil
		}
		t.mu.Unlock()
	}
}

func (t *transfers) endBackup() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.backedUp = false
}

func (t *transfers) endReplacing() {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.replaced)
	t.replaced = nil
}

// awaitReplaced waits until no data of the stack is being replaced.
func (t *transfers) awaitReplaced(ctx context.Context) error {
	t.mu.Lock()
	replaced := t.replaced
	t.mu.Unlock()
	if replaced == nil {
		return nil
	}
	select {
	case <-replaced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaitReplaced waits until no data of a stack of this node is being replaced.
func (s *Supervisor) awaitReplaced(ctx context.Context, id string) error {
	if r := s.lookup(id); r != nil {
		return r.transfers.awaitReplaced(ctx)
	}
	return nil
}

// doJob does something as a job, with the job's own context, and returns once it has ended.
// A job that has not begun when ctx ends never begins.
func (r *runner) doJob(ctx context.Context, do func(context.Context) error) error {
	done := make(chan error, 1)
	var begun atomic.Bool // or given up
	err := r.handOver(context.WithoutCancel(ctx), func(l *loop) {
		l.queue(func(job context.Context) {
			if !begun.CompareAndSwap(false, true) {
				return
			}
			done <- do(job)
		})
	})
	if err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		if begun.CompareAndSwap(false, true) {
			return context.Cause(ctx)
		}
		return <-done
	case <-r.ended:
	}
	if begun.CompareAndSwap(false, true) {
		return r.gone()
	}
	return <-done
}
