package pause_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-host/berth/internal/pause"
)

func TestFor_WaitsUnlessItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !pause.For(t.Context(), time.Minute) || time.Since(began) != time.Minute {
			t.Errorf("a minute's pause took %s", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if pause.For(ctx, time.Minute) || time.Since(began) != time.Second {
			t.Errorf("a pause that was cut short took %s", time.Since(began))
		}
		for range 100 {
			if pause.For(ctx, -time.Second) {
				t.Fatal("a context that ended before lasts through a pause of nothing")
			}
		}
		if !pause.For(t.Context(), -time.Second) {
			t.Error("a pause of nothing does not end")
		}
	})
}
