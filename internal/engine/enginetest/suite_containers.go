package enginetest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
)

func runReplaces(c trial) {
	for _, words := range [][]string{{"serve", dataPath + "/end", "asked"}, {"stubborn"}} {
		before := c.runUntil(c.process(words...), "serving")
		after := c.runUntil(c.process("serve"), "serving")
		assert.NotEqual(c.t, before, after)
		_, err := c.driver.Look(c.t.Context(), before)
		require.ErrorIs(c.t, err, engine.ErrNotFound)
		assert.Equal(c.t, c.web.Process(0), c.look(after).Name)
	}
	assert.Equal(c.t, "asked\n", c.output("cat", dataPath+"/end"))
}

func runMissing(c trial) {
	spec := c.process("serve")
	spec.Image = c.web.Image(1)
	id, err := c.driver.Run(c.t.Context(), spec)
	require.ErrorIs(c.t, err, engine.ErrNotFound)
	assert.Empty(c.t, id)

	spec = c.process("serve")
	spec.Network = c.web.Network()
	id, err = c.driver.Run(c.t.Context(), spec)
	require.ErrorIs(c.t, err, engine.ErrNotFound)
	found := c.look(id)
	assert.False(c.t, found.Running)
	assert.NotEmpty(c.t, found.Error)
	require.ErrorIs(c.t, c.driver.Start(c.t.Context(), id), engine.ErrNotFound)
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
	spec := c.process("cat", "/kept/file")
	spec.Image, spec.Volumes = c.imageWith("kept/file", "of the image"), map[string]string{"/kept": c.web.Cache(0)}
	assert.Equal(c.t, "of the image\n", c.log(c.runUntil(spec, "")))
}

func runCopiesFiles(c trial) {
	spec, calls := c.process("cat", "/made/file"), 0
	spec.Files = func(_ context.Context, w io.Writer) error {
		calls++
		_, err := io.Copy(w, files(c, "made/file", "copied in", "data/file", "in the volume"))
		return err
	}
	for range 2 { // in place of the first
		assert.Equal(c.t, "copied in\n", c.log(c.runUntil(spec, "")))
	}
	assert.Equal(c.t, 2, calls)
	assert.Equal(c.t, "in the volume\n", c.output("cat", dataPath+"/file"))
}

func runWithoutFiles(c trial) {
	spec, gone := c.process("serve"), errors.New("the files are gone")
	spec.Files = func(_ context.Context, w io.Writer) error {
		_, err := w.Write(make([]byte, 1024))
		return cmp.Or(err, gone)
	}
	id, err := c.driver.Run(c.t.Context(), spec)
	require.ErrorIs(c.t, err, gone)
	assert.Empty(c.t, id)
	assert.Empty(c.t, c.inventory().Containers)
}

func runAwaits(c trial) {
	key := engine.Key{Stack: c.web.Stack, Generation: 2}
	spec, copied := c.process("serve"), false
	spec.Network = key.Network()
	spec.Files = func(_ context.Context, w io.Writer) error {
		copied = true
		_, err := io.Copy(w, files(c, "made/file", "copied in"))
		return err
	}
	spec.Await = func(ctx context.Context) error {
		assert.True(c.t, copied)
		return c.driver.Place(ctx, key, 2)
	}
	id, err := c.driver.Run(c.t.Context(), spec)
	require.NoError(c.t, err)
	assert.NotEmpty(c.t, c.look(id).IP)
}

func runAwaitsInVain(c trial) {
	spec, none := c.process("serve"), errors.New("no network")
	spec.Await = func(context.Context) error { return none }
	id, err := c.driver.Run(c.t.Context(), spec)
	require.ErrorIs(c.t, err, none)
	assert.Empty(c.t, id)
	assert.Empty(c.t, c.inventory().Containers)
}

// imageWith makes the image of the service's generation, with a file at a path.
func (c trial) imageWith(path, text string) (ref string) {
	c.t.Helper()
	id := c.prepare(c.web.Build(), c.bench.Image)
	require.NoError(c.t, c.driver.CopyIn(c.t.Context(), id, files(c, path, text)))
	require.NoError(c.t, c.driver.Commit(c.t.Context(), id, c.web.Image(1), c.web, engine.ImageConfig{}))
	return c.web.Image(1)
}

func restartEnded(c trial) {
	id := c.listen("web")
	neighbour := c.neighbour(c.web.Release(), "serving", "serve")
	require.NoError(c.t, c.driver.Stop(c.t.Context(), id))
	c.atOnce(func() error { return c.driver.Restart(c.t.Context(), id, "web") })
	assert.NotEmpty(c.t, c.look(id).IP)
	assert.True(c.t, c.reaches(neighbour, "web:8080"))
	require.NoError(c.t, c.driver.Stop(c.t.Context(), id))
	assert.Equal(c.t, "listening\nlistening\n", c.log(id), "the process was started twice")
	require.ErrorIs(c.t, c.driver.Restart(c.t.Context(), c.web.Process(9)), engine.ErrNotFound)
}

// reaches reports whether a container is greeted at an address where something listens or
// is about to.
func (c trial) reaches(id, addr string) bool {
	c.t.Helper()
	for range 20 {
		if c.greets(id, addr) {
			return true
		}
		time.Sleep(50 * time.Millisecond)
	}
	return false
}

func restartRunning(c trial) {
	id := c.listen("web")
	had := c.look(id)
	require.NoError(c.t, c.driver.Restart(c.t.Context(), id, "web"))
	require.NoError(c.t, c.driver.Restart(c.t.Context(), id, "web"))
	assert.Equal(c.t, had, c.look(id))
	require.NoError(c.t, c.driver.Stop(c.t.Context(), id))
	assert.Equal(c.t, "listening\n", c.log(id), "the process was started once")
}

func (c trial) needsPromotes() {
	if !c.driver.Promotes() {
		c.t.Skip("it promotes nothing that runs")
	}
}

func promoteRenames(c trial) {
	c.needsPromotes()
	id := c.listen("before")
	neighbour := c.neighbour(c.web.Release(), "serving", "serve")
	had := c.look(id)
	c.atOnce(func() error { return c.driver.Promote(c.t.Context(), id, "after") })
	assert.Equal(c.t, had, c.look(id))
	assert.True(c.t, c.reaches(neighbour, "after:8080"))
	assert.False(c.t, c.greets(neighbour, "before:8080"))
	require.NoError(c.t, c.driver.Promote(c.t.Context(), id))
	assert.False(c.t, c.greets(neighbour, "after:8080"))
	require.ErrorIs(c.t, c.driver.Promote(c.t.Context(), c.web.Process(9)), engine.ErrNotFound)
}

func promoteConnected(c trial) {
	c.needsPromotes()
	id := c.listen("before")
	caller := c.neighbour(c.web.Release(), "hello", "call", "before:8080")
	require.NoError(c.t, c.driver.Promote(c.t.Context(), id, "after"))
	require.NoError(c.t, c.driver.Stop(c.t.Context(), caller))
	assert.Equal(c.t, "hello\nstill connected\n", c.log(caller))
}

func promoteTaken(c trial) {
	c.needsPromotes()
	id := c.listen("before")
	other := c.neighbour(c.web.Build(), "serving", "serve")
	caller := c.neighbour(c.web.Release(), "hello", "call", "before:8080")
	had := c.look(id)
	c.bench.TakeAddress(id, other, false)
	require.ErrorIs(c.t, c.driver.Promote(c.t.Context(), id, "after"), engine.ErrAddressTaken)
	assert.Equal(c.t, had.IP, c.look(other).IP)
	now := c.look(id)
	assert.True(c.t, now.Running)
	assert.NotEmpty(c.t, now.IP)
	assert.NotEqual(c.t, had.IP, now.IP)
	assert.True(c.t, c.reaches(other, "after:8080"))
	require.NoError(c.t, c.driver.Stop(c.t.Context(), caller))
	assert.NotContains(c.t, c.log(caller), "still connected")
}

func promoteTakenBroken(c trial) {
	c.needsPromotes()
	id := c.listen("before")
	other := c.neighbour(c.web.Build(), "serving", "serve")
	c.bench.TakeAddress(id, other, true)
	err := c.driver.Promote(c.t.Context(), id, "after")
	require.ErrorIs(c.t, err, engine.ErrUnreachable)
	require.NotErrorIs(c.t, err, engine.ErrAddressTaken, "it has no address")
	c.bench.Return()
	require.NoError(c.t, c.driver.Restart(c.t.Context(), id, "after"))
	assert.True(c.t, c.reaches(other, "after:8080"))
}

func promoteBroken(c trial) {
	c.needsPromotes()
	id := c.listen("before")
	c.bench.BreakPromote()
	require.ErrorIs(c.t, c.driver.Promote(c.t.Context(), id, "after"), engine.ErrUnreachable)
	c.bench.Return()
	neighbour := c.neighbour(c.web.Release(), "serving", "serve")
	require.NoError(c.t, c.driver.Restart(c.t.Context(), id, "after"))
	assert.NotEmpty(c.t, c.look(id).IP)
	assert.True(c.t, c.reaches(neighbour, "after:8080"))
}

func lostPromote(c trial) {
	c.needsPromotes()
	id := c.listen("before")
	had := c.look(id)
	c.bench.LoseAnswers()
	require.NoError(c.t, c.driver.Promote(c.t.Context(), id, "after"))
	assert.Equal(c.t, had, c.look(id))
	assert.Equal(c.t, "hello\n", c.log(c.neighbour(c.web.Release(), "", "dial", "after:8080")))
}

func promoteCancelled(c trial) {
	c.needsPromotes()
	id := c.listen("before")
	neighbour := c.neighbour(c.web.Release(), "serving", "serve")
	had := c.look(id)
	for _, moment := range moments {
		require.NoError(c.t, c.driver.Promote(c.t.Context(), id, "before"))
		err := c.within(moment, func(ctx context.Context) error { return c.driver.Promote(ctx, id, "after") })
		name, other := "after:8080", "before:8080"
		if err != nil {
			name, other = other, name
		}
		assert.True(c.t, c.reaches(neighbour, name), "%v", err)
		assert.False(c.t, c.greets(neighbour, other), "%v", err)
		assert.Equal(c.t, had, c.look(id))
	}
}

func promotePrepared(c trial) {
	spec := c.process("listen", ":8080")
	spec.Network, spec.Volumes = c.place(), nil
	id, err := c.driver.Prepare(c.t.Context(), spec)
	require.NoError(c.t, err)
	require.NoError(c.t, c.driver.Promote(c.t.Context(), id, "web"))
	c.atOnce(func() error { return c.driver.Start(c.t.Context(), id) })
	assert.True(c.t, c.reaches(c.neighbour(c.web.Release(), "serving", "serve"), "web:8080"))
}

func lookKnows(c trial) {
	spec := c.process("serve")
	spec.Network = c.place()
	id := c.runUntil(spec, "serving")
	found := c.look(id)
	assert.NotEmpty(c.t, found.IP)
	assert.Equal(c.t, engine.Container{ID: id, Name: spec.Name, Key: c.web, Image: spec.Image, Running: true, IP: found.IP}, found)
	assert.Equal(c.t, found, c.look(spec.Name))
	require.NoError(c.t, c.driver.Stop(c.t.Context(), id))
	assert.Equal(c.t, engine.Container{ID: id, Name: spec.Name, Key: c.web, Image: spec.Image}, c.look(id))

	spec.Cmd = c.bench.Command("exit", "7")
	id = c.runUntil(spec, "")
	c.log(id)
	assert.Equal(c.t, 7, c.look(id).ExitCode)
	_, err := c.driver.Look(c.t.Context(), c.web.Process(9))
	require.ErrorIs(c.t, err, engine.ErrNotFound)
}

func stopKills(c trial) {
	for word, code := range map[string]int{"serve": 0, "stubborn": 137} {
		id := c.runUntil(c.process(word), "serving")
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
	id := c.runUntil(spec, "serving")
	ctx, cancel := c.soon()
	defer cancel()
	began := time.Now()
	require.ErrorIs(c.t, c.driver.Stop(ctx, id), context.DeadlineExceeded)
	assert.Less(c.t, time.Since(began), 30*time.Second)
}

func removeGone(c trial) {
	id := c.runUntil(c.process("stubborn"), "serving")
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
	id := c.runUntil(c.process("serve"), "serving")
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
	id := c.runUntil(c.process("count", "4", "20ms"), "")
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
	id := c.runUntil(c.process("serve"), "")
	c.await(id, "serving") // which cancels the context
}

func socketsListed(c trial) {
	spec := c.process("listen", ":8080", ":3000")
	spec.Network = c.place()
	id := c.runUntil(spec, "listening")
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
	id := c.runUntil(c.process("exit", "3"), "")
	assert.Equal(c.t, engine.End{ID: id, Key: c.web}, <-ends)
	id = c.runUntil(c.process("serve"), "serving")
	require.NoError(c.t, c.driver.Remove(c.t.Context(), id))
	assert.Equal(c.t, engine.End{ID: id, Key: c.web}, <-ends)
	cancel()
	require.ErrorIs(c.t, <-broken, context.Canceled)
	assert.Empty(c.t, broken)
}

func probeShows(c trial) {
	spec := c.spec(c.web.Probe(), "exit", "0")
	c.atOnce(func() error { return c.driver.Probe(c.t.Context(), spec) })
	spec.Cmd = c.bench.Command("exit", "3")
	require.ErrorIs(c.t, c.driver.Probe(c.t.Context(), spec), engine.ErrExit)
	spec.Image = c.web.Image(9)
	err := c.driver.Probe(c.t.Context(), spec)
	require.ErrorIs(c.t, err, engine.ErrNotFound)
	require.NotErrorIs(c.t, err, engine.ErrExit)
	assert.Empty(c.t, c.inventory().Containers)
	room, err := c.driver.Room()
	require.NoError(c.t, err)
	assert.Positive(c.t, room.Bytes)
}

func prepareStarts(c trial) {
	spec := c.spec(c.web.Build(), "serve", dataPath+"/end", "asked")
	var ids []string
	for range 2 {
		id, err := c.driver.Prepare(c.t.Context(), spec)
		require.NoError(c.t, err)
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
	id := c.runUntil(c.spec(c.web.Release(), "cat", dataPath+"/end"), "")
	c.log(id)
	assert.Equal(c.t, 1, c.look(id).ExitCode, "the first one was killed")
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
	read := func(path string) string {
		text, _, err := engine.Answer(c.t.Context(), c.driver, id, engine.Cmd{Args: c.bench.Command("cat", path)})
		require.NoError(c.t, err)
		return strings.TrimSpace(text)
	}
	assert.Equal(c.t, "in the container", read("/made/file"))
	assert.Equal(c.t, "in the volume\n", c.output("cat", dataPath+"/file"))
	require.ErrorIs(c.t, c.driver.CopyIn(c.t.Context(), c.web.Process(9), files(c)), engine.ErrNotFound)
	if !c.driver.TakesFiles() {
		return
	}
	require.NoError(c.t, c.driver.CopyIn(c.t.Context(), id, files(c, "made/file", "while it runs", "data/file", "there too")))
	assert.Equal(c.t, "while it runs", read("/made/file"))
	assert.Equal(c.t, "there too", read(dataPath+"/file"))
}

func execReturns(c trial) {
	id := c.runUntil(c.process("serve"), "serving")
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

func execUnpacks(c trial) {
	id := c.runTools()
	cat := func(write func(context.Context, io.Writer) error) (string, error) {
		var out bytes.Buffer
		_, err := c.driver.Exec(c.t.Context(), id, engine.Cmd{Args: c.bench.Script("cat", "/made/file"), Files: write}, &out, &bytes.Buffer{})
		return strings.TrimSpace(out.String()), err
	}
	text, err := cat(func(_ context.Context, w io.Writer) error {
		_, err := io.Copy(w, files(c, "made/file", "it was there first"))
		return err
	})
	require.NoError(c.t, err)
	assert.Equal(c.t, "it was there first", text)
	text, err = cat(func(_ context.Context, w io.Writer) error {
		time.Sleep(300 * time.Millisecond) // longer than a command's state is not asked for
		_, err := io.Copy(w, files(c, "made/file", "it was waited for"))
		return err
	})
	require.NoError(c.t, err)
	assert.Equal(c.t, "it was waited for", text)
	broken := errors.New("a file cannot be read")
	_, err = cat(func(context.Context, io.Writer) error { return broken })
	require.ErrorIs(c.t, err, broken)
}

func execCancelled(c trial) {
	id := c.runUntil(c.process("serve"), "serving")
	ctx, cancel := c.soon()
	defer cancel()
	var returned atomic.Bool
	out := writerFunc(func(p []byte) (int, error) {
		assert.False(c.t, returned.Load(), "%q was written after it returned", p)
		return len(p), nil
	})
	_, err := c.driver.Exec(ctx, id, engine.Cmd{Args: c.bench.Command("count", "1000", "10ms")}, out, out)
	returned.Store(true)
	require.ErrorIs(c.t, err, context.DeadlineExceeded)
	time.Sleep(50 * time.Millisecond)
	assert.True(c.t, c.look(id).Running)
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func objectsOfKey(c trial) {
	worker, elsewhere := c.web, newKey()
	worker.Service = "worker"
	for _, key := range []engine.Key{c.web, worker, elsewhere} {
		spec := c.spec(key.Process(0), "serve")
		spec.Key, spec.Volumes = key, map[string]string{dataPath: key.Data()}
		_, err := c.driver.Prepare(c.t.Context(), spec)
		require.NoError(c.t, err)
		require.NoError(c.t, c.driver.Place(c.t.Context(), key, 1))
	}
	next := c.web
	next.Generation = 2
	for _, tt := range []struct {
		key   engine.Key
		names []string
	}{
		{c.web, []string{c.web.Process(0)}},
		{c.web.WithoutGeneration(), []string{c.web.Process(0), c.web.Data()}},
		{engine.Key{Stack: c.web.Stack}, []string{c.web.Process(0), worker.Process(0), c.web.Data(), worker.Data(), c.web.Network()}},
		{engine.Key{}, []string{
			c.web.Process(0), worker.Process(0), elsewhere.Process(0), c.web.Data(), worker.Data(), elsewhere.Data(),
			c.web.Network(), elsewhere.Network(),
		}},
		{next, nil},
	} {
		assert.ElementsMatch(c.t, tt.names, namesOf(c, c.driver, tt.key))
	}
	assert.Empty(c.t, namesOf(c, c.bench.Another, engine.Key{}))
	volumes, err := c.driver.Volumes(c.t.Context(), c.web.WithoutGeneration())
	require.NoError(c.t, err)
	assert.Equal(c.t, []engine.Volume{{Name: c.web.Data(), Key: c.web.WithoutGeneration()}}, volumes)
	networks, err := c.driver.Networks(c.t.Context(), engine.Key{Stack: c.web.Stack})
	require.NoError(c.t, err)
	assert.Equal(c.t, []engine.Network{{Name: c.web.Network(), Key: engine.Key{Stack: c.web.Stack, Generation: 1}}}, networks)
}

// namesOf returns the names of the containers, volumes and networks of a key.
func namesOf(c trial, d engine.Driver, key engine.Key) []string {
	containers, err := d.Containers(c.t.Context(), key)
	require.NoError(c.t, err)
	volumes, err := d.Volumes(c.t.Context(), key)
	require.NoError(c.t, err)
	networks, err := d.Networks(c.t.Context(), key)
	require.NoError(c.t, err)
	return engine.Objects{Containers: containers, Volumes: volumes, Networks: networks}.Names()
}
