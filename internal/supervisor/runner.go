package supervisor

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/berth-host/berth/internal/logfile"
	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// runner is the handle of one stack. A goroutine owns the stack's jobs, what it serves
// and its deadlines, and does what others ask of it; see loop.
type runner struct {
	sup     *Supervisor
	cfg     *Config
	log     *slog.Logger
	id      string
	ctx     context.Context // of all its work; ends with the stack or the server
	cancel  context.CancelFunc
	mailbox *mailbox
	exits   chan string   // containers that may have ended; see noteExit
	ended   chan struct{} // closed when nothing goes on any more
	epoch   int64         // in which this node took the stack; the row refuses the changes of any other
	deleted atomic.Bool   // whether the stack is deleted
	lost    atomic.Bool   // whether another node owns the stack
	moving  atomic.Bool   // whether it is being moved to one, and stopped for that

	isolated  atomic.Bool                // whether it stands still since the node is cut off: nothing leads to it, and no job begins
	cut       atomic.Bool                // whether it ever was isolated
	doubtful  atomic.Bool                // whether a change of the row may have taken effect that nobody waits for
	keeping   atomic.Bool                // whether something is being kept apart from the node
	pushing   atomic.Bool                // whether that is by keepApartLater
	apart     string                     // what was kept apart last; only whoever has set keeping uses it
	copying   atomic.Bool                // whether a snapshot of the data is being taken
	pausing   atomic.Bool                // whether the processes are paused for it
	hasPaused atomic.Bool                // whether they ever were by this server
	expiring  atomic.Bool                // whether it is being stopped to expire
	snapped   atomic.Bool                // whether the row may name a snapshot
	site      atomic.Pointer[bool]       // whether isSite may be true of the row; nil for false
	routed    atomic.Pointer[routed]     // by the last call of route; nil for none
	served    atomic.Pointer[generation] // nil if nothing is served; only the loop changes it
	work      sync.WaitGroup             // what goes on beside the job: watching, draining

	discardOnce func() // discard, the first time

	newer bool // the server found generations at start that the row does not explain

	// Why the deploy under way was stopped, nil if it was not. That is recorded once
	// the generation before serves again. Only jobs use it, one at a time, and take
	// before the first of them.
	stopped *stopped

	ready   *ready                // for the deploy that begins next; nil for none. Only jobs use it
	holding atomic.Pointer[ready] // what a job holds until a deploy begins; nil for nothing

	layering *semaphore.Weighted // held while layers with the source are made

	measuring   *semaphore.Weighted // held while what the stack takes on the disk is added up
	measureMore atomic.Bool         // whether that is to be done once more
	measured    atomic.Pointer[measurement]
	trims       atomic.Int64 // how often its build caches were trimmed

	left []WaitingDeploy // deploys that had not begun when the server stopped; after ended

	deployed atomic.Int64 // when the last deploy of this server ended, in Unix nanoseconds

	snapshotDue atomic.Int64 // when to look at the data again, in Unix nanoseconds
	snapshotOf  atomic.Int64 // the attempt that was served when the data was last looked at

	routing sync.Mutex // held while routes change

	mu       sync.Mutex
	together context.Context // ends with ctx, and when the node is cut off
	cutOff   context.CancelFunc
	logs     map[string]runLog // by service
	refusals map[string]int    // by image: how often in a row the engine refused to start it again

	transfers transfers // of data
}

// runLog is the open log of a service, shared by all its processes that write to it.
type runLog struct {
	file *logfile.File
	last time.Time // of the last line copied from the process that was let go last, or by an earlier server
}

// newRunner returns the runner of a stack that this node took in an epoch. An earlier server
// may have left generations that are newer than the row, and a deploy that it stopped.
func newRunner(s *Supervisor, id string, epoch int64, newer bool, stopped *stopped) *runner {
	r := &runner{
		sup: s, cfg: &s.cfg, log: s.cfg.Log.With("stack", id), id: id, epoch: epoch, newer: newer, stopped: stopped,
		mailbox: newMailbox(), exits: make(chan string, maxExits), ended: make(chan struct{}),
		layering: semaphore.NewWeighted(1), measuring: semaphore.NewWeighted(1), logs: map[string]runLog{}, refusals: map[string]int{},
	}
	r.ctx, r.cancel = context.WithCancel(s.ctx)
	r.rejoin()
	r.discardOnce = sync.OnceFunc(r.discard)
	s.jobs.Go(r.run)
	return r
}

// run owns the stack, and winds up once it is deleted, another node owns it or the server
// stops.
func (r *runner) run() {
	defer close(r.ended)
	l := &loop{runner: r, clock: time.NewTimer(0)}
	l.clock.Stop() // until startKeepingTime
	l.own()
	r.mailbox.close()
	r.windUp(l)
}

// windUp waits until nothing goes on with the stack any more. If the stack is deleted by then,
// all of it is removed, and if another node owns it, what runs here. Otherwise the
// containers go on.
func (r *runner) windUp(l *loop) {
	if r.deleted.Load() || r.lost.Load() && !r.moving.Load() {
		r.unroute() // first, since the rest may wait for the engine
	}
	if l.job != nil {
		<-l.job.ended
	}
	r.left = l.waitingDeploys()
	r.work.Wait()
	r.closeLogs()
	switch {
	case r.deleted.Load():
		r.discardOnce()
	case r.lost.Load():
		r.unroute() // perhaps again
		r.leave()
	}
}

// discard removes all that a deleted stack has, once nothing goes on with it. What cannot
// be removed is left to watchLeftovers.
func (r *runner) discard() {
	r.unroute()
	for r.pushing.Load() { // what is left lets the next server know, if this one dies, that the registry may have something
		time.Sleep(preparePause)
	}
	if err := r.removeStack(context.WithoutCancel(r.ctx)); err != nil {
		r.log.Warn("a deleted stack is not all removed; trying again later", "error", err)
	}
	r.forget()
}

// runJob runs a job in the background.
func (r *runner) runJob(j *job) {
	ctx, cancel := context.WithCancelCause(r.ctx)
	j.cancel = cancel
	r.sup.jobs.Go(func() {
		defer close(j.ended)
		defer cancel(nil)
		j.do(ctx)
	})
}

// startIdle starts a job and returns true, unless another job is under way that does not
// yield, or something starts or ends outside the jobs.
func (r *runner) startIdle(do func(context.Context)) bool {
	return r.startIf((*loop).isFree, &job{do: do})
}

// doIdle is startIdle, and returns when the job has ended or ctx ends.
func (r *runner) doIdle(ctx context.Context, do func(context.Context)) {
	r.await(ctx, r.startIdle, do)
}

// doYielding is startYielding, and returns when the job has ended or ctx ends.
func (r *runner) doYielding(ctx context.Context, do func(context.Context)) {
	r.await(ctx, r.startYielding, do)
}

// await has a job started, and returns when it has ended, if it has begun, or ctx ends.
func (r *runner) await(ctx context.Context, start func(func(context.Context)) bool, do func(context.Context)) {
	done := make(chan struct{})
	begun := start(func(ctx context.Context) {
		defer close(done)
		do(ctx)
	})
	if !begun {
		return
	}
	select {
	case <-done:
	case <-r.ended: // perhaps before the job began
	case <-ctx.Done():
	}
}

// startYielding starts a job that any other stops and returns true, unless the stack is not
// idle.
func (r *runner) startYielding(do func(context.Context)) bool {
	return r.startIf((*loop).isIdle, &job{do: do, yields: true})
}

func (r *runner) startIf(permits func(*loop) bool, j *job) bool {
	begun, _ := ask(r.ctx, r, func(l *loop) bool { // false if it has ended
		if !permits(l) {
			return false
		}
		l.queueJob(j)
		return true
	})
	return begun
}

// isIdleBeside reports whether nothing starts or ends outside the jobs.
func (r *runner) isIdleBeside() bool {
	idle, _ := ask(r.ctx, r, func(l *loop) bool { return l.aside == 0 })
	return idle
}

// goAside runs something beside the jobs. The stack is not idle meanwhile.
func (r *runner) goAside(do func()) {
	r.tell(func(l *loop) { l.aside++ })
	r.work.Go(func() {
		defer r.tell(func(l *loop) { l.aside-- })
		do()
	})
}

// markDeleted ends the loop of a deleted stack.
func (r *runner) markDeleted() {
	r.deleted.Store(true)
	r.cancel()
}

// discardStack ends the runner of a deleted stack, and returns when nothing of the
// stack is left, or the rest is left to watchLeftovers. It may be called more than
// once.
func (r *runner) discardStack() {
	r.markDeleted()
	<-r.ended
	r.discardOnce() // the loop may have ended before, with the server
}

// serving returns the served generation, or nil if there is none. It may be another one
// by the time it is used: whoever changes something for it asks the loop, which looks
// again, or does only what cannot harm a generation that has fallen.
func (r *runner) serving() *generation { return r.served.Load() }

// Down reports whether a stack is of this node and no generation of it is served. Its row may
// say that it is live: then it is being brought back.
func (s *Supervisor) Down(id string) bool {
	r := s.lookup(id)
	return r != nil && r.serving() == nil
}

// swapServed makes g the served generation and returns the one before.
func (r *runner) swapServed(g *generation) *generation {
	old, _ := ask(r.ctx, r, func(*loop) *generation { return r.served.Swap(g) })
	return old
}

// awaitFallen waits until a generation that fell has ended.
func (r *runner) awaitFallen(ctx context.Context) error {
	fallen, err := ask(ctx, r, func(l *loop) chan struct{} { return l.fallen })
	if err != nil || fallen == nil {
		return err
	}
	select {
	case <-fallen:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// runLog returns the log of a service's processes, which it opens the first time, and
// the time after which the log of a process that is adopted is still to be copied.
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

// leaveLog records the time of the last line copied from a service's process that is let
// go. Later, only this process or one started since may be adopted for the service.
func (r *runner) leaveLog(service string, last time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if log, ok := r.logs[service]; ok {
		r.logs[service] = runLog{log.file, last}
	}
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

// rowWait is how long one attempt to read a row may take.
const rowWait = 30 * time.Second

// get reads the stack, and tries again as retryStore does.
func (r *runner) get(ctx context.Context) (st *stack.Stack, err error) {
	err = r.retryStore(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, rowWait)
		defer cancel()
		st, err = r.cfg.Store.Get(ctx, r.id)
		return err
	})
	return st, err
}

// settle returns the row once no change of it is under way, one included whose commit was not
// answered. It tries as retryStore does, and notes if ctx ends first.
func (r *runner) settle(ctx context.Context) (*stack.Stack, error) {
	st, err := r.update(ctx, func(*stack.Stack) ([]stack.Event, error) { return nil, nil })
	r.doubtful.Store(err != nil)
	return st, err
}

// latest is get, but for a doubt that somebody has left: it settles that.
func (r *runner) latest(ctx context.Context) (*stack.Stack, error) {
	if r.doubtful.Load() {
		return r.settle(ctx)
	}
	return r.get(ctx)
}

// rejoin makes settling wait for the database from now on.
func (r *runner) rejoin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.together == nil || r.together.Err() != nil {
		r.together, r.cutOff = context.WithCancel(r.ctx)
	}
}

// settling returns a context for finding out what became of a change of the row, whatever has
// ended meanwhile but the server: whoever comes next goes by the row. A node that is cut off does
// not wait for that. Once it has rejoined, latest does.
func (r *runner) settling() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.together
}

// update changes the stack, and tries again as retryStore does: fn may run more than
// once.
func (r *runner) update(ctx context.Context, fn func(*stack.Stack) ([]stack.Event, error)) (st *stack.Stack, err error) {
	var tries store.Tries
	err = r.retryStore(ctx, func() error {
		st, err = r.change(ctx, fn, store.OneOf(&tries))
		return err
	})
	return st, err
}

// change changes the stack in one try, while this node owns it. If another node does, the
// runner lets the stack go.
func (r *runner) change(ctx context.Context, fn func(*stack.Stack) ([]stack.Event, error), options ...store.Option) (*stack.Stack, error) {
	known := r.site.Load()
	st, err := r.cfg.Store.Update(ctx, r.id, func(st *stack.Stack) ([]stack.Event, error) {
		before := isSite(st)
		events, err := fn(st)
		if may := before || isSite(st); err == nil { // others may know of the change before this node does
			known = &may
			r.site.Store(known)
		}
		return events, err
	}, append(options, store.ByOwner(r.cfg.Node, r.epoch))...)
	if err == nil {
		is := isSite(st)
		r.site.CompareAndSwap(known, &is) // unless another change has begun since
	}
	if errors.Is(err, store.ErrNotOwner) {
		r.disown()
	}
	return st, err
}

// note notes what a row says that was read.
func (r *runner) note(st *stack.Stack) {
	is := isSite(st)
	r.site.Store(&is)
	r.snapped.Store(!st.Snapshot.At.IsZero())
}

// updateByLoop is update by the loop, which does what follows from the change before
// anything else that it is asked, such as what follows from the next change.
func (r *runner) updateByLoop(ctx context.Context, change func(*stack.Stack) ([]stack.Event, error), then func(*loop, *stack.Stack)) (st *stack.Stack, err error) {
	done := r.retryByLoop(ctx, func(l *loop, tries *store.Tries) outcome {
		st, err := l.update(ctx, tries, change)
		if err == nil {
			then(l, st)
		}
		return outcome{st: st, err: err}
	})
	return done.st, done.err
}

// retryByLoop is byLoop, tried again as retryStore does.
func (r *runner) retryByLoop(ctx context.Context, change func(*loop, *store.Tries) outcome) (done outcome) {
	var tries store.Tries
	_ = r.retryStore(ctx, func() error { // the error is that of the last outcome
		done = r.byLoop(ctx, func(l *loop) outcome { return change(l, &tries) })
		return done.err
	})
	if tries.InDoubt != "" { // the error may be one of what has ended since
		r.doubtful.Store(true)
		done.err = errors.Join(done.err, store.ErrInDoubt)
	}
	return done
}

// byLoop makes the loop change the row, in one try. Even if ctx ends, it waits for what
// the loop has begun, since that must be known.
func (r *runner) byLoop(ctx context.Context, change func(*loop) outcome) outcome {
	done, err := ask(context.WithoutCancel(ctx), r, change)
	done.err = cmp.Or(err, done.err)
	return done
}

// storePause is the longest wait between two attempts to reach the store.
const storePause = 5 * time.Second

// retryStore repeats do until the store works, or ctx ends: what a job has done in the
// engine must not be lost because a disk is full. It returns a *stack.Error at once.
func (r *runner) retryStore(ctx context.Context, do func() error) error {
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
