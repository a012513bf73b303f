package supervisor

import (
	"context"
	"slices"
	"time"

	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// loop is the state of the goroutine that owns a stack. Nobody else reads or changes
// it: others ask the loop (see ask), and it does one thing after the other. It never
// waits for a job, the engine or a row to be read. It waits only for changes of the row
// that must agree with the routes; it tries such a change once, and gives up after
// storeWait.
type loop struct {
	runner *runner

	job     *job   // under way; nil if none is
	pending []*job // in the order in which they run
	aside   int    // how many processes and generations start or end outside the jobs

	recovered *generation   // served, and about to be brought back since it ended with the engine; or nil
	fallen    chan struct{} // closed when the generation that fell last has ended; nil if none has fallen

	keeping    bool        // whether deadlines are kept; see startKeepingTime
	clock      *time.Timer // fires when the row is to be read again
	reading    bool        // whether the row is being read
	stale      bool        // whether the row has changed since the reading began
	meeting    bool        // whether a deadline is being met; the loop looks again when that is over
	unfinished bool        // whether the last expiry failed half way
	dropped    int         // how often the row had dropped the build caches at the last look
}

// job is long work on a stack. One runs at a time.
type job struct {
	do     func(context.Context)
	cause  error // what stops the job before it; nil to wait until that has ended
	yields bool  // whether any other job stops it
	cancel context.CancelCauseFunc
	ended  chan struct{} // closed when it has ended

	// Of a deploy; zero for other jobs.
	attempt   int
	next      stack.Generation   // what it builds
	synced    bool               // all of its source is on disk
	supersede context.CancelFunc // makes it end as one that another deploy has superseded
}

// own does what is asked and what is due, until the stack is deleted or the server
// stops.
func (l *loop) own() {
	r := l.runner
	woken, stop := r.cfg.Store.Watch(r.id)
	defer stop()
	defer l.clock.Stop()
	for {
		var ended <-chan struct{}
		if l.job != nil {
			ended = l.job.ended
		}
		select {
		case <-r.mailbox.filled:
			r.mailbox.take()(l)
		case container := <-r.exits:
			l.pokeProcess(container)
		case <-ended:
			l.job = nil
			l.nextJob()
		case <-woken:
			l.keepTime()
		case <-l.clock.C:
			l.keepTime()
		case <-r.ctx.Done():
			return
		}
	}
}

// interrupt stops the job under way for the cause, and runs another one once it has
// ended.
func (l *loop) interrupt(cause error, do func(context.Context)) {
	at := slices.IndexFunc(l.pending, func(j *job) bool { return j.cause == nil })
	if at < 0 {
		at = len(l.pending)
	}
	l.pending = slices.Insert(l.pending, at, &job{do: do, cause: cause, ended: make(chan struct{})})
	l.nextJob()
}

// queueDeploy queues the deploy of a generation. synced means that all of its source is
// on disk.
func (l *loop) queueDeploy(next stack.Generation, synced bool) {
	superseded, supersede := context.WithCancel(context.Background())
	deploy := func(ctx context.Context) {
		defer supersede()
		l.runner.deploy(ctx, superseded, next, synced)
	}
	l.queueJob(&job{do: deploy, attempt: next.Attempt, next: next, synced: synced, supersede: supersede})
}

// supersede ends the deploys that another one supersedes. One that is under way gives
// back what it has halted, and removes what it has made, before the next job begins.
func (l *loop) supersede(by stack.Deploy) {
	if by.Supersedes == 0 {
		return
	}
	l.dropDeploys(by.Attempt)
	if l.job != nil && l.job.attempt != 0 && l.job.attempt < by.Attempt {
		l.job.supersede()
	}
}

// dropDeploys drops the deploys that wait, of attempts before the given one: the stack
// has expired, or another deploy supersedes them.
func (l *loop) dropDeploys(before int) {
	l.pending = slices.DeleteFunc(l.pending, func(j *job) bool {
		drop := j.attempt != 0 && j.attempt < before
		if drop {
			j.supersede()
			l.runner.removeSource(j.next.Source)
		}
		return drop
	})
}

// queue runs a job once all jobs before it have ended by themselves.
func (l *loop) queue(do func(context.Context)) { l.queueJob(&job{do: do}) }

func (l *loop) queueJob(j *job) {
	j.ended = make(chan struct{})
	l.pending = append(l.pending, j)
	l.nextJob()
}

// nextJob starts the first of the waiting jobs if none is under way, and stops the one
// under way if the next does not wait for it. No deploy begins while the supervisor is quiet, and
// on a node that is cut off only what ends another job.
func (l *loop) nextJob() {
	if l.job == nil && len(l.pending) > 0 && l.mayBegin(l.pending[0]) {
		l.job, l.pending = l.pending[0], l.pending[1:]
		l.runner.runJob(l.job)
	}
	if l.job == nil || len(l.pending) == 0 {
		return
	}
	switch next := l.pending[0]; {
	case next.cause != nil:
		l.job.cancel(next.cause)
	case l.job.yields && next.attempt != 0:
		l.job.cancel(errDeployFollows)
	case l.job.yields:
		l.job.cancel(nil)
	}
}

func (l *loop) mayBegin(j *job) bool {
	return !(j.attempt != 0 && l.runner.sup.quiet.Load()) && !(j.cause == nil && l.runner.isolated.Load())
}

// isIdle reports whether no job is under way or waits, and nothing starts or ends outside
// the jobs.
func (l *loop) isIdle() bool { return l.job == nil && l.isFree() }

// isFree is isIdle, but a job may be under way that yields.
func (l *loop) isFree() bool {
	return !l.runner.isolated.Load() && (l.job == nil || l.job.yields) && len(l.pending) == 0 && l.aside == 0
}

// goAside runs something beside the jobs. The stack is not idle meanwhile.
func (l *loop) goAside(do func()) {
	l.aside++
	l.runner.work.Go(func() {
		defer l.runner.tell(func(l *loop) { l.aside-- })
		do()
	})
}

// recoverLost brings back the served generation after it lost a process with the
// engine: once, however many notice.
func (l *loop) recoverLost(g *generation) {
	if l.runner.serving() == g && l.recovered != g {
		l.recovered = g
		l.interrupt(errEngineLeft(g.made.Number+1), func(ctx context.Context) {
			l.runner.recoverStack(ctx)
			l.runner.tell(func(l *loop) { l.recoveryOver(g) })
		})
	}
}

// recoveryOver ends an attempt to bring a generation back, which may have been stopped
// before it began.
func (l *loop) recoveryOver(g *generation) {
	if l.recovered == g {
		l.recovered = nil
	}
}

// storeWait is how long the loop waits for a change of the row. After an error, whoever
// asked the loop tries again after a pause, in which the loop does something else.
const storeWait = 5 * time.Second

// update changes the row by one of several tries, or the only one if tries is nil, for about
// storeWait at most. Exits are heard of meanwhile: the address of a process that has ended may
// be another's a moment later.
func (l *loop) update(ctx context.Context, tries *store.Tries, fn func(*stack.Stack) ([]stack.Event, error)) (st *stack.Stack, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	changed := make(chan struct{})
	l.runner.work.Go(func() {
		defer close(changed)
		st, err = l.runner.change(ctx, fn, store.OneOf(tries))
	})
	for {
		select {
		case container := <-l.runner.exits:
			l.pokeProcess(container)
		case <-changed:
			return st, err
		}
	}
}

// outcome is what came of a change of the row by the loop.
type outcome struct {
	was     *stack.Stack // the row before, if this try switched the routes; nil otherwise
	st      *stack.Stack
	drained []*proxy.Target // targets that nothing is routed to any more
	err     error
}

// switchTo changes the row, within the transaction routes to a generation, and makes it
// the served one. It is one of several tries, and the routes stay if the change fails after
// that.
func (l *loop) switchTo(ctx context.Context, tries *store.Tries, g *generation, committed string, change func(*stack.Stack) ([]stack.Event, error)) (done outcome) {
	done.st, done.err = l.update(ctx, tries, func(st *stack.Stack) ([]stack.Event, error) {
		was := *st
		events, err := change(st)
		if err == nil {
			done.was, done.drained = &was, l.runner.route(st, g)
		}
		return events, err
	})
	if done.err != nil {
		return done
	}
	failpoint.Here(committed)
	if done.was == nil { // an earlier try took effect
		done.drained = l.runner.route(done.st, g)
	}
	l.runner.served.Store(g)
	return done
}

// switchOrReturn is switchTo, but if the change fails, the routes lead again where they
// led before.
func (l *loop) switchOrReturn(ctx context.Context, tries *store.Tries, g *generation, committed string, change func(*stack.Stack) ([]stack.Event, error)) outcome {
	done := l.switchTo(ctx, tries, g, committed, change)
	if done.err != nil && done.was != nil {
		l.runner.route(done.was, l.runner.serving())
		done.drained = nil
	}
	return done
}
