package supervisor

import (
	"context"
	"sync"

	"github.com/berth-host/berth/internal/stack"
)

// runner owns one stack's long jobs, one at a time, and the processes of its
// served generation.
type runner struct {
	*Supervisor
	id string

	mu        sync.Mutex
	cancel    context.CancelFunc // of the job under way
	done      chan struct{}      // closed when it has ended; nil when none ever ran
	processes map[string]*process
}

// start runs job in the background after the one before it was stopped.
func (r *runner) start(job func(context.Context)) {
	r.stop()
	ctx, cancel := context.WithCancel(r.ctx)
	done := make(chan struct{})
	r.mu.Lock()
	r.cancel, r.done = cancel, done
	r.mu.Unlock()
	r.jobs.Add(1)
	go func() {
		defer r.jobs.Done()
		defer close(done)
		defer cancel()
		job(ctx)
	}()
}

// stop cancels the job under way and waits until it has ended.
func (r *runner) stop() {
	r.mu.Lock()
	cancel, done := r.cancel, r.done
	r.mu.Unlock()
	if done == nil {
		return
	}
	cancel()
	<-done
}

// keep makes processes the served ones.
func (r *runner) keep(processes map[string]*process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.processes = processes
}

// forget lets go of the served processes: their logs are no longer followed.
func (r *runner) forget() {
	r.mu.Lock()
	processes := r.processes
	r.processes = nil
	r.mu.Unlock()
	for _, p := range processes {
		p.release()
	}
}

// update is the way of a job to change its stack: on a stack that was deleted
// meanwhile, or on a server that stops, it fails and the job ends.
func (r *runner) update(ctx context.Context, fn func(*stack.Stack) ([]stack.Event, error)) (*stack.Stack, error) {
	return r.Store.Update(ctx, r.id, fn)
}
