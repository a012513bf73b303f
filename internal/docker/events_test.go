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

func TestExits_ReportsTheEndsOfLabelledContainers(t *testing.T) {
	b := testBench(t)
	key := engine.Key{Stack: b.name(), Service: "web", Generation: 2}
	mine := key.Labels(b.labels["berth-test"])
	mine["berth-test"] = b.labels["berth-test"]
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	exits, failed := b.engine.Exits(ctx, mine)

	b.run(t, b.spec("exit", "9")) // without the label
	spec := b.spec("exit", "4")
	spec.Labels = mine
	id := b.run(t, spec)

	exit := next(t, exits, failed)
	assert.Equal(t, engine.End{ID: id, Key: key}, exit)

	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
}

func TestExits_MissesNothingFromTheCallOn(t *testing.T) {
	b := testBench(t)
	for range 5 {
		mine := Labels{"berth-test": b.labels["berth-test"], "berth-test-exit": b.name()}
		spec := b.spec("serve")
		spec.Labels = mine
		id := b.run(t, spec)
		ctx, cancel := context.WithCancel(t.Context())
		exits, failed := b.engine.Exits(ctx, mine)
		require.NoError(t, b.engine.Remove(ctx, id))
		assert.Equal(t, id, next(t, exits, failed).ID)
		cancel()
	}
}

func TestExits_ReportsMemoryThatRanOut(t *testing.T) {
	b := testBench(t)
	mine := Labels{"berth-test": b.labels["berth-test"], "berth-test-exit": b.name()}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	exits, failed := b.engine.Exits(ctx, mine)
	spec := b.spec("eat")
	spec.Labels, spec.Memory = mine, 32<<20
	id := b.run(t, spec)
	assert.Equal(t, id, next(t, exits, failed).ID)
	require.Eventually(t, func() bool { // the event may come before the engine has written it down
		c, err := b.engine.Inspect(t.Context(), id)
		return err == nil && c.OOMKilled && c.ExitCode == 137
	}, 10*time.Second, 10*time.Millisecond)
}

func TestExits_TellsThatTheStreamBroke(t *testing.T) {
	b := testBench(t)
	remote, cut := b.through(t)
	_, failed := remote.Exits(t.Context(), b.labels)
	cut()
	select {
	case err := <-failed:
		require.Error(t, err)
		assert.Contains(t, err.Error(), "watch exits")
	case <-time.After(10 * time.Second):
		t.Fatal("a broken stream was not reported")
	}
}
