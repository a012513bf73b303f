package supervisor

import (
	"context"
	"errors"
	"time"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/stack"
)

// startKeepingTime begins to keep the stack's deadlines. Whoever takes the stack over,
// or creates it, first queues what has to come before.
func (l *loop) startKeepingTime() {
	l.keeping = true
	l.keepTime()
}

// keepTimeOf is startKeepingTime with a row that is known, which spares many stacks a read each
// when a server starts.
func (l *loop) keepTimeOf(st *stack.Stack) {
	l.keeping = true
	l.lookedAt(st, nil)
}

// keepTime reads the row, beside the loop, and then does what is due. What wakes the
// loop meanwhile makes it read the row again.
func (l *loop) keepTime() {
	r := l.runner
	switch {
	case !l.keeping || l.meeting:
		return
	case l.reading:
		l.stale = true
		return
	}
	l.reading = true
	r.sup.jobs.Go(func() {
		st, err := r.get(r.ctx)
		r.tell(func(l *loop) { l.lookedAt(st, err) })
	})
}

// lookedAt does what only depends on time: the notice before the expiry, the expiry, the
// end of the retention. Deadlines that passed while the server was down are met at once.
// It also discards the stack once its row says that it is deleted, and lets it go once the row
// names another owner.
func (l *loop) lookedAt(st *stack.Stack, err error) {
	r := l.runner
	stale := l.stale
	l.reading, l.stale = false, false
	switch {
	case isDeleted(err):
		r.markDeleted() // with its account, or by another process: nobody else removes it
		return
	case err != nil:
		return // the loop ends
	case !r.owns(st):
		r.disown()
		return
	case stale:
		l.keepTime()
		return
	}
	l.removeDropped(st)
	now := stack.Now()
	what, at := st.Next(r.cfg.Limits, now)
	switch {
	case l.unfinished && !st.Due(now) && !st.Restoring():
		l.meeting = true
		l.queue(l.runner.expiry) // a deploy since then brings the stack back as well
	case what == "":
		l.clock.Stop()
	case now.Before(at):
		l.clock.Reset(untilNextLook(at.Sub(now)))
	default:
		l.runDeadline(what)
	}
}

// removeDropped removes the build caches that the row has dropped since the last look. If
// something else is being done with the stack, watchLeftovers removes them later.
func (l *loop) removeDropped(st *stack.Stack) {
	if st.CachesDropped == l.dropped {
		return
	}
	l.dropped = st.CachesDropped
	if l.isFree() && st.Deploying == 0 {
		l.queue(func(ctx context.Context) {
			there, err := l.runner.inventory(ctx)
			failpoint.Here("kept-dropped")
			if err == nil {
				l.runner.tidy(ctx, there)
			}
		})
	}
}

// untilNextLook returns how long to wait before a deadline is looked at again, a minute
// at most: a timer does not count the time while the machine sleeps or the changes an
// operator makes, so the clock has to be read again.
func untilNextLook(left time.Duration) time.Duration { return min(left, time.Minute) }

// deadlineRetry is how long to wait before a deadline that could not be met is tried
// again.
const deadlineRetry = time.Second

// runDeadline does what is due, beside the loop. When it is done, the loop looks again.
func (l *loop) runDeadline(what stack.Trigger) {
	r := l.runner
	l.meeting = true
	switch what {
	case stack.TriggerNotice:
		r.sup.jobs.Go(func() { r.endDeadline(what, r.notice()) })
	case stack.TriggerExpire:
		l.interrupt(errTimeRanOut, r.expiry)
	case stack.TriggerRetained:
		r.sup.jobs.Go(func() { r.endDeadline(what, r.retained()) })
	}
}

// expiry is the job that ends the stack's time.
func (r *runner) expiry(ctx context.Context) { r.endDeadline(stack.TriggerExpire, r.expire(ctx)) }

// endDeadline tells the loop how an attempt to meet a deadline ended.
func (r *runner) endDeadline(what stack.Trigger, err error) {
	r.tell(func(l *loop) { l.deadlineOver(what, err) })
}

// deadlineOver records the end of an attempt to meet a deadline. After an error the
// loop looks again a little later; the row says whether it is still due. An expiry that
// failed is tried again in any case, since it may have stopped processes: if it is no
// longer due, that brings them back.
func (l *loop) deadlineOver(what stack.Trigger, err error) {
	l.meeting = false
	l.unfinished = what == stack.TriggerExpire && err != nil
	if err != nil && l.runner.ctx.Err() == nil {
		if !errors.Is(err, context.Canceled) { // as by a claim, whose job brings the stack back
			l.runner.log.Error("deadline not met; trying again", "deadline", what, "error", err)
		}
		l.clock.Reset(deadlineRetry)
		return
	}
	l.keepTime()
}

// notice records that the expiry is near, unless it has been put off meanwhile.
func (r *runner) notice() error {
	_, err := r.update(r.ctx, func(st *stack.Stack) ([]stack.Event, error) {
		now := stack.Now()
		if what, at := st.Next(r.cfg.Limits, now); what != stack.TriggerNotice || now.Before(at) {
			return nil, nil
		}
		return st.Notice()
	})
	failpoint.Here("notice-committed")
	return err
}

// expire ends the time of an unclaimed stack: its processes stop, and what can bring it
// back is kept.
func (r *runner) expire(ctx context.Context) error {
	st, err := r.get(ctx)
	if err != nil {
		return err
	}
	switch {
	case st.Status == stack.Expired: // by an attempt that nobody waited for
		r.byLoop(ctx, func(l *loop) outcome { l.hasExpired(st); return outcome{} })
	case !st.Due(stack.Now()): // it was claimed, or got more time, while the job before this one ended
		r.callOffExpiry(ctx, st)
		return nil
	default:
		r.expiring.Store(true)
		st, err = r.stopAndExpire(ctx, st)
		r.expiring.Store(false)
		if err != nil {
			return err
		}
	}
	r.stopped = nil
	r.snapped.Store(false)
	r.snapshotOf.Store(0) // if it comes back, its data is looked at again
	r.removeNetworks(ctx, st)
	r.keepData(ctx)
	return nil
}

// stopAndExpire stops the processes and commits the expiry.
func (r *runner) stopAndExpire(ctx context.Context, st *stack.Stack) (*stack.Stack, error) {
	if err := r.stopServing(ctx, st); err != nil {
		return nil, err
	}
	failpoint.Here("expiry-stopped")
	change := func(st *stack.Stack) ([]stack.Event, error) { return st.Expire(r.cfg.URLs, r.cfg.Limits, stack.Now()) }
	return r.updateByLoop(ctx, change, func(l *loop, st *stack.Stack) {
		failpoint.Here("expiry-committed")
		l.hasExpired(st)
	})
}

// hasExpired does at once what follows from an expiry.
func (l *loop) hasExpired(st *stack.Stack) {
	l.dropDeploys(st.Attempt + 1)
	l.runner.route(st, nil)
}

// stopServing takes a stack out of the routes and stops all its processes.
func (r *runner) stopServing(ctx context.Context, st *stack.Stack) (err error) {
	old := r.swapServed(nil)
	paused := r.route(st, nil)
	r.sup.jobs.Go(func() { r.drainAll(paused) })
	if old != nil {
		err = old.endAll(ctx)
	}
	return errors.Join(err, r.sup.stopContainers(ctx, engine.Key{Stack: r.id}))
}

// callOffExpiry brings back a stack that is not to expire after all, if an attempt stopped
// its processes or a deploy. One that was claimed meanwhile is restored by another job.
func (r *runner) callOffExpiry(ctx context.Context, st *stack.Stack) {
	if !st.Restoring() && (r.serving() == nil || r.stopped != nil) {
		r.recoverStack(ctx)
	}
}

// retained deletes an unclaimed stack at the end of its retention, and returns once the
// runner has ended.
func (r *runner) retained() error {
	return r.sup.endStack(context.WithoutCancel(r.ctx), r.id, func(st *stack.Stack) ([]stack.Event, error) {
		return st.Retained(stack.Now())
	})
}
