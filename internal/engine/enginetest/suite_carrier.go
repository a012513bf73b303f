package enginetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
)

// read returns what ReadData writes of a service.
func (c trial) read(key engine.Key) *bytes.Buffer {
	c.t.Helper()
	var out bytes.Buffer
	require.NoError(c.t, c.driver.ReadData(c.t.Context(), key, "", c.bench.Tools, &out))
	return &out
}

func (c trial) fillData(data io.Reader) error {
	return c.driver.FillData(c.t.Context(), c.web, c.bench.Tools, c.web.Process(0), data)
}

func dataCarried(c trial) {
	c.write("kept")
	first := c.read(c.web).Bytes()
	require.NoError(c.t, c.snapshot())
	second := c.read(c.web)
	assert.Empty(c.t, c.inventory().Containers)
	assert.Empty(c.t, c.inventory().Volumes)

	for _, data := range []io.Reader{bytes.NewReader(first), second} {
		there := trial{c.t, c.bench, c.driver, newKey()}
		there.write("what was there before")
		require.NoError(c.t, there.fillData(data))
		objects := there.inventory()
		assert.Equal(c.t, []string{there.web.Data()}, objects.Names())
		assert.Equal(c.t, there.web.WithoutGeneration(), objects.Volumes[0].Key)
		assert.Equal(c.t, "kept", there.data())
	}
}

func dataMissing(c trial) {
	err := c.driver.ReadData(c.t.Context(), c.web, "", c.bench.Tools, io.Discard)
	require.ErrorIs(c.t, err, engine.ErrNotFound)
	assert.True(c.t, c.inventory().IsEmpty())
}

func dataStated(c trial) {
	state := func() engine.DataState {
		c.t.Helper()
		found, err := c.driver.DataState(c.t.Context(), c.web, c.bench.Tools)
		require.NoError(c.t, err)
		return found
	}
	_, err := c.driver.DataState(c.t.Context(), c.web, c.bench.Tools)
	require.ErrorIs(c.t, err, engine.ErrNotFound)
	c.write("kept")
	first := state()
	assert.Equal(c.t, first, state())
	assert.False(c.t, first.Quiet, "it was written a moment ago")
	c.output("append", dataPath+"/kept", "more")
	assert.NotEqual(c.t, first.Digest, state().Digest)
	require.NoError(c.t, c.driver.Remove(c.t.Context(), c.web.Release()))
	assert.Equal(c.t, []string{c.web.Data()}, c.inventory().Names())
}

func dataReadPaused(c trial) {
	c.write("kept")
	id := c.runUntil(c.process("serve"), "serving")
	require.NoError(c.t, c.driver.Pause(c.t.Context(), id))
	var data bytes.Buffer
	require.NoError(c.t, c.driver.ReadData(c.t.Context(), c.web, id, "", &data))
	require.NoError(c.t, c.driver.Unpause(c.t.Context(), id))
	require.NoError(c.t, c.fillData(&data))
	assert.Equal(c.t, "kept", c.data())
}

func dataCut(c trial) {
	c.write("kept")
	data := c.read(c.web).Bytes()
	require.Error(c.t, c.fillData(io.MultiReader(bytes.NewReader(data[:len(data)/3]), failing{})))
	assert.True(c.t, c.inventory().IsEmpty(), "a part of the data is none")
	require.NoError(c.t, c.fillData(bytes.NewReader(data)))
	assert.Equal(c.t, "kept", c.data())
	full := errors.New("the other side is full")
	err := c.driver.ReadData(c.t.Context(), c.web, "", c.bench.Tools, writerFunc(func([]byte) (int, error) { return 0, full }))
	require.ErrorIs(c.t, err, full)
	require.NoError(c.t, c.driver.Remove(c.t.Context(), c.web.Release()))
	assert.Equal(c.t, []string{c.web.Data()}, c.inventory().Names())
}

func dataInUse(c trial) {
	c.write("kept")
	id := c.prepare(c.web.Build(), c.bench.Image)
	data := c.read(c.web)
	require.ErrorIs(c.t, c.fillData(strings.NewReader("")), engine.ErrHost)
	require.NoError(c.t, c.driver.Remove(c.t.Context(), id))
	c.runUntil(c.process("serve"), "serving")
	require.NoError(c.t, c.fillData(data), "its own process goes")
	assert.Equal(c.t, "kept", c.data())
}

func dataUnpacked(c trial) {
	c.write("before")
	next := trial{c.t, c.bench, c.driver, c.web}
	next.web.Volume = 1
	unpack := func(data func(context.Context, io.Writer) error) error {
		return c.driver.UnpackData(c.t.Context(), next.web, engine.Unpacking{Image: c.bench.Tools, User: 200_001}, data)
	}
	whole := func(_ context.Context, w io.Writer) error {
		_, err := io.Copy(w, files(c, "file", "after"))
		return err
	}
	require.NoError(c.t, c.driver.Remove(c.t.Context(), c.web.Release()))
	for range 2 {
		require.NoError(c.t, unpack(whole))
		assert.ElementsMatch(c.t, []string{c.web.Data(), next.web.Data()}, c.inventory().Names())
		assert.Equal(c.t, "after", next.data())
		require.NoError(c.t, c.driver.Remove(c.t.Context(), c.web.Release()))
		assert.Equal(c.t, "before", c.data())
		require.NoError(c.t, c.driver.Remove(c.t.Context(), c.web.Release()))
	}
	broken := errors.New("it breaks off")
	require.ErrorIs(c.t, unpack(func(_ context.Context, w io.Writer) error {
		_, err := io.CopyN(w, files(c, "file", strings.Repeat("after", 1000)), 2048)
		return errors.Join(err, broken)
	}), broken)
	assert.Equal(c.t, []string{c.web.Data()}, c.inventory().Names(), "a part of the data is none")
	require.NoError(c.t, unpack(whole))
	require.ErrorIs(c.t, unpack(func(_ context.Context, w io.Writer) error {
		_, err := io.WriteString(w, strings.Repeat("this is not a tar ", 1000))
		return err
	}), engine.ErrData)
	assert.Equal(c.t, []string{c.web.Data()}, c.inventory().Names())
}

func imagesCarried(c trial) {
	remote := c.bench.Registry + "/stacks/" + strings.ToLower(c.web.Stack) + ":web-g1"
	fetch := func() error { return c.driver.Fetch(c.t.Context(), remote, c.web.Image(1), engine.Login{}) }
	require.ErrorIs(c.t, fetch(), engine.ErrNotFound)
	err := c.driver.Push(c.t.Context(), c.web.Image(1), remote, engine.Login{})
	require.ErrorIs(c.t, err, engine.ErrNotFound)

	id := c.prepare(c.web.Build(), c.bench.Image)
	require.NoError(c.t, c.driver.CopyIn(c.t.Context(), id, files(c, "made/file", "built")))
	require.NoError(c.t, c.driver.Commit(c.t.Context(), id, c.web.Image(1), c.web, engine.ImageConfig{}))
	require.NoError(c.t, c.driver.Remove(c.t.Context(), id))
	c.atOnce(func() error {
		return c.driver.Push(c.t.Context(), c.web.Image(1), remote, engine.Login{})
	})
	there := c.inventory()
	require.Len(c.t, there.Images, 1)
	assert.Equal(c.t, []string{c.web.Image(1)}, there.Images[0].Tags)
	require.NoError(c.t, c.driver.Discard(c.t.Context(), there))
	c.atOnce(fetch)
	there = c.inventory()
	require.Len(c.t, there.Images, 1)
	assert.Equal(c.t, []string{c.web.Image(1)}, there.Images[0].Tags)
	assert.Equal(c.t, c.web, there.Images[0].Key)
	spec := c.process("cat", "/made/file")
	spec.Image = c.web.Image(1)
	assert.Equal(c.t, "built\n", c.log(c.runUntil(spec, "")))
	err = c.driver.Push(c.t.Context(), c.web.Image(1), "127.0.0.1:9/nobody/there:1", engine.Login{})
	require.Error(c.t, err)
	ctx, cancel := context.WithCancel(c.t.Context())
	cancel()
	require.ErrorIs(c.t, c.driver.Push(ctx, c.web.Image(1), remote, engine.Login{}), context.Canceled)
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the connection broke") }
