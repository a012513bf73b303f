package enginetest

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
)

func runReplaces(c trial) {
	for _, words := range [][]string{{"exit", "0"}, {"stubborn"}} {
		before := c.run(c.process(words...), "")
		after := c.run(c.process("serve"), "serving")
		assert.NotEqual(c.t, before, after)
		_, err := c.driver.Look(c.t.Context(), before)
		require.ErrorIs(c.t, err, engine.ErrNotFound)
		assert.Equal(c.t, c.web.Process(0), c.look(after).Name)
	}
}

func runMissing(c trial) {
	spec := c.process("serve")
	spec.Image = c.web.Image()
	id, err := c.driver.Run(c.t.Context(), spec)
	require.ErrorIs(c.t, err, engine.ErrNotFound)
	assert.Empty(c.t, id)

	spec = c.process("serve")
	spec.Network = c.web.Network()
	id, err = c.driver.Run(c.t.Context(), spec)
	require.ErrorIs(c.t, err, engine.ErrNotFound)
	assert.False(c.t, c.look(id).Running)
	require.ErrorIs(c.t, c.driver.Start(c.t.Context(), id), engine.ErrNotFound)
}

func runCancelled(c trial) {
	ctx, cancel := context.WithCancel(c.t.Context())
	cancel()
	id, err := c.driver.Run(ctx, c.process("serve"))
	require.ErrorIs(c.t, err, context.Canceled)
	there := c.inventory()
	assert.Equal(c.t, id, there.Container(c.web.Process(0)).ID)
	assert.Equal(c.t, id != "", hasVolume(there, c.web.Data()))
}

func runAtOnce(c trial) {
	c.atOnce(func() error {
		_, err := c.driver.Run(c.t.Context(), c.process("serve"))
		return err
	})
	containers := c.inventory().Containers
	require.Len(c.t, containers, 1)
	assert.True(c.t, containers[0].Running)
}

func runFillsVolume(c trial) {
	id := c.prepare(c.web.Build(), c.bench.Image)
	require.NoError(c.t, c.driver.CopyIn(c.t.Context(), id, files(c, "kept/file", "of the image")))
	require.NoError(c.t, c.driver.Commit(c.t.Context(), id, c.web, engine.ImageConfig{}))
	spec := c.process("cat", "/kept/file")
	spec.Image, spec.Volumes = c.web.Image(), map[string]string{"/kept": c.web.Cache()}
	assert.Equal(c.t, "of the image\n", c.log(c.run(spec, "")))
}

func restartEnded(c trial) {
	spec := c.process("listen", ":8080")
	spec.Network, spec.Aliases = c.place(), []string{"web"}
	id := c.run(spec, "listening")
	require.NoError(c.t, c.driver.Stop(c.t.Context(), id))
	require.NoError(c.t, c.driver.Restart(c.t.Context(), id, "web"))
	assert.NotEmpty(c.t, c.look(id).IP)
	assert.True(c.t, c.reaches("web:8080"))
	require.ErrorIs(c.t, c.driver.Restart(c.t.Context(), c.web.Process(9)), engine.ErrNotFound)
}

// reaches reports whether a neighbour on the service's network is greeted at an
// address, at which something listens or is about to.
func (c trial) reaches(addr string) bool {
	for range 20 {
		if text, code := c.output(c.web.Network(), "dial", addr); code == 0 {
			return text == "hello\n"
		}
		time.Sleep(50 * time.Millisecond)
	}
	return false
}

func restartRunning(c trial) {
	spec := c.process("listen", ":8080")
	spec.Network, spec.Aliases = c.place(), []string{"web"}
	id := c.run(spec, "listening")
	had := c.look(id)
	require.NoError(c.t, c.driver.Restart(c.t.Context(), id, "web"))
	require.NoError(c.t, c.driver.Restart(c.t.Context(), id, "web"))
	assert.Equal(c.t, had, c.look(id))
	require.NoError(c.t, c.driver.Stop(c.t.Context(), id))
	assert.Equal(c.t, "listening\n", c.log(id), "the process was started once")
}

func promoteRenames(c trial) {
	if !c.driver.Promotes() {
		c.t.Skip("it promotes nothing that runs")
	}
	spec := c.process("listen", ":8080")
	spec.Network, spec.Aliases = c.place(), []string{"before"}
	id := c.run(spec, "listening")
	had := c.look(id)
	for range 2 {
		require.NoError(c.t, c.driver.Promote(c.t.Context(), id, "after"))
		assert.Equal(c.t, had, c.look(id))
	}
	assert.True(c.t, c.reaches("after:8080"))
	require.NoError(c.t, c.driver.Promote(c.t.Context(), id))
	_, code := c.output(spec.Network, "dial", "after:8080")
	assert.Equal(c.t, 1, code)
	require.ErrorIs(c.t, c.driver.Promote(c.t.Context(), c.web.Process(9)), engine.ErrNotFound)
}

func promotePrepared(c trial) {
	spec := c.process("listen", ":8080")
	spec.Network = c.place()
	id, err := c.driver.Prepare(c.t.Context(), spec)
	require.NoError(c.t, err)
	require.NoError(c.t, c.driver.Promote(c.t.Context(), id, "web"))
	require.NoError(c.t, c.driver.Start(c.t.Context(), id))
	assert.True(c.t, c.reaches("web:8080"))
}

func lookKnows(c trial) {
	spec := c.process("serve")
	spec.Network = c.place()
	id := c.run(spec, "serving")
	found := c.look(id)
	assert.NotEmpty(c.t, found.IP)
	assert.Equal(c.t, engine.Container{ID: id, Name: spec.Name, Key: c.web, Running: true, IP: found.IP}, found)
	assert.Equal(c.t, found, c.look(spec.Name))
	require.NoError(c.t, c.driver.Stop(c.t.Context(), id))
	assert.Equal(c.t, engine.Container{ID: id, Name: spec.Name, Key: c.web}, c.look(id))

	spec.Cmd = c.bench.Command("exit", "7")
	id = c.run(spec, "")
	c.log(id)
	assert.Equal(c.t, 7, c.look(id).ExitCode)
	_, err := c.driver.Look(c.t.Context(), c.web.Process(9))
	require.ErrorIs(c.t, err, engine.ErrNotFound)
}

func stopKills(c trial) {
	for word, code := range map[string]int{"serve": 0, "stubborn": 137} {
		id := c.run(c.process(word), "serving")
		for range 2 {
			require.NoError(c.t, c.driver.Stop(c.t.Context(), id))
			found := c.look(id)
			assert.False(c.t, found.Running)
			assert.Equal(c.t, code, found.ExitCode)
		}
	}
}

func stopCancelled(c trial) {
	spec := c.process("stubborn")
	spec.StopTimeout = time.Minute
	id := c.run(spec, "serving")
	ctx, cancel := c.soon()
	defer cancel()
	began := time.Now()
	require.ErrorIs(c.t, c.driver.Stop(ctx, id), context.DeadlineExceeded)
	assert.Less(c.t, time.Since(began), 30*time.Second)
}

func removeGone(c trial) {
	id := c.run(c.process("stubborn"), "serving")
	for range 2 {
		require.NoError(c.t, c.driver.Remove(c.t.Context(), id))
		_, err := c.driver.Look(c.t.Context(), id)
		require.ErrorIs(c.t, err, engine.ErrNotFound)
		require.NoError(c.t, c.driver.Stop(c.t.Context(), id))
	}
	err := c.driver.Follow(c.t.Context(), id, time.Time{}, func(time.Time, []byte) {})
	require.ErrorIs(c.t, err, engine.ErrNotFound)
	_, err = c.driver.Sockets(c.t.Context(), id)
	require.ErrorIs(c.t, err, engine.ErrNotFound)
}

func removeAtOnce(c trial) {
	id := c.run(c.process("serve"), "serving")
	c.atOnce(func() error { return c.driver.Stop(c.t.Context(), id) })
	assert.False(c.t, c.look(id).Running)
	c.atOnce(func() error {
		err := c.driver.Remove(c.t.Context(), id)
		_, gone := c.driver.Look(c.t.Context(), id)
		assert.ErrorIs(c.t, gone, engine.ErrNotFound)
		return err
	})
}

func followLines(c trial) {
	type line struct {
		at   time.Time
		text string
	}
	id := c.run(c.process("count", "4", "20ms"), "")
	after := func(since time.Time) (lines []line) {
		require.NoError(c.t, c.driver.Follow(c.t.Context(), id, since, func(at time.Time, text []byte) {
			lines = append(lines, line{at, string(text)})
		}))
		return lines
	}
	all := after(time.Time{})
	require.Len(c.t, all, 4)
	for i, l := range all {
		assert.Equal(c.t, string(rune('0'+i)), l.text)
		assert.Equal(c.t, all[i+1:], append([]line{}, after(l.at)...), "what ended keeps its lines")
	}
}

func followCancelled(c trial) {
	id := c.run(c.process("serve"), "")
	c.await(id, "serving") // which cancels the context
}

func socketsListed(c trial) {
	spec := c.process("listen", ":8080", ":3000")
	spec.Network = c.place()
	id := c.run(spec, "listening")
	sockets, err := c.driver.Sockets(c.t.Context(), id)
	require.NoError(c.t, err)
	require.Len(c.t, sockets, 2)
	assert.True(c.t, strings.HasSuffix(sockets[0], ":3000"), sockets)
	assert.True(c.t, strings.HasSuffix(sockets[1], ":8080"), sockets)
}

func endedOwn(c trial) {
	ctx, cancel := context.WithCancel(c.t.Context())
	ends, broken := c.driver.Ended(ctx)
	others := c.spec(newKey().Process(0), "exit", "0")
	others.Volumes = nil
	_, err := c.bench.Another.Run(c.t.Context(), others)
	require.NoError(c.t, err)
	id := c.run(c.process("exit", "3"), "")
	assert.Equal(c.t, engine.End{ID: id, Key: c.web}, <-ends)
	id = c.run(c.process("serve"), "serving")
	require.NoError(c.t, c.driver.Remove(c.t.Context(), id))
	assert.Equal(c.t, engine.End{ID: id, Key: c.web}, <-ends)
	cancel()
	require.ErrorIs(c.t, <-broken, context.Canceled)
	assert.Empty(c.t, broken)
}

func probeShows(c trial) {
	spec := c.spec(c.web.Probe(), "exit", "0")
	require.NoError(c.t, c.driver.Probe(c.t.Context(), spec))
	require.NoError(c.t, c.driver.Probe(c.t.Context(), spec))
	spec.Cmd = c.bench.Command("exit", "3")
	require.Error(c.t, c.driver.Probe(c.t.Context(), spec))
	assert.Empty(c.t, c.inventory().Containers)
}

func prepareStarts(c trial) {
	var ids []string
	for range 2 {
		id := c.prepare(c.web.Build(), c.bench.Image)
		assert.False(c.t, c.look(id).Running)
		assert.NotContains(c.t, ids, id)
		ids = append(ids, id)
		for range 2 {
			require.NoError(c.t, c.driver.Start(c.t.Context(), id))
			assert.True(c.t, c.look(id).Running)
		}
	}
	_, err := c.driver.Look(c.t.Context(), ids[0])
	require.ErrorIs(c.t, err, engine.ErrNotFound)
	require.ErrorIs(c.t, c.driver.Start(c.t.Context(), ids[0]), engine.ErrNotFound)
}

// prepare makes a container that serves once it is started.
func (c trial) prepare(name, image string) (id string) {
	c.t.Helper()
	spec := c.spec(name, "serve")
	spec.Image = image
	id, err := c.driver.Prepare(c.t.Context(), spec)
	require.NoError(c.t, err)
	return id
}

func copyInFiles(c trial) {
	id := c.prepare(c.web.Build(), c.bench.Image)
	require.NoError(c.t, c.driver.CopyIn(c.t.Context(), id, files(c, "made/file", "in the container", "data/file", "in the volume")))
	require.NoError(c.t, c.driver.Start(c.t.Context(), id))
	text, _, err := engine.Answer(c.t.Context(), c.driver, id, engine.Cmd{Args: c.bench.Command("cat", "/made/file")})
	require.NoError(c.t, err)
	assert.Equal(c.t, "in the container", strings.TrimSpace(text))
	text, _ = c.output("", "cat", dataPath+"/file")
	assert.Equal(c.t, "in the volume\n", text)
	require.ErrorIs(c.t, c.driver.CopyIn(c.t.Context(), c.web.Process(9), files(c)), engine.ErrNotFound)
}

func execReturns(c trial) {
	id := c.run(c.process("serve"), "serving")
	for _, tt := range []struct {
		args   []string
		codes  []int
		output string
	}{
		{c.bench.Command("print", "hello"), []int{0}, "hello\n"},
		{c.bench.Command("exit", "3"), []int{3}, ""},
		{[]string{"/no/such/program"}, []int{126, 127}, ""},
	} {
		var out bytes.Buffer
		code, err := c.driver.Exec(c.t.Context(), id, engine.Cmd{Args: tt.args, Whole: true}, &out, &bytes.Buffer{})
		require.NoError(c.t, err)
		assert.Contains(c.t, tt.codes, code)
		if code == 0 {
			assert.Equal(c.t, tt.output, out.String())
		}
	}
	command := engine.Cmd{Args: c.bench.Command("print", "hello")}
	require.NoError(c.t, c.driver.Stop(c.t.Context(), id))
	_, err := c.driver.Exec(c.t.Context(), id, command, &bytes.Buffer{}, &bytes.Buffer{})
	require.Error(c.t, err, "it does not run")
	_, err = c.driver.Exec(c.t.Context(), c.web.Process(9), command, &bytes.Buffer{}, &bytes.Buffer{})
	require.ErrorIs(c.t, err, engine.ErrNotFound)
}

func execCancelled(c trial) {
	id := c.run(c.process("serve"), "serving")
	ctx, cancel := c.soon()
	defer cancel()
	_, err := c.driver.Exec(ctx, id, engine.Cmd{Args: c.bench.Command("stubborn")}, &bytes.Buffer{}, &bytes.Buffer{})
	require.ErrorIs(c.t, err, context.DeadlineExceeded)
	assert.True(c.t, c.look(id).Running)
}

func containersOfKey(c trial) {
	worker := c.web
	worker.Service = "worker"
	spec := c.spec(worker.Process(0), "serve")
	spec.Key, spec.Volumes = worker, nil
	c.run(c.process("serve"), "")
	_, err := c.driver.Prepare(c.t.Context(), spec)
	require.NoError(c.t, err)
	elsewhere := newKey()
	spec.Key, spec.Name = elsewhere, elsewhere.Process(0)
	c.run(spec, "")
	for _, tt := range []struct {
		key   engine.Key
		names []string
	}{
		{c.web, []string{c.web.Process(0)}},
		{engine.Key{Stack: c.web.Stack}, []string{c.web.Process(0), worker.Process(0)}},
		{engine.Key{}, []string{c.web.Process(0), worker.Process(0), elsewhere.Process(0)}},
		{engine.Key{Stack: c.web.Stack, Service: "web", Generation: 2}, nil},
	} {
		found, err := c.driver.Containers(c.t.Context(), tt.key)
		require.NoError(c.t, err)
		assert.ElementsMatch(c.t, tt.names, engine.Objects{Containers: found}.Names())
	}
	found, err := c.bench.Another.Containers(c.t.Context(), engine.Key{})
	require.NoError(c.t, err)
	assert.Empty(c.t, found)
}
