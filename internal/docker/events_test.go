package docker

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
)

// next returns the next exit reported.
func next(t *testing.T, exits <-chan engine.End, failed <-chan error) engine.End {
	t.Helper()
	select {
	case exit := <-exits:
		return exit
	case err := <-failed:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("no exit was reported")
	}
	return engine.End{}
}

func TestExits_MissesNothingFromTheCallOn(t *testing.T) {
	b := testBench(t)
	for range 3 {
		id := b.run(t, b.spec("serve"))
		ctx, cancel := context.WithCancel(t.Context())
		exits, failed := b.driver.Ended(ctx)
		require.NoError(t, b.driver.Remove(ctx, id))
		assert.Equal(t, id, next(t, exits, failed).ID)
		cancel()
	}
}

func TestExits_ReportsMemoryThatRanOut(t *testing.T) {
	b := testBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	exits, failed := b.driver.Ended(ctx)
	spec := b.spec("eat")
	spec.Memory = 32 << 20
	id := b.run(t, spec)
	assert.Equal(t, id, next(t, exits, failed).ID)
	require.Eventually(t, func() bool { // the event may come before the engine has written it down
		c, err := b.driver.Look(t.Context(), id)
		return err == nil && c.OOMKilled && c.ExitCode == 137
	}, 10*time.Second, 10*time.Millisecond)
}
