// Package pause waits. Nothing in it knows what for.
package pause

import (
	"context"
	"time"
)

// For waits for d, which may be 0 or less, and reports whether ctx lasted that
// long.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
