package supervisor

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-host/berth/internal/stack"
)

// noteStop keeps why a deploy was stopped, if the owner has to learn that. Whoever
// stopped it records the reason.
func (r *runner) noteStop(ctx context.Context) { errors.As(context.Cause(ctx), &r.stopped) }

// endStopped ends, in the row, a deploy that was stopped.
func (r *runner) endStopped(st *stack.Stack) ([]stack.Event, error) {
	if r.stopped == nil || st.Deploying == 0 {
		return nil, nil
	}
	return st.DeployFailed(r.stopped.Detail)
}

// failStopped fails a stack whose build was stopped and that nothing can serve.
func (r *runner) failStopped(ctx context.Context) {
	if r.stopped != nil && r.recordDeployFailed(ctx, r.stopped) {
		r.stopped = nil
	}
}

// errEngineLeft is why a build failed during which the engine was restarted.
func errEngineLeft(generation int) error {
	return stack.NewError(stack.Unavailable, fmt.Sprintf(
		"the Docker engine of this host was restarted while generation %d was being built; upload the source again", generation))
}

// errInterrupted is why a build failed that a dead server had begun.
func errInterrupted(generation int) *stack.Error {
	return stack.NewError(stack.Unavailable, fmt.Sprintf(
		"the server was restarted while generation %d was being built; upload the source again", generation))
}

// errTimeRanOut is why a build was stopped for an expiry that did not happen.
var errTimeRanOut = stack.NewError(stack.Conflict, "the build was stopped as the stack's time ran out, just before it was claimed; upload the source again")
