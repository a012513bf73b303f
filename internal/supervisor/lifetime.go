package supervisor

import (
	"context"
	"errors"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/stack"
)

// notice records that the expiry is near, unless it was put off meanwhile.
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

// expire ends the time of an unclaimed stack: its processes stop, and what can
// bring it back is kept.
func (r *runner) expire(ctx context.Context) error {
	st, err := r.get(ctx)
	if err != nil {
		return err
	}
	if !st.Due(stack.Now()) && r.stopped == nil && r.serving() != nil {
		return nil // it was claimed, or got more time, while the job before this one ended
	}
	old := r.swapServed(nil)
	paused := r.route(st, nil)
	r.sup.jobs.Go(func() { r.drainAll(paused) })
	if old == nil {
		old = r.generation(st, st.Generation, st.Services)
	}
	if err := errors.Join(old.endAll(ctx), r.sup.stopContainers(ctx, engine.Key{Stack: r.id})); err != nil {
		return err
	}
	failpoint.Here("expiry-stopped")
	st, err = r.update(ctx, func(st *stack.Stack) ([]stack.Event, error) {
		return st.Expire(r.cfg.URLs, r.cfg.Limits, stack.Now())
	})
	if stack.KindOf(err) == stack.Conflict {
		return r.claimedMeanwhile(ctx)
	}
	if err != nil {
		return err
	}
	failpoint.Here("expiry-committed")
	r.stopped = nil
	r.route(st, nil)
	r.removeNetworks(ctx, st)
	r.keepData(ctx)
	return nil
}

// errTimeRanOut is why a build was stopped for an expiry that did not come.
var errTimeRanOut = stack.NewError(stack.Conflict, "the build was stopped as the stack's time ran out, just before it was claimed; upload the source again")

// claimedMeanwhile brings a stack back that was claimed while its processes
// were being stopped. A build that was under way is lost, and says so.
func (r *runner) claimedMeanwhile(ctx context.Context) error {
	st, err := r.get(ctx)
	if err != nil {
		return err
	}
	r.route(st, nil)
	if st.Status == stack.Live {
		r.bringBack(ctx, r.generation(st, st.Generation, st.Services))
		return nil
	}
	r.failStopped(ctx)
	return nil
}

// retained deletes an unclaimed stack at the end of its retention. That ends the
// runner, and waits until it has ended.
func (r *runner) retained() error {
	return r.sup.endStack(context.WithoutCancel(r.ctx), r.id, func(st *stack.Stack) ([]stack.Event, error) {
		return st.Retained(stack.Now())
	})
}
