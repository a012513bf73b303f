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

func volumeSized(c trial) {
	none := func() error { return nil }
	_, err := c.driver.VolumeSize(c.web.Data(), none)
	require.ErrorIs(c.t, err, engine.ErrNotFound)
	c.write("little")
	little, err := c.driver.VolumeSize(c.web.Data(), none)
	require.NoError(c.t, err)
	c.write(strings.Repeat("much ", 10_000))
	much, err := c.driver.VolumeSize(c.web.Data(), none)
	require.NoError(c.t, err)
	assert.GreaterOrEqual(c.t, much, little+40_000)

	enough := errors.New("enough")
	_, err = c.driver.VolumeSize(c.web.Data(), func() error { return enough })
	require.ErrorIs(c.t, err, enough)
}

func layerSized(c trial) {
	_, err := c.driver.LayerSize(c.t.Context(), "none")
	require.ErrorIs(c.t, err, engine.ErrNotFound)
	id := c.runUntil(c.process("serve"), "serving")
	size, err := c.driver.LayerSize(c.t.Context(), id)
	require.NoError(c.t, err)
	none := func() error { return nil }
	little, err := size(none)
	require.NoError(c.t, err)
	require.NoError(c.t, c.driver.CopyIn(c.t.Context(), id, files(c, "tmp/file", strings.Repeat("much ", 10_000))))
	much, err := size(none)
	require.NoError(c.t, err)
	assert.GreaterOrEqual(c.t, much, little+40_000)
	assert.Less(c.t, much, little+200_000)

	enough := errors.New("enough")
	_, err = size(func() error { return enough })
	require.ErrorIs(c.t, err, enough)
	require.NoError(c.t, c.driver.Remove(c.t.Context(), id))
	_, err = size(none)
	require.ErrorIs(c.t, err, engine.ErrNotFound)
}

func imagesSized(c trial) {
	sizeOf := func(refs ...string) int64 {
		c.t.Helper()
		size, err := c.driver.ImagesSize(c.t.Context(), refs)
		require.NoError(c.t, err)
		return size
	}
	assert.Zero(c.t, sizeOf())
	assert.Zero(c.t, sizeOf(c.bench.Image, c.web.Image(1)), "an image of no stack, and a missing one")

	const size = 50_000
	id := c.prepare(c.web.Build(), c.bench.Image)
	require.NoError(c.t, c.driver.CopyIn(c.t.Context(), id, files(c, "made/file", strings.Repeat("x", size))))
	require.NoError(c.t, c.driver.Commit(c.t.Context(), id, c.web.Image(1), c.web, engine.ImageConfig{}))
	first := sizeOf(c.web.Image(1))
	assert.GreaterOrEqual(c.t, first, int64(size))
	assert.Less(c.t, first, int64(2*size))

	id = c.prepare(c.web.Build(), c.web.Image(1))
	require.NoError(c.t, c.driver.CopyIn(c.t.Context(), id, files(c, "made/more", strings.Repeat("y", size))))
	require.NoError(c.t, c.driver.Commit(c.t.Context(), id, c.web.Image(2), c.web, engine.ImageConfig{}))
	both := sizeOf(c.web.Image(2), c.web.Image(1), c.web.Image(1))
	assert.GreaterOrEqual(c.t, both, first+size)
	assert.Less(c.t, both, first+2*size)
}
