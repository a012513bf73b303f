package builder

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/berth-host/berth/internal/stack"
)

// A request to the engine that is cut off fails with the cause, which is the
// fault of another service.
func TestReason_OfABuildThatAnotherServicesFaultStopped(t *testing.T) {
	own := stack.NewError(stack.Unprocessable, "service api: build failed")
	assert.Equal(t, "service api: build failed", reason(t.Context(), own))
	assert.Equal(t, "an error of the host", reason(t.Context(), assert.AnError))

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(own)
	assert.Equal(t, "stopped", reason(ctx, fmt.Errorf("inspect image: %w", context.Cause(ctx))))
	assert.Equal(t, "stopped", reason(ctx, ctx.Err()))
}
