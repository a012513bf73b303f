package pause

import (
	"context"
	"time"
)

const (
	// slice is how long work is done without a rest, and restShare how much longer the rest is,
	// so that all work takes 1% of the time.
	slice     = 2 * time.Millisecond
	restShare = 99
)

// Turns lets long work be done in a small part of the time: all of it is under way at once, and
// takes turns.
type Turns struct {
	taken chan struct{} // has a value while somebody works or rests
}

// NewTurns returns a Turns.
func NewTurns() *Turns { return &Turns{make(chan struct{}, 1)} }

// Do does work, which calls step after each small part of it, and ends with the error of that.
// The error is that of the context if it ends.
func (t *Turns) Do(ctx context.Context, work func(step func() error) error) error {
	w := &turn{of: t, ctx: ctx}
	if err := w.begin(); err != nil {
		return err
	}
	defer w.rest()
	return work(w.step)
}

// turn is work under way.
type turn struct {
	of    *Turns
	ctx   context.Context
	began time.Time // of its slice
	has   bool      // it has the turn
}

// begin waits for the turn, or the end of the context.
func (w *turn) begin() error {
	select {
	case w.of.taken <- struct{}{}:
		w.began, w.has = time.Now(), true
		return nil
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

// step lets others have a turn after a slice.
func (w *turn) step() error {
	if time.Since(w.began) < slice {
		return nil
	}
	w.rest()
	return w.begin()
}

// rest rests for the slice, while nobody else works, and gives up the turn, if the work has it.
func (w *turn) rest() {
	if !w.has {
		return
	}
	w.has = false
	For(w.ctx, restShare*time.Since(w.began))
	<-w.of.taken
}
