package enginetest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
)

func placeMakesOne(c trial) {
	c.atOnce(func() error { return c.driver.Place(c.t.Context(), c.web, 1) })
	c.place()
	require.NoError(c.t, c.driver.Place(c.t.Context(), c.web.Builds(), 1))
	key := engine.Key{Stack: c.web.Stack, Generation: 1}
	assert.ElementsMatch(c.t, []engine.Network{{Name: c.web.Network(), Key: key}, {Name: c.web.Builds().Network(), Key: key}}, c.inventory().Networks)
}

func placeFindsNone(c trial) {
	key := c.web
	for range c.bench.Subnets {
		require.NoError(c.t, c.driver.Place(c.t.Context(), key, 1))
		key.Generation++
	}
	require.ErrorIs(c.t, c.driver.Place(c.t.Context(), key, 1), engine.ErrNoNetwork)
	require.NoError(c.t, c.driver.Place(c.t.Context(), c.web, 1), "its network is there")
	require.NoError(c.t, c.driver.Discard(c.t.Context(), engine.Objects{Networks: c.inventory().Networks[:1]}))
	require.NoError(c.t, c.driver.Place(c.t.Context(), key, 1))
}

func runShares(c trial) {
	kept := c.web.Shared()
	kept.Service = "kept"
	spec := c.spec(kept.Process(0), "listen", ":8080")
	spec.Key, spec.Network, spec.Aliases, spec.Volumes = kept, c.web.Shared().Network(), []string{"kept"}, nil
	require.NoError(c.t, c.driver.Place(c.t.Context(), c.web.Shared(), 1))
	c.runUntil(spec, "listening")

	c.place()
	other := c.neighbour(c.web.Release(), "serving", "serve")
	assert.False(c.t, c.greets(other, "kept:8080"))
	spec = c.process("listen", ":8080")
	spec.Network, spec.Aliases, spec.Volumes, spec.Shared = c.web.Network(), []string{"web"}, nil, true
	own := c.runUntil(spec, "listening")
	assert.True(c.t, c.greets(own, "kept:8080"))
	assert.True(c.t, c.greets(other, "web:8080"))

	ip := c.look(own).IP
	require.NotEmpty(c.t, ip)
	if c.driver.Promotes() {
		require.NoError(c.t, c.driver.Promote(c.t.Context(), own, "other"))
		assert.Equal(c.t, ip, c.look(own).IP)
		assert.True(c.t, c.greets(other, "other:8080"))
	}
	require.NoError(c.t, c.driver.Stop(c.t.Context(), own))
	require.NoError(c.t, c.driver.Restart(c.t.Context(), own, "web"))
	c.await(own, "listening")
	assert.True(c.t, c.greets(own, "kept:8080"))

	spec.Key.Stack = newKey().Stack // which has no such network
	_, err := c.driver.Run(c.t.Context(), spec)
	require.ErrorIs(c.t, err, engine.ErrNotFound)
}

// fill gives the stack an object of each kind.
func (c trial) fill() {
	c.t.Helper()
	spec := c.process("serve")
	spec.Network = c.place()
	id := c.runUntil(spec, "")
	require.NoError(c.t, c.driver.Commit(c.t.Context(), id, c.web.Image(1), c.web, engine.ImageConfig{}))
}

func inventoryOwn(c trial) {
	c.fill()
	there := c.inventory()
	assert.Equal(c.t, []string{c.web.Process(0), c.web.Data(), c.web.Image(1), c.web.Network()}, there.Names())
	assert.Equal(c.t, c.web, there.Containers[0].Key)
	assert.Equal(c.t, c.web, there.Images[0].Key)
	assert.Equal(c.t, c.web.WithoutGeneration(), there.Volumes[0].Key)

	another := trial{c.t, c.bench, c.bench.Another, newKey()}
	another.prepare(another.web.Build(), c.bench.Image)
	elsewhere := trial{c.t, c.bench, c.driver, newKey()}
	elsewhere.prepare(elsewhere.web.Build(), c.bench.Image)
	all, err := c.driver.Inventory(c.t.Context(), "")
	require.NoError(c.t, err)
	assert.Equal(c.t, map[string]engine.Objects{c.web.Stack: there, elsewhere.web.Stack: elsewhere.inventory()}, all)
	assert.True(c.t, trial{c.t, c.bench, c.driver, another.web}.inventory().IsEmpty())
}

func discardAll(c trial) {
	c.fill()
	there := c.inventory()
	c.atOnce(func() error { return c.driver.Discard(c.t.Context(), there) })
	assert.True(c.t, c.inventory().IsEmpty())
	require.NoError(c.t, c.driver.Discard(c.t.Context(), there), "it is gone")
}

func discardGoesOn(c trial) {
	c.place()
	c.prepare(c.web.Build(), c.bench.Image)
	there := c.inventory()
	rest := engine.Objects{Volumes: there.Volumes, Networks: there.Networks}
	require.Error(c.t, c.driver.Discard(c.t.Context(), rest), "a container has the volume")
	assert.Equal(c.t, []string{c.web.Build(), c.web.Data()}, c.inventory().Names())
}

func discardUsed(c trial) {
	id := c.prepare(c.web.Build(), c.bench.Image)
	require.NoError(c.t, c.driver.Commit(c.t.Context(), id, c.web.Image(1), c.web, engine.ImageConfig{}))
	used := engine.Objects{Images: []engine.Image{{Tags: []string{c.web.Image(1)}}}}
	id = c.prepare(c.web.Install(), c.web.Image(1))
	require.NoError(c.t, c.driver.Discard(c.t.Context(), used))
	assert.True(c.t, c.hasImage(c.web.Image(1)))
	require.NoError(c.t, c.driver.Remove(c.t.Context(), id))
	require.NoError(c.t, c.driver.Discard(c.t.Context(), used))
	assert.False(c.t, c.hasImage(c.web.Image(1)))
}

func makeCancelled(c trial) {
	ctx, cancel := context.WithCancel(c.t.Context())
	cancel()
	running := c.runUntil(c.spec(c.web.Release(), "serve"), "serving")
	id, err := c.driver.Run(ctx, c.process("serve"))
	require.ErrorIs(c.t, err, context.Canceled)
	assert.Equal(c.t, id, c.inventory().Container(c.web.Process(0)).ID)
	// Whether these succeed does not matter, only that nothing happens after they return.
	_ = c.driver.Place(ctx, c.web, 1)
	_ = c.driver.Commit(ctx, running, c.web.Image(1), c.web, engine.ImageConfig{})
	_, _ = c.driver.Prepare(ctx, c.spec(c.web.Build(), "serve"))
	before := c.inventory()
	time.Sleep(500 * time.Millisecond)
	assert.Equal(c.t, before, c.inventory())
}

// write puts a text into the service's data.
func (c trial) write(text string) {
	c.t.Helper()
	id := c.prepare(c.web.Release(), c.bench.Image)
	require.NoError(c.t, c.driver.CopyIn(c.t.Context(), id, files(c, "data/file", text)))
	require.NoError(c.t, c.driver.Remove(c.t.Context(), id))
}

// data returns the text in the service's data.
func (c trial) data() string {
	c.t.Helper()
	return strings.TrimSpace(c.output("cat", dataPath+"/file"))
}

func (c trial) snapshot() error {
	return c.driver.Snapshot(c.t.Context(), c.web, engine.SnapshotSpec{Image: c.bench.Tools, Pids: 100})
}

// restore brings the service's data back from its snapshot, which becomes a leftover.
func (c trial) restore() {
	c.t.Helper()
	require.NoError(c.t, c.driver.Restore(c.t.Context(), c.web, c.web.Process(0)))
	there := c.inventory()
	assert.True(c.t, hasVolume(there, c.web.Data()))
	assert.True(c.t, hasImage(there, c.web.Restored()))
	assert.False(c.t, hasImage(there, c.web.Snapshot()))
	assert.Empty(c.t, there.Containers)
}

func snapshotRestores(c trial) {
	c.write("kept")
	for range 2 {
		require.NoError(c.t, c.snapshot())
		there := c.inventory()
		assert.Empty(c.t, there.Containers)
		assert.Empty(c.t, there.Volumes)
		require.Len(c.t, there.Images, 1)
		assert.Equal(c.t, []string{c.web.Snapshot()}, there.Images[0].Tags)
		assert.Equal(c.t, c.web.WithoutGeneration(), there.Images[0].Key)
	}
	c.write("changed")
	require.NoError(c.t, c.snapshot(), "the one that is there stays as it is")
	assert.Empty(c.t, c.inventory().Volumes)
	c.write("half of it") // as an earlier attempt leaves it
	c.runUntil(c.process("serve"), "")
	c.restore()
	c.restore() // there is none any more
	assert.Equal(c.t, "kept", c.data())
}

func dataKnown(c trial) {
	has := func(container string) bool {
		there, err := c.driver.HasData(c.t.Context(), c.web, container, c.bench.Tools)
		require.NoError(c.t, err)
		return there
	}
	assert.False(c.t, has(""), "there is no volume")
	assert.Empty(c.t, c.inventory().Volumes, "none is made")
	id := c.prepare(c.web.Release(), c.bench.Tools)
	for _, through := range []string{id, ""} {
		assert.False(c.t, has(through))
	}
	require.NoError(c.t, c.driver.CopyIn(c.t.Context(), id, files(c, "data/.hidden", "")))
	for _, through := range []string{id, ""} {
		assert.True(c.t, has(through))
	}
	assert.Len(c.t, c.inventory().Containers, 1)
}

func keepCancelled(c trial) {
	c.write("kept")
	for _, moment := range moments {
		for _, do := range []func(context.Context) error{
			func(ctx context.Context) error {
				return c.driver.Snapshot(ctx, c.web, engine.SnapshotSpec{Image: c.bench.Tools, Pids: 100})
			},
			func(ctx context.Context) error { return c.driver.Restore(ctx, c.web, c.web.Process(0)) },
		} {
			if err := c.within(moment, do); moment == 0 {
				require.ErrorIs(c.t, err, context.DeadlineExceeded)
			}
			there := c.inventory()
			assert.Empty(c.t, there.Containers)
			assert.True(c.t, hasVolume(there, c.web.Data()) || hasImage(there, c.web.Snapshot()))
			time.Sleep(300 * time.Millisecond)
			assert.Subset(c.t, there.Names(), c.inventory().Names(), "what is being removed may still go")
		}
	}
	require.NoError(c.t, c.snapshot()) // one may never have been made in time
	c.restore()
	assert.Equal(c.t, "kept", c.data())
}

func snapshotLeft(c trial) {
	leave := func() {
		c.write("half of it")
		c.prepare(c.web.SnapshotCopy(), c.bench.Image)
		c.prepare(c.web.RestoreCopy(), c.bench.Image)
	}
	c.write("kept")
	require.NoError(c.t, c.snapshot())
	leave()
	require.NoError(c.t, c.snapshot())
	there := c.inventory()
	assert.Empty(c.t, there.Containers)
	assert.Empty(c.t, there.Volumes)
	leave()
	c.restore()
	assert.Equal(c.t, "kept", c.data())
}

func restoreInUse(c trial) {
	c.write("kept")
	require.NoError(c.t, c.snapshot())
	id := c.prepare(c.web.Build(), c.bench.Image)
	err := c.driver.Restore(c.t.Context(), c.web, c.web.Process(0))
	require.ErrorIs(c.t, err, engine.ErrHost)
	require.NoError(c.t, c.driver.Remove(c.t.Context(), id))
	c.restore()
	assert.Equal(c.t, "kept", c.data())
}

func snapshotMissing(c trial) {
	require.ErrorIs(c.t, c.snapshot(), engine.ErrNotFound)
	require.NoError(c.t, c.driver.Restore(c.t.Context(), c.web, c.web.Process(0)))
	assert.True(c.t, c.inventory().IsEmpty())
}

func keepAtOnce(c trial) {
	restore := func() error { return c.driver.Restore(c.t.Context(), c.web, c.web.Process(0)) }
	c.write("kept")
	c.atOnce(c.snapshot)
	there := c.inventory()
	assert.Empty(c.t, there.Containers)
	assert.Empty(c.t, there.Volumes)
	assert.True(c.t, hasImage(there, c.web.Snapshot()))
	var begun atomic.Bool
	var process string
	c.atOnce(func() error {
		err := restore()
		if err == nil && begun.CompareAndSwap(false, true) {
			process, err = c.driver.Run(c.t.Context(), c.process("serve"))
		}
		return err
	})
	assert.True(c.t, c.look(process).Running, "what runs on the data that is back stays")
	assert.Equal(c.t, "kept", c.data())
	require.NoError(c.t, c.driver.Remove(c.t.Context(), process))
	require.NoError(c.t, c.driver.Remove(c.t.Context(), c.web.Release()))

	require.NoError(c.t, c.snapshot())
	var both sync.WaitGroup
	both.Go(func() { assert.NoError(c.t, restore()) })
	both.Go(func() { assert.NoError(c.t, c.snapshot()) })
	both.Wait()
	require.NoError(c.t, restore())
	assert.Equal(c.t, "kept", c.data())

	id := c.runUntil(c.process("serve"), "serving")
	c.atOnce(func() error { return c.driver.Commit(c.t.Context(), id, c.web.Image(1), c.web, engine.ImageConfig{}) })
	assert.True(c.t, c.hasImage(c.web.Image(1)))
	assert.True(c.t, c.inventory().Container(c.web.Process(0)).Paused)
}

func snapshotRoom(c trial) {
	c.write("kept")
	err := c.driver.Snapshot(c.t.Context(), c.web, engine.SnapshotSpec{Image: c.bench.Tools, Floor: 1 << 60})
	require.ErrorIs(c.t, err, engine.ErrNoRoom)
	there := c.inventory()
	assert.Empty(c.t, there.Images)
	assert.Empty(c.t, there.Containers)
	assert.Equal(c.t, "kept", c.data())
}

func commitRoom(c trial) {
	for _, running := range []bool{false, true} {
		id := c.prepare(c.web.Build(), c.bench.Image)
		if running {
			require.NoError(c.t, c.driver.Start(c.t.Context(), id))
		}
		err := c.driver.Commit(c.t.Context(), id, c.web.Image(1), c.web, engine.ImageConfig{Floor: 1 << 60})
		require.ErrorIs(c.t, err, engine.ErrNoRoom)
		_, ok := errors.AsType[*engine.NoRoomError](err)
		assert.True(c.t, ok)
		assert.False(c.t, c.hasImage(c.web.Image(1)))
		assert.Equal(c.t, running, c.inventory().Container(c.web.Build()).Paused)
	}
}

func commitMakes(c trial) {
	id := c.prepare(c.web.Build(), c.bench.Image)
	require.NoError(c.t, c.driver.CopyIn(c.t.Context(), id, files(c, "made/file", "built", "data/file", "data")))
	require.NoError(c.t, c.driver.Start(c.t.Context(), id))
	for range 2 {
		require.NoError(c.t, c.driver.Commit(c.t.Context(), id, c.web.Image(1), c.web, engine.ImageConfig{User: "200001:200001"}))
	}
	assert.True(c.t, c.inventory().Container(c.web.Build()).Paused)
	for ref, want := range map[string]int{c.web.Image(1): 200001, c.bench.Image: 0} {
		user, err := c.driver.ImageUser(c.t.Context(), ref)
		require.NoError(c.t, err)
		assert.Equal(c.t, want, user)
	}
	spec := c.process("cat", "/made/file")
	spec.Image, spec.Volumes = c.web.Image(1), nil
	assert.Equal(c.t, "built\n", c.log(c.runUntil(spec, "")))
	spec.Cmd = c.bench.Command("cat", dataPath+"/file")
	id = c.runUntil(spec, "")
	c.log(id)
	assert.Equal(c.t, 1, c.look(id).ExitCode, "the files of a volume are not in the image")
	err := c.driver.Commit(c.t.Context(), c.web.Process(9), c.web.Image(1), c.web, engine.ImageConfig{})
	require.ErrorIs(c.t, err, engine.ErrNotFound)
	_, err = c.driver.ImageUser(c.t.Context(), c.web.Snapshot())
	require.ErrorIs(c.t, err, engine.ErrNotFound)
}

func tagAdds(c trial) {
	ref := c.web.Image(1)
	require.ErrorIs(c.t, c.driver.Tag(c.t.Context(), ref, c.web.Restored()), engine.ErrNotFound)
	c.atOnce(func() error { return c.driver.Tag(c.t.Context(), c.bench.Image, ref) })
	assert.True(c.t, c.hasImage(ref))
	require.NoError(c.t, c.driver.Discard(c.t.Context(), engine.Objects{Images: []engine.Image{{Tags: []string{ref}}}}))
	assert.False(c.t, c.hasImage(ref))
	assert.True(c.t, c.hasImage(c.bench.Image))
}

func (c trial) hasImage(ref string) bool {
	c.t.Helper()
	there, err := c.driver.HasImage(c.t.Context(), ref)
	require.NoError(c.t, err)
	return there
}

func imagesMade(c trial) {
	for _, make := range map[string]func(ref string) error{
		"Import": func(ref string) error {
			return c.driver.Import(c.t.Context(), ref, files(c, "file", "text"), []string{"WORKDIR /made"})
		},
		"MakeImage": func(ref string) error {
			spec := engine.ImageSpec{Context: files(c, "Dockerfile", "FROM "+c.bench.Image+"\nLABEL made=yes\n"), Ref: ref}
			return c.driver.MakeImage(c.t.Context(), spec, io.Discard)
		},
	} {
		ref := newKey().Image(1)
		for range 2 {
			require.NoError(c.t, make(ref))
			assert.True(c.t, c.hasImage(ref))
			there, err := c.driver.Inventory(c.t.Context(), "")
			require.NoError(c.t, err)
			assert.Empty(c.t, there, "no installation has it for itself")
			require.NoError(c.t, c.driver.Discard(c.t.Context(), engine.Objects{Images: []engine.Image{{Tags: []string{ref}}}}))
		}
	}
}

func pullFails(c trial) {
	require.Error(c.t, c.driver.Pull(c.t.Context(), "127.0.0.1:9/no/such/image:1", io.Discard))
}

// files packs files, each a path and a text.
func emptyImage(c trial) {
	ref := newKey().Image(1)
	require.NoError(c.t, c.driver.Import(c.t.Context(), ref, files(c, "file", "text"), nil))
	require.NoError(c.t, c.driver.Import(c.t.Context(), ref, files(c), nil))
	assert.False(c.t, c.hasImage(ref))
	require.NoError(c.t, c.driver.Discard(c.t.Context(), engine.Objects{Images: []engine.Image{{Tags: []string{ref}}}}))
}

func files(c trial, entries ...string) io.Reader {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for i := 0; i < len(entries); i += 2 {
		require.NoError(c.t, w.WriteHeader(&tar.Header{Name: entries[i], Mode: 0o644, Size: int64(len(entries[i+1]))}))
		_, err := io.WriteString(w, entries[i+1])
		require.NoError(c.t, err)
	}
	require.NoError(c.t, w.Close())
	return &out
}

func lostRun(c trial) {
	c.bench.LoseAnswers()
	id := c.runUntil(c.process("append", dataPath+"/runs", "x"), "")
	c.log(id)
	c.bench.LoseAnswers()
	require.NoError(c.t, c.driver.Restart(c.t.Context(), id))
	c.log(id)
	assert.Equal(c.t, "xx", strings.TrimSpace(c.output("cat", dataPath+"/runs")))
}

func lostStart(c trial) {
	spec := c.process("append", dataPath+"/runs", "x")
	id, err := c.driver.Prepare(c.t.Context(), spec)
	require.NoError(c.t, err)
	for _, start := range []func() error{
		func() error { return c.driver.Start(c.t.Context(), id) },
		func() error { return c.driver.Restart(c.t.Context(), id) },
	} {
		c.bench.BreakStart()
		require.NoError(c.t, start())
		c.log(id)
	}
	assert.Equal(c.t, "xx", strings.TrimSpace(c.output("cat", dataPath+"/runs")))
}

func lostAsked(c trial) {
	c.bench.LoseAnswers()
	c.fill()
	assert.Equal(c.t, []string{c.web.Process(0), c.web.Data(), c.web.Image(1), c.web.Network()}, c.inventory().Names())
	c.bench.LoseAnswers()
	id := c.prepare(c.web.Build(), c.bench.Image)
	require.NoError(c.t, c.driver.Start(c.t.Context(), id))
	require.NoError(c.t, c.driver.Tag(c.t.Context(), c.web.Image(1), c.web.Restored()))
	c.bench.LoseAnswers()
	require.NoError(c.t, c.driver.Stop(c.t.Context(), c.web.Process(0)))
	require.NoError(c.t, c.driver.Remove(c.t.Context(), c.web.Process(0)))
	require.NoError(c.t, c.driver.Discard(c.t.Context(), c.inventory()))
	assert.True(c.t, c.inventory().IsEmpty())
}

func lostData(c trial) {
	c.write("kept")
	c.bench.LoseAnswers()
	require.NoError(c.t, c.snapshot())
	assert.Empty(c.t, c.inventory().Volumes)
	c.bench.LoseAnswers()
	c.restore()
	assert.Equal(c.t, "kept", c.data())
}

func lostFill(c trial) {
	c.write("kept")
	require.NoError(c.t, c.snapshot())
	c.bench.BreakFill(c.web, c.web.Data())
	c.restore()
	assert.Equal(c.t, "kept", c.data())
	require.NoError(c.t, c.driver.Remove(c.t.Context(), c.web.Release()))

	spec := c.process("cat", "/kept/file")
	spec.Image, spec.Volumes = c.imageWith("kept/file", "of the image"), map[string]string{"/kept": c.web.Cache(0)}
	c.bench.BreakFill(c.web, c.web.Cache(0))
	assert.Equal(c.t, "of the image\n", c.log(c.runUntil(spec, "")))
}

func awayFails(c trial) {
	id := c.runUntil(c.process("serve"), "serving")
	require.NoError(c.t, c.driver.Accepts(c.t.Context()))
	c.bench.Leave()
	assert.Error(c.t, c.driver.Accepts(c.t.Context()))
	_, err := c.driver.Look(c.t.Context(), id)
	require.ErrorIs(c.t, err, engine.ErrUnreachable)
	for _, ask := range []func(context.Context) error{
		func(ctx context.Context) error { return c.driver.Place(ctx, c.web, 1) },
		func(ctx context.Context) error { return c.driver.Stop(ctx, id) },
		func(ctx context.Context) error { return c.driver.Remove(ctx, id) },
		func(ctx context.Context) error { return c.driver.Restart(ctx, id) },
		func(ctx context.Context) error { return c.driver.Promote(ctx, id) },
		func(ctx context.Context) error {
			return c.driver.Discard(ctx, engine.Objects{Volumes: []engine.Volume{{Name: c.web.Data()}}})
		},
		func(ctx context.Context) error {
			return c.driver.Commit(ctx, id, c.web.Image(1), c.web, engine.ImageConfig{})
		},
		func(ctx context.Context) error { _, err := c.driver.Run(ctx, c.process("serve")); return err },
		func(ctx context.Context) error { _, err := c.driver.Inventory(ctx, ""); return err },
	} {
		ctx, cancel := c.soon()
		err := ask(ctx)
		require.Error(c.t, err)
		require.True(c.t, errors.Is(err, engine.ErrUnreachable) || errors.Is(err, ctx.Err()), "%v", err)
		cancel()
	}
	c.bench.Return()
	require.NoError(c.t, c.driver.Accepts(c.t.Context()))
	require.NoError(c.t, c.driver.Restart(c.t.Context(), id))
	assert.True(c.t, c.look(id).Running)
}

func awayRemoval(c trial) {
	id := c.runUntil(c.process("serve"), "serving")
	c.bench.Leave()
	removed := make(chan error, 1)
	go func() { removed <- c.driver.Remove(c.t.Context(), id) }()
	time.Sleep(time.Second)
	assert.Empty(c.t, removed)
	c.bench.Return()
	require.NoError(c.t, <-removed)
	assert.Empty(c.t, c.inventory().Containers)
}

func awayEnded(c trial) {
	_, broken := c.driver.Ended(c.t.Context())
	c.runUntil(c.process("serve"), "serving")
	c.bench.Leave()
	require.Error(c.t, <-broken)
	_, fails := c.driver.Ended(c.t.Context())
	require.Error(c.t, <-fails)
	c.bench.Return()
	ctx, cancel := context.WithCancel(c.t.Context())
	ends, again := c.driver.Ended(ctx)
	id := c.runUntil(c.spec(c.web.Release(), "exit", "0"), "")
	for end := range ends { // the process may have ended now, too
		if end.ID == id {
			break
		}
	}
	cancel()
	require.ErrorIs(c.t, <-again, context.Canceled)
	assert.Empty(c.t, broken)
}

// hasVolume reports whether there is a volume of a name.
func hasVolume(there engine.Objects, name string) bool {
	return slices.ContainsFunc(there.Volumes, func(v engine.Volume) bool { return v.Name == name })
}

// hasImage reports whether an image has a reference.
func hasImage(there engine.Objects, ref string) bool {
	return slices.ContainsFunc(there.Images, func(i engine.Image) bool { return slices.Contains(i.Tags, ref) })
}
