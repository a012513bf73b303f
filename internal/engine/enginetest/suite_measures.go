package enginetest

import (
	"errors"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
)

func usageMeasured(c trial) {
	id := c.runUntil(c.process("serve"), "serving")
	read, err := c.driver.Measure(c.t.Context(), id)
	require.NoError(c.t, err)
	time.Sleep(10 * time.Millisecond)
	first, err := read()
	require.NoError(c.t, err)
	assert.Positive(c.t, first.CPU)
	assert.Positive(c.t, first.Memory)
	again, err := read()
	require.NoError(c.t, err)
	assert.GreaterOrEqual(c.t, again.CPU, first.CPU)

	require.NoError(c.t, c.driver.Stop(c.t.Context(), id))
	_, err = read()
	require.Error(c.t, err)
}

func usageNotRunning(c trial) {
	id := c.runUntil(c.process("serve"), "serving")
	require.NoError(c.t, c.driver.Stop(c.t.Context(), id))
	_, err := c.driver.Measure(c.t.Context(), id)
	require.ErrorIs(c.t, err, engine.ErrNotRunning)
	require.NoError(c.t, c.driver.Remove(c.t.Context(), id))
	_, err = c.driver.Measure(c.t.Context(), id)
	require.ErrorIs(c.t, err, engine.ErrNotFound)
}

func dataSized(c trial) {
	none := func() error { return nil }
	_, err := c.driver.DataSize(c.web, none)
	require.ErrorIs(c.t, err, engine.ErrNotFound)
	c.write("little")
	little, err := c.driver.DataSize(c.web, none)
	require.NoError(c.t, err)
	c.write(strings.Repeat("much ", 10_000))
	much, err := c.driver.DataSize(c.web, none)
	require.NoError(c.t, err)
	assert.GreaterOrEqual(c.t, much, little+40_000)

	enough := errors.New("enough")
	_, err = c.driver.DataSize(c.web, func() error { return enough })
	require.ErrorIs(c.t, err, enough)
}
