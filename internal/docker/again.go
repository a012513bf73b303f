package docker

import (
	"context"
	"errors"
	"time"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/pause"
)

// A request whose answer is lost is made again where asking twice is as good as
// asking once: so often for most, and for as long as a restart of the engine may
// take for what removes something, since nobody might ask for that later.
const (
	askTries     = 3
	askPause     = 50 * time.Millisecond
	removal      = 30 * time.Second
	removalPause = 50 * time.Millisecond
)

// again makes a request until an answer comes, a few times.
func again(ctx context.Context, ask func() error) error {
	for try := 1; ; try++ {
		err := ask()
		if !errors.Is(err, engine.ErrUnreachable) || try == askTries || !pause.For(ctx, askPause) {
			return err
		}
	}
}

// persist is again for as long as a removal is insisted on, from the first
// request without an answer; an error that is one of others counts as none.
func persist(ctx context.Context, ask func() error, others ...error) error {
	var giveUp time.Time
	for {
		err := ask()
		if !isAny(err, append(others, engine.ErrUnreachable)) {
			return err
		}
		if giveUp.IsZero() {
			giveUp = time.Now().Add(removal)
		}
		if time.Now().After(giveUp) || !pause.For(ctx, removalPause) {
			return err
		}
	}
}

// answered is again for a request with a result.
func answered[T any](ctx context.Context, ask func() (T, error)) (found T, err error) {
	err = again(ctx, func() (err error) {
		found, err = ask()
		return err
	})
	return found, err
}

// insist removes something while no answer comes or the error is one of others.
func insist(ctx context.Context, remove func(context.Context) error, others ...error) error {
	ctx, cancel := context.WithTimeout(ctx, removal)
	defer cancel()
	return persist(ctx, func() error { return remove(ctx) }, others...)
}

func isAny(err error, targets []error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
