package docker

import (
	"archive/tar"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
)

func TestContainer_LivesFromCreateToRemove(t *testing.T) {
	b := testBench(t)
	spec := b.spec("serve")
	id := b.create(t, spec)

	c, err := b.engine.Inspect(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, spec.Name, c.Name)
	assert.Equal(t, spec.Image, c.Image)
	assert.Equal(t, "created", c.State)
	assert.Zero(t, c.StartedAt)
	assert.Zero(t, c.FinishedAt)
	assert.True(t, carries(c.Labels, b.labels))

	require.NoError(t, b.engine.Start(t.Context(), id))
	require.NoError(t, b.engine.Start(t.Context(), id), "started already")
	c, err = b.engine.Inspect(t.Context(), spec.Name)
	require.NoError(t, err)
	assert.True(t, c.Running)
	assert.NotZero(t, c.Pid)
	assert.WithinDuration(t, time.Now(), c.StartedAt, time.Minute)
	b.awaitLine(t, id, "serving")

	require.NoError(t, b.engine.Stop(t.Context(), id))
	c, err = b.engine.Inspect(t.Context(), id)
	require.NoError(t, err)
	assert.False(t, c.Running)
	assert.Zero(t, c.ExitCode, "the program handled SIGTERM")
	assert.WithinDuration(t, time.Now(), c.FinishedAt, time.Minute)
	assert.Equal(t, "serving\nstopping\n", b.log(t, id))

	require.NoError(t, b.engine.Remove(t.Context(), id))
	_, err = b.engine.Inspect(t.Context(), id)
	require.ErrorIs(t, err, engine.ErrNotFound)
	assert.Contains(t, err.Error(), "inspect container "+id)
}

func TestCreate_RefusesATakenName(t *testing.T) {
	b := testBench(t)
	spec := b.spec("serve")
	b.create(t, spec)
	_, err := b.engine.Create(t.Context(), spec)
	require.ErrorIs(t, err, ErrConflict)
	assert.NotErrorIs(t, err, engine.ErrNotFound)
}

func TestCreate_ReportsWhatIsMissing(t *testing.T) {
	b := testBench(t)
	spec := b.spec("serve")
	spec.Image = "berth-test-no-such-image:1"
	_, err := b.engine.Create(t.Context(), spec)
	require.ErrorIs(t, err, engine.ErrNotFound)
	assert.Contains(t, err.Error(), spec.Image)

	spec = b.spec("serve")
	spec.Volumes = map[string]string{"/data": "berth-test-no-such-volume"}
	_, err = b.engine.Create(t.Context(), spec)
	require.ErrorIs(t, err, engine.ErrNotFound)
	assert.Contains(t, err.Error(), "berth-test-no-such-volume")
}

func TestStart_ReportsANetworkThatIsMissing(t *testing.T) {
	b := testBench(t)
	spec := b.spec("serve")
	spec.Network = "berth-test-no-such-network"
	err := b.engine.Start(t.Context(), b.create(t, spec))
	require.ErrorIs(t, err, engine.ErrNotFound)
	assert.Contains(t, err.Error(), spec.Network)
}

func TestCreate_HoldsTheProcessToItsLimits(t *testing.T) {
	b := testBench(t)
	spec := b.spec("limits")
	spec.Memory, spec.NanoCPUs, spec.CPUShares, spec.LogMax = 64<<20, 5e8, 512, 100_000
	id := b.run(t, spec)
	log := b.log(t, id)
	for _, want := range []string{
		"core 0 0\n", "pid1 true\n", "CapEff 0000000000000000\n", "CapBnd 0000000000000000\n",
		"NoNewPrivs 1\n", "Seccomp 2\n",
	} {
		assert.Contains(t, log, want)
	}
	found, err := b.engine.api.ContainerInspect(t.Context(), id)
	require.NoError(t, err)
	assert.EqualValues(t, 100, *found.HostConfig.PidsLimit)
	assert.EqualValues(t, 64<<20, found.HostConfig.Memory)
	assert.Equal(t, map[string]string{"max-size": "50000", "max-file": "2"}, found.HostConfig.LogConfig.Config)
	assert.Empty(t, found.HostConfig.PortBindings)
	assert.EqualValues(t, "none", found.HostConfig.NetworkMode)
}

func TestCreate_FiltersSystemCalls(t *testing.T) {
	b := testBench(t)
	log := b.log(t, b.run(t, b.spec("syscalls")))
	assert.Equal(t, "unshare operation not permitted\nclone3 function not implemented\nvsock operation not permitted\n"+
		"algorithms operation not permitted\nunix ok\n", log)
}

func TestCreate_NamesOptionsThatTheEngineDropped(t *testing.T) {
	want := hostConfig(&ContainerSpec{Memory: 1 << 20, Pids: 10})
	assert.Empty(t, dropped(want, hostConfig(&ContainerSpec{Memory: 1 << 20, Pids: 10})))
	got := hostConfig(&ContainerSpec{})
	got.CapDrop, got.SecurityOpt, got.Init = nil, nil, nil
	got.IpcMode = container.IPCModeShareable
	assert.Equal(t, []string{
		"dropping of all capabilities", "security options (no-new-privileges, seccomp)", "init",
		"private IPC namespace", "process limit", "memory limit",
	}, dropped(want, got))
}

func TestStop_KillsAProcessThatIgnoresSIGTERM(t *testing.T) {
	b := testBench(t)
	spec := b.spec("stubborn")
	spec.StopTimeout = 100 * time.Millisecond
	id := b.run(t, spec)
	b.awaitLine(t, id, "serving")
	require.NoError(t, b.engine.Stop(t.Context(), id))
	c, err := b.engine.Inspect(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, 137, c.ExitCode)
}

func TestContainer_StopAndRemoveOfNothingSucceed(t *testing.T) {
	b := testBench(t)
	name := b.name()
	require.NoError(t, b.engine.Stop(t.Context(), name))
	require.NoError(t, b.engine.Remove(t.Context(), name))
	require.ErrorIs(t, b.engine.Start(t.Context(), name), engine.ErrNotFound)
}

func TestRemove_ManyAtOnceAllWaitUntilItIsGone(t *testing.T) {
	b := testBench(t)
	id := b.run(t, b.spec("stubborn"))
	var removers sync.WaitGroup
	for range 8 {
		removers.Go(func() {
			assert.NoError(t, b.engine.Remove(t.Context(), id))
			_, err := b.engine.Inspect(t.Context(), id)
			assert.ErrorIs(t, err, engine.ErrNotFound)
		})
	}
	removers.Wait()
}

func TestStart_ReportsAProgramThatIsNotThere(t *testing.T) {
	b := testBench(t)
	spec := b.spec()
	spec.Cmd = []string{"/no/such/program"}
	id := b.run(t, spec) // the init starts, the program does not
	c, err := b.awaitEnd(t, id)
	require.NoError(t, err)
	assert.Equal(t, 127, c.ExitCode)
}

func TestList_FindsEveryStateByLabel(t *testing.T) {
	b := testBench(t)
	mine := Labels{"berth-test": b.labels["berth-test"], "berth-test-list": b.name()}
	running, created := b.spec("serve"), b.spec("serve")
	running.Labels, created.Labels = mine, mine
	network := b.network(t)
	running.Network = network.Name
	b.run(t, running)
	b.create(t, created)

	list, err := b.engine.List(t.Context(), mine)
	require.NoError(t, err)
	require.Len(t, list, 2)
	for _, c := range list {
		assert.Equal(t, c.Name == running.Name, c.Running)
		assert.Equal(t, c.Running, c.IP != "")
		assert.Equal(t, b.image, c.Image)
		assert.True(t, carries(c.Labels, mine))
	}
}

func TestCopyIn_KeepsOwnerAndModeOfTheTar(t *testing.T) {
	b := testBench(t)
	volume := b.volume(t)
	spec := b.spec("stat", "/cache", "/cache/file", "/app/new", "/app/new/file", "/tmp")
	spec.Volumes = map[string]string{"/cache": volume}
	spec.User = "200001:200001"
	id := b.create(t, spec)
	files, err := pack(
		tar.Header{Name: "cache/", Mode: 0o700, Uid: owner, Gid: owner}, "",
		tar.Header{Name: "cache/file", Mode: 0o600, Uid: owner + 1, Gid: owner + 2}, "kept",
		tar.Header{Name: "app/new/", Mode: 0o711, Uid: owner + 3, Gid: owner + 3}, "",
		tar.Header{Name: "app/new/file", Mode: 0o755, Uid: owner + 3, Gid: owner + 3}, "#!",
		tar.Header{Name: "tmp/", Mode: 0o1777}, "",
	)
	require.NoError(t, err)
	require.NoError(t, b.engine.CopyIn(t.Context(), id, "/", files))
	require.NoError(t, b.engine.Start(t.Context(), id))
	assert.Equal(t, `/cache 200001:200001 drwx------
/cache/file 200002:200003 -rw-------
/app/new 200004:200004 drwx--x--x
/app/new/file 200004:200004 -rwxr-xr-x
/tmp 0:0 dtrwxrwxrwx
`, b.log(t, id))
}

func TestCopyIn_NeedsItsDirectory(t *testing.T) {
	b := testBench(t)
	id := b.create(t, b.spec("serve"))
	files, err := pack(tar.Header{Name: "a", Mode: 0o600}, "a")
	require.NoError(t, err)
	require.ErrorIs(t, b.engine.CopyIn(t.Context(), id, "/no/such", files), engine.ErrNotFound)
}

func TestContainer_IsReachedByTheHostAndByItsAlias(t *testing.T) {
	b := testBench(t)
	network := b.network(t)
	server := b.spec("listen", ":8080")
	server.Network, server.Aliases = network.Name, []string{"web"}
	id := b.run(t, server)
	b.awaitLine(t, id, "listening")
	c, err := b.engine.Inspect(t.Context(), id)
	require.NoError(t, err)

	conn, err := net.DialTimeout("tcp", net.JoinHostPort(c.IP, "8080"), 5*time.Second)
	require.NoError(t, err)
	require.NoError(t, conn.Close())

	client := b.spec("dial", "web:8080")
	client.Network = network.Name
	assert.Equal(t, "hello\n", b.log(t, b.run(t, client)))
}

// errSeen ends a Follow that has what it looks for.
var errSeen = errors.New("seen")

// awaitLine returns once the container has printed a line.
func (b *bench) awaitLine(t *testing.T, id, want string) {
	t.Helper()
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	err := b.engine.Follow(ctx, id, time.Time{}, func(_ time.Time, line []byte) {
		if strings.Contains(string(line), want) {
			stop(errSeen)
		}
	})
	require.ErrorIs(t, context.Cause(ctx), errSeen, "log ended without %q: %v", want, err)
}

// awaitEnd returns the container once its main process has ended.
func (b *bench) awaitEnd(t *testing.T, id string) (Container, error) {
	t.Helper()
	ended, failed := b.engine.api.ContainerWait(t.Context(), id, container.WaitConditionNotRunning)
	select {
	case <-ended:
	case err := <-failed:
		require.NoError(t, err)
	}
	return b.engine.Inspect(t.Context(), id)
}
