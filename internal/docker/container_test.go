package docker

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
)

func TestCreate_ReportsAVolumeThatIsMissing(t *testing.T) {
	b := testBench(t)
	spec := b.spec("serve")
	spec.Volumes = map[string]string{"/data": "berth-test-no-such-volume"}
	_, err := b.driver.tryCreate(t.Context(), b.driver.unit(&spec))
	require.ErrorIs(t, err, engine.ErrNotFound)
	assert.Contains(t, err.Error(), "berth-test-no-such-volume")
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

// What unpacks data that came from outside can do nothing but write to the volume.
func TestUnpackData_RunsConfined(t *testing.T) {
	b := testBench(t)
	key := engine.Key{Stack: key.Stack, Service: "web", Volume: 1}
	var found container.InspectResponse
	var running container.TopResponse
	looked := errors.New("it was looked at")
	err := b.driver.UnpackData(t.Context(), key, engine.Unpacking{Image: tools, User: 200_001, Memory: 64 << 20}, func(ctx context.Context, _ io.Writer) (err error) {
		if found, err = b.engine.api.ContainerInspect(ctx, key.RestoreCopy()); err != nil {
			return err
		}
		if running, err = b.engine.api.ContainerTop(ctx, found.ID, []string{"-eo", "uid,pid,args"}); err != nil {
			return err
		}
		return looked
	})
	require.ErrorIs(t, err, looked)
	assert.EqualValues(t, "none", found.HostConfig.NetworkMode)
	assert.EqualValues(t, []string{"ALL"}, found.HostConfig.CapDrop)
	assert.Empty(t, found.HostConfig.CapAdd)
	assert.Contains(t, found.HostConfig.SecurityOpt, "no-new-privileges")
	assert.True(t, slices.ContainsFunc(found.HostConfig.SecurityOpt, func(opt string) bool { return strings.HasPrefix(opt, "seccomp=") }))
	assert.False(t, found.HostConfig.Privileged)
	assert.EqualValues(t, unpackPids, *found.HostConfig.PidsLimit)
	assert.EqualValues(t, 64<<20, found.HostConfig.Memory)
	require.Len(t, found.Mounts, 1)
	assert.Equal(t, key.Data(), found.Mounts[0].Name)
	assert.NotEmpty(t, running.Processes)
	for _, p := range running.Processes {
		assert.Equal(t, "200001", p[0], p)
	}
}

// Where a symlink leads may be decided by another entry, before it or after it.
func TestUnpackData_RefusesSymlinksThatLeadOut(t *testing.T) {
	b := testBench(t)
	key := engine.Key{Stack: key.Stack, Service: "links", Volume: 1}
	type link struct{ name, target string }
	unpack := func(links ...link) error {
		return b.driver.UnpackData(t.Context(), key, engine.Unpacking{Image: tools, User: 200_001}, func(_ context.Context, w io.Writer) error {
			out := tar.NewWriter(w)
			for _, l := range append([]link{{"folder/", ""}, {"folder/below/", ""}}, links...) {
				kind := byte(tar.TypeSymlink)
				if l.target == "" {
					kind = tar.TypeDir
				}
				if err := out.WriteHeader(&tar.Header{Typeflag: kind, Name: l.name, Linkname: l.target, Mode: 0o755}); err != nil {
					return err
				}
			}
			return out.Close()
		})
	}
	up, through := link{"folder/up", ".."}, link{"through", "folder/up/.."}
	for _, inside := range [][]link{
		{up, {"folder/twice", "../folder/up/folder/below"}, {"again", "folder/below/../up"}, {"absolute", "/data/folder/below/../.."}},
		{{"itself", "itself"}, {"a", "b"}, {"b", "a"}, {"missing", "not/there/../.."}, {"a name\nof two lines", "not/there\n/etc"}},
	} {
		require.NoError(t, unpack(inside...), "%v", inside)
	}
	for name, outside := range map[string][]link{
		"through":      {up, through},
		"folder/first": {{"folder/first", "below/up/.."}, {"folder/below/up", "../.."}},
		"here/x":       {{"here", "."}, {"here/x", ".."}}, // it is made as x
		"far":          {up, {"far", "folder/up/../etc"}},
		"lines":        {up, {"lines", "folder/up/../data\n"}},
	} {
		err := unpack(outside...)
		require.ErrorIs(t, err, engine.ErrData, name)
		assert.ErrorContains(t, err, "the entry "+strings.TrimPrefix(name, "here/")+" is a symlink that leads out of the data")
	}
	many := make([]link, 10_000, 10_002)
	for i := range many {
		many[i] = link{fmt.Sprintf("link-%d", i), "folder/below"}
	}
	require.NoError(t, unpack(many...))
	require.ErrorIs(t, unpack(append(many, up, through)...), engine.ErrData)

	bomb := []link{{"l0", "."}}
	for i := range 39 {
		bomb = append(bomb, link{fmt.Sprintf("l%d", i+1), fmt.Sprintf("l%d/folder/../l%d", i, i)})
	}
	require.ErrorContains(t, unpack(bomb...), "its symlinks lead through too many others")

	down := strings.Repeat("a", 255) + "/"
	long := []link{{"l0", strings.Repeat(down, 15)}} // to follow them keeps each path that is left to go
	for i := range 2000 {
		long = append(long, link{fmt.Sprintf("l%d", i+1), fmt.Sprintf("l%d/", i) + strings.Repeat(down, 14)})
	}
	require.ErrorContains(t, unpack(long...), "its symlinks lead through too many others")
}

func TestCreate_FiltersSystemCalls(t *testing.T) {
	b := testBench(t)
	log := b.log(t, b.run(t, b.spec("syscalls")))
	assert.Equal(t, "unshare operation not permitted\nclone3 function not implemented\nvsock operation not permitted\n"+
		"algorithms operation not permitted\nunix ok\n", log)
}

func TestCreate_NamesOptionsThatTheEngineDropped(t *testing.T) {
	want := (&Driver{}).hostConfig(&engine.Spec{Memory: 1 << 20, Pids: 10})
	assert.Empty(t, dropped(want, (&Driver{}).hostConfig(&engine.Spec{Memory: 1 << 20, Pids: 10})))
	got := (&Driver{}).hostConfig(&engine.Spec{})
	got.CapDrop, got.SecurityOpt, got.Init = nil, nil, nil
	got.IpcMode = container.IPCModeShareable
	assert.Equal(t, []string{
		"dropping of all capabilities", "security options (no-new-privileges, seccomp)", "init",
		"private IPC namespace", "process limit", "memory limit",
	}, dropped(want, got))
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
	require.NoError(t, b.driver.CopyIn(t.Context(), id, files))
	require.NoError(t, b.driver.Start(t.Context(), id))
	assert.Equal(t, `/cache 200001:200001 drwx------
/cache/file 200002:200003 -rw-------
/app/new 200004:200004 drwx--x--x
/app/new/file 200004:200004 -rwxr-xr-x
/tmp 0:0 dtrwxrwxrwx
`, b.log(t, id))
}

func TestContainer_IsReachedByTheHostAndByItsAlias(t *testing.T) {
	b := testBench(t)
	network := b.network(t)
	server := b.spec("listen", ":8080")
	server.Network, server.Aliases = network.name, []string{"web"}
	id := b.run(t, server)
	b.awaitLine(t, id, "listening")
	c, err := b.driver.Look(t.Context(), id)
	require.NoError(t, err)

	conn, err := net.DialTimeout("tcp", net.JoinHostPort(c.IP, "8080"), 5*time.Second)
	require.NoError(t, err)
	require.NoError(t, conn.Close())

	client := b.spec("dial", "web:8080")
	client.Network = network.name
	assert.Equal(t, "hello\n", b.log(t, b.run(t, client)))
}

// errSeen ends a Follow that has found its line.
var errSeen = errors.New("seen")

// awaitLine returns once the container has printed a line.
func (b *bench) awaitLine(t *testing.T, id, want string) {
	t.Helper()
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	err := b.driver.Follow(ctx, id, time.Time{}, func(_ time.Time, line []byte) {
		if strings.Contains(string(line), want) {
			stop(errSeen)
		}
	})
	require.ErrorIs(t, context.Cause(ctx), errSeen, "log ended without %q: %v", want, err)
}

// awaitEnd returns a container once its process has ended.
func (b *bench) awaitEnd(t *testing.T, id string) (engine.Container, error) {
	t.Helper()
	ended, failed := b.engine.api.ContainerWait(t.Context(), id, container.WaitConditionNotRunning)
	select {
	case <-ended:
	case err := <-failed:
		require.NoError(t, err)
	}
	return b.driver.Look(t.Context(), id)
}

// next returns the next end that is reported.
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

func TestEnded_MissesNothingFromTheCallOn(t *testing.T) {
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

func TestEnded_ReportsMemoryThatRanOut(t *testing.T) {
	b := aloneBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	exits, failed := b.driver.Ended(ctx)
	spec := b.spec("eat")
	spec.Memory = 32 << 20
	for range 3 { // on a busy machine the engine may lose the event that memory ran out
		id := b.run(t, spec)
		require.Equal(t, id, next(t, exits, failed).ID)
		for range 200 { // the end may come before the engine has written it down
			c, err := b.driver.Look(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, 137, c.ExitCode)
			if c.OOMKilled {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	t.Fatal("the engine says nothing of memory that ran out")
}
