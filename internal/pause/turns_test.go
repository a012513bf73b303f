package pause_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-host/berth/internal/pause"
)

// work takes a tenth of a millisecond for each of n parts.
func work(n int) func(step func() error) error {
	return func(step func() error) error {
		for range n {
			time.Sleep(100 * time.Microsecond)
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	}
}

func TestTurns_TakeASmallPartOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, began := pause.NewTurns(), time.Now()
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				if err := turns.Do(t.Context(), work(1_000)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took < 19*time.Second || took > 21*time.Second {
			t.Errorf("0.2 s of work took %s, want 100 times as long", took)
		}
	})
}

func TestTurns_LetSmallWorkPassALargeOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := pause.NewTurns()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- turns.Do(ctx, work(1_000_000)) }()
		time.Sleep(time.Second)
		began := time.Now()
		if err := turns.Do(t.Context(), work(1)); err != nil || time.Since(began) > time.Second {
			t.Errorf("small work: %v after %s", err, time.Since(began))
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("work ended with %v", err)
		}
		enough := errors.New("enough")
		if err := turns.Do(t.Context(), func(func() error) error { return enough }); !errors.Is(err, enough) {
			t.Errorf("work that fails ended with %v", err)
		}
	})
}
