package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// differently lists the results that differ under gVisor. Its own kernel answers,
// inside the sandbox, and nothing of the host is behind it.
var differently = map[string]string{
	// Berth's filter of system calls is not applied: these reach gVisor's kernel, which
	// does not have them, or has nothing for them to act on, or refuses them with
	// another error.
	"system call filter": "", "io_uring_setup": "ENOSYS", "io_uring_enter": "ENOSYS", "io_uring_register": "ENOSYS",
	"socket vsock": "EAFNOSUPPORT", "socket alg": "EAFNOSUPPORT", "socket bluetooth": "EAFNOSUPPORT", "socket xdp": "EAFNOSUPPORT",
	"fsopen": "ENOSYS", "open_tree": "ENOSYS", "move_mount": "ENOSYS", "mount_setattr": "ENOSYS", "userfaultfd": "ENOSYS",
	"keyctl": "ENOSYS", "fanotify_init": "ENOSYS", "add_key": "EACCES", "request_key": "EACCES", "perf_event_open": "ENODEV",
	"open_by_handle_at": "ENOTSUP", "interface down": "ENOTTY", "real-time priority": "EINVAL", "setns": "EINVAL", "clone3": "EINVAL",
	"unshare user": "EINVAL", "personality": "EINVAL", "pidfd_getfd": "EBADF",

	// What it has is the sandbox's own: a user namespace gives rights over nothing
	// else, memory policies and priorities are numbers that it keeps, its log is the
	// same few lines in every sandbox. Which process the host ends first is set
	// outside, on the sandbox.
	"clone user namespace": "ok", "mbind": "ok", "higher priority": "ok", "out of memory score": "ok", "syslog": "ok",

	// Files of a kernel that it does not have; a masked path that is not there is
	// not made. Its /dev/fuse serves file systems inside the sandbox.
	"read /proc/keys": "ENOENT", "read /proc/key-users": "ENOENT", "read /proc/interrupts": "ENOENT", "read /proc/kmsg": "ENOENT",
	"write /proc/irq/default_smp_affinity": "ENOENT", "write /proc/sys/kernel/core_pattern": "ENOENT",
	"devices": "full fuse null random tty urandom zero", "read /dev/fuse": "empty",

	// It has no message queues. The only base image on the test's engine is Debian: a
	// cache is there only in a build.
	"writable": "/app( /cache)? /data /dev/shm /home/app /run/lock /tmp /var/tmp",
}

func TestIsolation_UnderGVisor(t *testing.T) {
	t.Parallel()
	e := startGVisor(t)
	refuses(t, "bare", "the runtime bare is gVisor without --overlay2=none --network=host", on(e))
	h, st := isolates(t, e, differently, on(e), with("BERTH_CONTAINER_RUNTIME", "runsc"))
	score, err := os.ReadFile(e.process(h.inspect(t, st, "web").State.Pid, "oom_score_adj"))
	require.NoError(t, err)
	require.Equal(t, "500\n", string(score), "what the host thinks of the sandbox")

	// It cannot join a network while it runs, so a restart stops the process first.
	bob := h.person(t, "bob@example.com")
	own := h.owned(t, bob.key, probe(t).plus(Tree{"stack.yaml": fmt.Sprintf(probeManifest, "")}))
	before := h.inspect(t, own, "api").ID
	bob.act(t, own, "restart/api")
	h.awaitRestart(t, own, 1)
	require.Equal(t, before, h.inspect(t, own, "api").ID)

	h.pausesAndGoesOn(t, own)

	// A command leads a process group there, too.
	h.timesOut(t, &Stack{ID: own.ID, ManageToken: bob.key})
}

// pausesAndGoesOn asserts that a process can be paused, as it is for a snapshot, and goes on.
func (h *Host) pausesAndGoesOn(t *testing.T, st *Stack) {
	t.Helper()
	docker, err := h.docker()
	require.NoError(t, err)
	defer docker.Close()
	before := h.inspect(t, st, "api")
	require.NoError(t, docker.ContainerPause(t.Context(), before.ID))
	answered := make(chan Reply, 1)
	go func() { answered <- h.get(t, st.URLs["api"]) }()
	select {
	case r := <-answered:
		t.Errorf("a paused process answers %v", r)
	case <-time.After(500 * time.Millisecond):
	}
	require.NoError(t, docker.ContainerUnpause(t.Context(), before.ID))
	require.Equal(t, 200, (<-answered).status)
	require.Equal(t, before.State.Pid, h.inspect(t, st, "api").State.Pid)
}

// startGVisor starts an engine that has gVisor as the runtime runsc, set up as
// docs/operating.md says, and as bare without. Its containers ask the outside for
// names.
func startGVisor(t *testing.T) *dockerd {
	t.Helper()
	path := runsc(t)
	return configureEngine(t, "", map[string]any{
		"dns": []string{outsidePublic},
		"runtimes": map[string]any{
			"runsc": map[string]any{"path": path, "runtimeArgs": []string{"--overlay2=none", "--network=host"}},
			"bare":  map[string]any{"path": path},
		},
	})
}

// runsc finds gVisor, or skips the test.
func runsc(t *testing.T) string {
	t.Helper()
	built, err := filepath.Abs("../.build/bin/runsc")
	require.NoError(t, err)
	for _, name := range []string{"runsc", built} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("gVisor is not tried: there is no runsc in PATH or .build/bin; make runsc builds one")
	return ""
}

func TestRuntime_ThatTheEngineDoesNotHaveStopsTheStart(t *testing.T) {
	t.Parallel()
	refuses(t, "nothing", `BERTH_CONTAINER_RUNTIME="nothing": the engine has no such runtime, only `)
}

// refuses asserts that the server does not start with a runtime, and its error.
func refuses(t *testing.T, runtime, says string, opts ...Option) {
	t.Helper()
	h := install(t, append(opts, with("BERTH_CONTAINER_RUNTIME", runtime))...)
	require.Error(t, h.spawn(t).wait(t))
	require.Contains(t, h.log.String(), says)
	require.NotContains(t, h.log.String(), `"msg":"serving"`)
	delete(h.env, "BERTH_CONTAINER_RUNTIME")
}
