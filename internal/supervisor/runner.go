package supervisor

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-host/berth/internal/logfile"
	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/stack"
)

// runner owns one stack: its long jobs, one at a time, and the generation that
// it serves.
type runner struct {
	sup    *Supervisor
	cfg    *Config
	log    *slog.Logger
	id     string
	ctx    context.Context // of all its work; ends with the stack or the server
	cancel context.CancelFunc
	work   sync.WaitGroup // what goes on beside the job: watching, draining

	newer bool // there were generations that the row does not explain when the server started

	// Why the deploy under way was stopped, nil when none was: its end is recorded
	// once the generation before serves again. Jobs use it, one at a time.
	stopped *stack.Error

	passing atomic.Int32 // processes and generations that come or go beside the job

	discarding sync.Once

	starting sync.Mutex // one job is started at a time
	turning  sync.Mutex // held while the generation that is served and what is routed to change together
	routing  sync.Mutex // held while routes change

	mu     sync.Mutex
	job    context.CancelCauseFunc // ends the job under way
	done   chan struct{}           // closed when it has ended; nil when none ever ran
	served *generation             // nil when nothing is
	fallen chan struct{}           // closed when the generation that fell last has ended; nil when none did
	logs   map[string]runLog       // by service

	refusals map[string]int // by image: how often in a row the engine did not start it again
}

// runLog is the open log of a service's processes, one for all that write to
// it at the same time.
type runLog struct {
	file *logfile.File
	last time.Time // of the last line that an earlier server wrote
}

func newRunner(s *Supervisor, id string) *runner {
	r := &runner{
		sup: s, cfg: &s.cfg, log: s.cfg.Log.With("stack", id), id: id,
		logs: map[string]runLog{}, refusals: map[string]int{},
	}
	r.ctx, r.cancel = context.WithCancel(s.ctx)
	return r
}

// start runs job in the background after the one before it was stopped, and
// returns a channel that is closed when it has ended.
func (r *runner) start(job func(context.Context)) <-chan struct{} {
	return r.interrupt(context.Canceled, job)
}

// interrupt is start with a cause that the job before it finds in its context.
func (r *runner) interrupt(cause error, job func(context.Context)) <-chan struct{} {
	r.starting.Lock()
	defer r.starting.Unlock()
	r.stop(cause)
	return r.run(job)
}

// startIdle runs job in the background unless another one is under way, or
// something comes or goes beside it, and reports whether it does.
func (r *runner) startIdle(job func(context.Context)) bool {
	if !r.starting.TryLock() {
		return false
	}
	defer r.starting.Unlock()
	idle := !r.busy() && r.passing.Load() == 0
	if idle {
		r.run(job)
	}
	return idle
}

// queue runs job in the background once the one before it has ended by itself.
func (r *runner) queue(job func(context.Context)) {
	r.sup.jobs.Go(func() {
		r.starting.Lock()
		defer r.starting.Unlock()
		for r.busy() {
			r.starting.Unlock() // for whoever may not wait
			r.settle()
			r.starting.Lock()
		}
		r.run(job)
	})
}

// run runs job in the background; nothing else is under way.
func (r *runner) run(job func(context.Context)) <-chan struct{} {
	ctx, cancel := context.WithCancelCause(r.ctx)
	done := make(chan struct{})
	r.mu.Lock()
	r.job, r.done = cancel, done
	r.mu.Unlock()
	r.sup.jobs.Go(func() {
		defer close(done)
		defer cancel(nil)
		job(ctx)
	})
	return done
}

// stop cancels the job under way for a cause and waits until it has ended.
func (r *runner) stop(cause error) {
	if cancel, done := r.current(); done != nil {
		cancel(cause)
		<-done
	}
}

// settle waits until no job is under way.
func (r *runner) settle() {
	if _, done := r.current(); done != nil {
		<-done
	}
}

// busy tells whether a job is under way.
func (r *runner) busy() bool {
	_, done := r.current()
	select {
	case <-done:
		return false
	default:
		return done != nil
	}
}

func (r *runner) current() (context.CancelCauseFunc, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.job, r.done
}

// close ends everything that the runner does; what it serves goes on until it
// is removed.
func (r *runner) close() {
	r.cancel()
	r.stop(context.Canceled)
	if g := r.swap(nil); g != nil {
		g.release()
	}
	r.work.Wait()
	r.closeLogs()
}

// discard ends the runner of a stack that is deleted, and returns when nothing of
// the stack is left, or the rest is left to watchLeftovers. It may be called more
// than once.
func (r *runner) discard(ctx context.Context, st *stack.Stack) {
	r.discarding.Do(func() {
		r.cancel()
		r.unroute(st) // before what may wait for the engine
		r.close()
		if err := r.removeStack(ctx); err != nil {
			r.log.Warn("a deleted stack is not all removed; trying again later", "error", err)
		}
		r.sup.mu.Lock()
		delete(r.sup.runners, r.id)
		r.sup.mu.Unlock()
	})
}

// runLog opens the log of a service's processes the first time. The time is that
// of the last line that an earlier server wrote into it.
func (r *runner) runLog(service string) (*logfile.File, time.Time, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if log, ok := r.logs[service]; ok {
		return log.file, log.last, nil
	}
	file, last, err := r.cfg.Dir.OpenRunLog(r.id, service, r.cfg.LogMax)
	if err == nil {
		r.logs[service] = runLog{file, last}
	}
	return file, last, err
}

func (r *runner) closeLogs() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for service, log := range r.logs {
		if err := log.file.Close(); err != nil {
			r.log.Error("log not closed", "service", service, "error", err)
		}
	}
	clear(r.logs)
}

// swap makes g the served generation and returns the one before.
func (r *runner) swap(g *generation) *generation {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.served
	r.served = g
	return old
}

// serving is the served generation; nil when there is none.
func (r *runner) serving() *generation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.served
}

// fall ends the service of the served generation and returns the channel to close
// once its processes have ended.
func (r *runner) fall() chan<- struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.served, r.fallen = nil, make(chan struct{})
	return r.fallen
}

// awaitFallen waits until a generation that fell has ended.
func (r *runner) awaitFallen(ctx context.Context) error {
	r.mu.Lock()
	fallen := r.fallen
	r.mu.Unlock()
	if fallen == nil {
		return nil
	}
	select {
	case <-fallen:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// get reads the stack, and goes on trying as insist does.
func (r *runner) get(ctx context.Context) (st *stack.Stack, err error) {
	err = r.insist(ctx, func() error {
		st, err = r.cfg.Store.Get(ctx, r.id)
		return err
	})
	return st, err
}

// update changes the stack, and goes on trying as insist does: fn may run more
// than once.
func (r *runner) update(ctx context.Context, fn func(*stack.Stack) ([]stack.Event, error)) (st *stack.Stack, err error) {
	err = r.insist(ctx, func() error {
		st, err = r.cfg.Store.Update(ctx, r.id, fn)
		return err
	})
	return st, err
}

// updateOnce is update without trying again.
func (r *runner) updateOnce(ctx context.Context, fn func(*stack.Stack) ([]stack.Event, error)) (*stack.Stack, error) {
	return r.cfg.Store.Update(ctx, r.id, fn)
}

// storePause is the longest wait before the store is tried again.
const storePause = 5 * time.Second

// insist repeats do until the store works again, or ctx ends: what a job has
// done in the engine must not be lost for a full disk. What the stack's state
// does not allow is returned at once.
func (r *runner) insist(ctx context.Context, do func() error) error {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, storePause) {
		err := do()
		if err == nil || ctx.Err() != nil || stack.KindOf(err) != 0 {
			return err
		}
		r.log.Warn("the database does not work; trying again", "error", err)
		if !pause.For(ctx, wait) {
			return err
		}
	}
}
