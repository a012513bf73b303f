package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/stack"
)

// stopped is a deploy that was stopped, and why, if its owner has to learn that.
type stopped struct {
	attempt int
	reason  *stack.Error
}

// noteStop keeps why an attempt was stopped, if the owner has to learn that. Whoever
// stopped it records the reason.
func (r *runner) noteStop(ctx context.Context, attempt int) {
	if reason, ok := errors.AsType[*stack.Error](context.Cause(ctx)); ok {
		r.stopped = &stopped{attempt, reason}
	}
}

// awaitsEnd reports whether the row still has to learn that a deploy was stopped. It does
// not if another one has superseded that.
func (r *runner) awaitsEnd(st *stack.Stack) bool {
	return r.stopped != nil && st.Deploying != 0 && st.Attempt == r.stopped.attempt
}

// endStopped ends, in the row, a deploy that was stopped.
func (r *runner) endStopped(st *stack.Stack) ([]stack.Event, error) {
	if !r.awaitsEnd(st) {
		return nil, nil
	}
	return st.DeployFailed(r.stopped.reason.Detail, stack.Now())
}

// failStopped fails a stack whose build was stopped and that nothing can serve.
func (r *runner) failStopped(ctx context.Context) {
	if r.stopped != nil && r.recordDeployFailed(ctx, r.stopped.attempt, stack.Progress{}, r.stopped.reason) {
		r.stopped = nil
	}
}

// accepted is what a change that a request made has accepted.
type accepted struct {
	deploy    bool
	startedAt time.Time // of the deploy
	restore   bool      // of a stack that was claimed
	stop      bool      // of the whole stack
}

// settleLater does what follows from a change that a request made while the database went
// away, so that nobody knows whether it took effect, once that is known. Whoever made it has
// been told that it did not.
func (r *runner) settleLater(asked accepted) {
	r.sup.jobs.Go(func() {
		if st, err := r.settle(r.ctx); err == nil { // else the loop ends
			r.tell(func(l *loop) { l.settle(st, asked) })
		}
	})
}

// settle fails a deploy that was accepted after all, brings back a stack that was claimed, and
// ends what runs of one that was stopped.
func (l *loop) settle(st *stack.Stack, asked accepted) {
	r := l.runner
	switch {
	case asked.stop && st.Status == stack.Failed:
		l.endStoppedStack(st, nil)
	case asked.restore && st.Restoring():
		l.dropDeploys(st.Attempt + 1)
		l.interrupt(context.Canceled, r.restoreLate)
	case asked.deploy && st.Deploying != 0 && st.LastDeploy.StartedAt.Equal(asked.startedAt):
		l.supersede(st.LastDeploy)
		l.queue(func(ctx context.Context) {
			if !r.recordDeployFailed(ctx, st.Attempt, stack.Progress{}, errUnanswered(st.Deploying)) {
				r.settleLater(asked) // another job came first
			}
		})
	}
}

// errUnanswered is why a deploy failed that was not known to have been accepted.
func errUnanswered(generation int) error {
	return stack.NewError(stack.Unavailable, fmt.Sprintf(
		"the database went away while generation %d was being accepted; upload the source again, with a new Idempotency-Key if you use one", generation))
}

// errSuperseded is why a deploy ends whose place another one has taken. The row says so
// already.
var errSuperseded = stack.NewError(stack.Conflict, "another deploy has taken the place of this one")

// errEngineLeft is why a build failed during which the engine was restarted.
func errEngineLeft(generation int) error {
	return stack.NewError(stack.Unavailable, fmt.Sprintf(
		"the Docker engine of this host was restarted while generation %d was being built; upload the source again, with a new Idempotency-Key if you use one", generation))
}

// errInterrupted is why a build failed that a dead server had begun.
func errInterrupted(generation int) *stack.Error {
	return stack.NewError(stack.Unavailable, fmt.Sprintf(
		"the server was restarted while generation %d was being built; upload the source again, with a new Idempotency-Key if you use one", generation))
}

// errTimeRanOut is why a build was stopped for an expiry that did not happen.
var errTimeRanOut = stack.NewError(stack.Conflict, "the build was stopped as the stack's time ran out, just before it was claimed; upload the source again")

// errStopped is why a build or a copy of data ended when the stack was stopped. The row says
// why already.
var errStopped = stack.NewError(stack.Conflict, "the stack has been stopped; its error says why")

// Stop makes a stack failed for a reason that its owner is told, and returns once nothing of it
// runs. Its data stays. A build that is under way ends. If the state does not allow it, the
// error is a *stack.Error and nothing has changed.
func (s *Supervisor) Stop(ctx context.Context, id, reason string) error {
	r := s.lookup(id)
	if r == nil {
		return s.whyNotHere(ctx, id)
	}
	if r.moving.Load() {
		return errMoving
	}
	stop := func(st *stack.Stack) ([]stack.Event, error) { return st.Stop(reason, stack.Now()) }
	done := make(chan error, 1)
	// By the loop, so that what ends for the stop is of before it, and no deploy of after.
	stopped := r.byLoop(ctx, func(l *loop) outcome {
		st, err := l.update(ctx, nil, stop)
		if err == nil {
			failpoint.Here("stop-committed")
			l.endStoppedStack(st, done)
		}
		return outcome{err: err}
	})
	if stopped.err != nil {
		if stack.KindOf(stopped.err) == 0 {
			r.settleLater(accepted{stop: true})
		}
		return stopped.err
	}
	select {
	case err := <-done:
		return err
	case <-r.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-done:
		return err
	default: // the job did not begin
		return r.gone()
	}
}

// endStoppedStack ends what goes on with a stack that was stopped, and then all
// that runs of it. The result goes to done, which may be nil.
func (l *loop) endStoppedStack(st *stack.Stack, done chan<- error) {
	r := l.runner
	l.dropDeploys(st.Attempt + 1)
	r.route(st, nil)
	l.interrupt(errStopped, func(ctx context.Context) {
		r.stopped = nil
		if err := r.endStoppedStack(ctx, st); done != nil {
			done <- err
		}
	})
}

// endStoppedStack ends all that runs of a stack that was stopped. What fails is done
// at the next start.
func (r *runner) endStoppedStack(ctx context.Context, st *stack.Stack) error {
	if err := r.stopServing(ctx, st); err != nil {
		return err
	}
	r.removeNetworks(ctx, st)
	return nil
}
