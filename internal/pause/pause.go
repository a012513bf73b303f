// Package pause waits for a time or the end of a context, and paces long work.
package pause

import (
	"context"
	"time"
)

// For waits for d, which may be 0 or negative, and reports whether ctx lasted that
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
