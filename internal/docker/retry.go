package docker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/pause"
)

// A request whose answer is lost is repeated where asking twice is as good as asking
// once: a few times for most, and for as long as a restart of the engine may take for
// what removes or stops something, since nobody might ask for that later.
const (
	retryTries = 3
	retryPause = 50 * time.Millisecond
	removal    = 30 * time.Second
)

// finishTime is how long a step that must not be left half done goes on after its context
// has ended, as engine.Driver says: copying much data takes long.
const finishTime = 5 * time.Minute

// toFinish returns a context for a step that must not be left half done: it ends when
// finishTime has passed since the end of ctx. The caller calls done once the step is done.
func toFinish(ctx context.Context) (longer context.Context, done func()) {
	longer, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		pause.For(longer, finishTime)
		end()
	})
	return longer, func() { stop(); end() }
}

// repeat makes a request until it succeeds, mayRetry returns false, or ctx ends.
func repeat(ctx context.Context, ask func() error, mayRetry func(error) bool) error {
	for {
		err := ask()
		if err == nil || !mayRetry(err) || !pause.For(ctx, retryPause) {
			return err
		}
	}
}

// retry makes a request until an answer comes, a few times.
func retry(ctx context.Context, ask func() error) error {
	tries := 0
	return repeat(ctx, ask, func(err error) bool {
		tries++
		return errors.Is(err, engine.ErrUnreachable) && tries < retryTries
	})
}

// retryGet is retry for a request with a result. Its error names the operation op.
func retryGet[T any](ctx context.Context, ask func() (T, error), op string, args ...any) (found T, err error) {
	err = retry(ctx, func() (err error) {
		found, err = ask()
		return wrap(err, op, args...)
	})
	return found, err
}

// retryUndone is retry for a request that must not have its effect twice: once an answer
// was lost, done looks whether the engine did what it was asked. The request is not made
// again before that is known.
func retryUndone(ctx context.Context, ask func() error, done func() (bool, error)) error {
	lost := false
	return retry(ctx, func() error {
		if lost {
			if did, err := done(); did || err != nil {
				return err
			}
		}
		err := ask()
		lost = lost || errors.Is(err, engine.ErrUnreachable)
		if err == nil || !lost {
			return err
		}
		// An engine that did it late refuses the second request.
		if did, lookErr := done(); did && lookErr == nil {
			return nil
		}
		return err
	})
}

// retryLong is retry for as long as a removal is tried, from the first request without
// an answer. An error that is one of others counts as none.
func retryLong(ctx context.Context, ask func() error, others ...error) error {
	var giveUp time.Time
	return repeat(ctx, ask, func(err error) bool {
		if giveUp.IsZero() {
			giveUp = time.Now().Add(removal)
		}
		return isAny(err, append(others, engine.ErrUnreachable)) && time.Now().Before(giveUp)
	})
}

// retryRemoval removes something, by retryLong, within the time for a removal. What is
// not there is removed.
func retryRemoval(ctx context.Context, remove func(context.Context) error, others ...error) error {
	ctx, cancel := context.WithTimeout(ctx, removal)
	defer cancel()
	return retryLong(ctx, func() error { return unlessGone(remove(ctx)) }, others...)
}

func isAny(err error, targets []error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}
