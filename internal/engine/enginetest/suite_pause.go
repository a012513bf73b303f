package enginetest

import (
	"context"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
)

func pauseKeeps(c trial) {
	id := c.listen("web")
	other := c.neighbour(c.web.Release(), "hello", "call", "web:8080")
	c.bench.LoseAnswers()
	for range 2 {
		require.NoError(c.t, c.driver.Pause(c.t.Context(), id))
	}
	paused := c.inventory().Container(c.web.Process(0))
	assert.True(c.t, paused.Running)
	assert.True(c.t, paused.Paused)
	assert.True(c.t, c.look(id).Running)
	for range 2 {
		require.NoError(c.t, c.driver.Unpause(c.t.Context(), id))
	}
	assert.False(c.t, c.inventory().Container(c.web.Process(0)).Paused)
	require.NoError(c.t, c.driver.Stop(c.t.Context(), other))
	assert.Contains(c.t, c.log(other), "still connected")
}

func pauseMissing(c trial) {
	require.ErrorIs(c.t, c.driver.Pause(c.t.Context(), c.web.Process(0)), engine.ErrNotFound)
	require.NoError(c.t, c.driver.Unpause(c.t.Context(), c.web.Process(0)))
	id := c.runUntil(c.process("exit", "0"), "")
	c.log(id)
	require.ErrorIs(c.t, c.driver.Pause(c.t.Context(), id), engine.ErrNotRunning)
	require.NoError(c.t, c.driver.Unpause(c.t.Context(), id))
}

func pauseEnds(c trial) {
	for _, end := range []func(context.Context, string) error{c.driver.Stop, c.driver.Remove} {
		id := c.runUntil(c.process("serve"), "serving")
		require.NoError(c.t, c.driver.Pause(c.t.Context(), id))
		require.NoError(c.t, end(c.t.Context(), id))
		found, err := c.driver.Look(c.t.Context(), id)
		assert.False(c.t, found.Running)
		if err != nil {
			require.ErrorIs(c.t, err, engine.ErrNotFound)
		}
	}
}
