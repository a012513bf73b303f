package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"
	sys "golang.org/x/sys/unix"

	"github.com/berth-host/berth/images"
	"github.com/berth-host/berth/integration/observe"
)

// dockerd is a Docker engine of a test's own, to stop, kill and freeze. It has
// its own processes, mounts and network, so that the kernel removes whatever it
// made, containers, bridges and firewall rules included, when the first process
// of those namespaces ends. The server that uses it runs on the same network.
//
// Its base image is Debian alone, under the name of the one for Node.js: the
// tests are about the engine, and their services are Perl programs, which every
// Debian can run.
type dockerd struct {
	dir    string
	holder *exec.Cmd     // first process of the namespaces
	cmd    *exec.Cmd     // nsenter, whose only child is the engine
	ended  chan struct{} // closed when that has ended
	log    observe.Record
}

// enclosed prepares the namespaces and holds them.
const enclosed = `set -e
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
[ -z "$2" ] || mount -t tmpfs -o size=$2 tmpfs "$1"
ip link set lo up
echo ready
exec docker-init -- sleep infinity`

// enginePrefix begins the names of an engine's folder and control groups; the
// process id of the tests' run follows.
const enginePrefix = "berth-engine-"

// sweepEngines removes the files of engines whose tests were cut off. The kernel
// has removed the rest.
func sweepEngines() error {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), enginePrefix+"*"))
	errs := []error{err}
	for _, dir := range dirs {
		run, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), enginePrefix), "-")
		if hasEnded(run) {
			errs = append(errs, os.RemoveAll(dir), removeCgroups(filepath.Base(dir)))
		}
	}
	return errors.Join(errs...)
}

// startEngine runs an engine until the test ends. Its images and volumes have
// the given bytes of space, all there is when size is "".
func startEngine(t *testing.T, size string) *dockerd {
	t.Helper()
	return configureEngine(t, size, map[string]any{})
}

// configureEngine is startEngine with a daemon.json. Nothing of the one of this
// machine's engine holds for it.
func configureEngine(t *testing.T, size string, settings map[string]any) *dockerd {
	t.Helper()
	needBase(t)
	dir, err := os.MkdirTemp("", enginePrefix+strconv.Itoa(os.Getpid())+"-") // short: the socket's path is bounded
	require.NoError(t, err)
	e := &dockerd{dir: dir}
	t.Cleanup(func() { e.end(t) })
	config, err := json.Marshal(settings)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(e.path("daemon.json"), config, 0o600))
	require.NoError(t, os.Mkdir(e.path("data"), 0o700))
	e.holder = exec.Command("sh", "-c", enclosed, "sh", e.path("data"), size)
	e.holder.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	e.holder.Stderr = &e.log
	ready, err := e.holder.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, e.holder.Start())
	_, err = io.ReadFull(ready, make([]byte, len("ready\n")))
	require.NoError(t, err, "no namespaces for an engine: %s", &e.log)
	e.run(t)
	e.load(t)
	return e
}

func (e *dockerd) path(name string) string { return filepath.Join(e.dir, name) }

// host is the engine's DOCKER_HOST.
func (e *dockerd) host() string { return "unix://" + e.path("docker.sock") }

func (e *dockerd) open() (*client.Client, error) {
	return client.NewClientWithOpts(client.WithHost(e.host()), client.WithAPIVersionNegotiation())
}

// cgroups is the parent of the control groups of the engine's containers.
func (e *dockerd) cgroups() string { return filepath.Base(e.dir) }

// run starts the engine and waits until it answers. One that ends before that is started again,
// as Debian's service does: on a busy machine its containerd may not be there in time.
func (e *dockerd) run(t *testing.T) {
	t.Helper()
	e.begin(t)
	docker, err := e.open()
	require.NoError(t, err)
	defer docker.Close()
	eventually(t, "the engine answers", func() error {
		select {
		case <-e.ended:
			t.Logf("an engine ended before it answered:\n%s", lastOf(e.log.String(), 1000))
			e.begin(t)
		default:
		}
		if _, err := docker.Ping(t.Context()); err != nil {
			return fmt.Errorf("%w; the end of its log:\n%s", err, lastOf(e.log.String(), 1000))
		}
		return nil
	})
}

// begin starts the engine.
func (e *dockerd) begin(t *testing.T) {
	t.Helper()
	cmd := exec.Command("nsenter", "--target", strconv.Itoa(e.holder.Process.Pid), "--mount", "--pid", "--net", "--ipc", "--uts",
		"dockerd", "--config-file", e.path("daemon.json"), "--host", e.host(), "--data-root", e.path("data"),
		"--exec-root", "/run/docker", "--pidfile", "/run/docker.pid", "--cgroup-parent", "/"+e.cgroups(), "--shutdown-timeout", "5")
	cmd.Env = append(os.Environ(), "DOCKER_HOST=")
	cmd.Stdout, cmd.Stderr = &e.log, &e.log
	cmd.WaitDelay = 5 * time.Second // for who still holds the engine's output
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	e.cmd, e.ended = cmd, ended
	go func() {
		defer close(ended)
		_ = cmd.Wait() // how it ended is what the test asked for, or in the log
	}()
}

// stop ends the engine with a signal and waits until it is gone.
func (e *dockerd) stop(t *testing.T, sig syscall.Signal) {
	t.Helper()
	e.signal(t, sig)
	<-e.ended
}

// signal sends a signal to the engine's process.
func (e *dockerd) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	front := strconv.Itoa(e.cmd.Process.Pid)
	children, err := os.ReadFile(filepath.Join("/proc", front, "task", front, "children"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(children)))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, sig))
}

// thaw lets a stopped engine go on. nsenter has stopped with it.
func (e *dockerd) thaw(t *testing.T) {
	t.Helper()
	e.signal(t, syscall.SIGCONT)
	require.NoError(t, e.cmd.Process.Signal(syscall.SIGCONT))
}

// end removes the engine with all that it made.
func (e *dockerd) end(t *testing.T) {
	if t.Failed() {
		t.Logf("the end of the engine's log:\n%s", lastOf(e.log.String(), 4000))
	}
	if e.holder != nil && e.holder.Process != nil {
		_ = e.holder.Process.Kill()
		_ = e.holder.Wait()
	}
	if e.ended != nil {
		<-e.ended
	}
	eventually(t, "the engine's files are removed", func() error { return os.RemoveAll(e.dir) })
	require.NoError(t, removeCgroups(e.cgroups()))
}

// removeCgroups removes the control groups below a parent in every hierarchy.
func removeCgroups(parent string) error {
	var errs []error
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		roots, err := filepath.Glob(pattern + parent)
		errs = append(errs, err)
		for _, root := range roots {
			var groups []string
			errs = append(errs, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					groups = append(groups, path)
				}
				return unlessMissing(err) // two names may lead to one hierarchy
			}))
			for i := len(groups) - 1; i >= 0; i-- { // the inner ones first
				errs = append(errs, unlessMissing(syscall.Rmdir(groups[i])))
			}
		}
	}
	return errors.Join(errs...)
}

func unlessMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// process returns the path of a file of a process, by the process id that the engine
// uses.
func (e *dockerd) process(pid int, file string) string {
	return fmt.Sprintf("/proc/%d/root/proc/%d/%s", e.holder.Process.Pid, pid, file)
}

func lastOf(text string, n int) string { return text[max(0, len(text)-n):] }

// savedBase is the image from which all others are built, as docker save writes it.
var savedBase = sync.OnceValues(func() ([]byte, error) {
	docker, err := engine()
	if err != nil {
		return nil, err
	}
	defer docker.Close()
	saved, err := docker.ImageSave(context.Background(), []string{baseImage})
	if err != nil {
		return nil, err
	}
	defer saved.Close()
	return io.ReadAll(saved)
})

// load gives the engine its base image.
func (e *dockerd) load(t *testing.T) {
	t.Helper()
	saved, err := savedBase()
	require.NoError(t, err)
	docker, err := e.open()
	require.NoError(t, err)
	defer docker.Close()
	loaded, err := docker.ImageLoad(t.Context(), bytes.NewReader(saved))
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, loaded.Body)
	require.NoError(t, errors.Join(err, loaded.Body.Close()))
	node, err := images.Lookup("node", "22")
	require.NoError(t, err)
	require.NoError(t, docker.ImageTag(t.Context(), baseImage, node.Ref()))
}

// on runs the server with an engine of the test's own.
func on(e *dockerd) Option {
	return func(h *Host) {
		h.engine = e
		h.env["DOCKER_HOST"] = e.host()
		h.env["BERTH_REDIS_URL"] = "embedded" // the shared one is on another network
	}
}

// beside returns a command that runs on the engine's network.
func (e *dockerd) beside(path string, args ...string) *exec.Cmd {
	if e == nil {
		return exec.Command(path, args...)
	}
	return exec.Command("nsenter", append([]string{"--net=" + e.network(), path}, args...)...)
}

// network is the file of the engine's network namespace.
func (e *dockerd) network() string { return fmt.Sprintf("/proc/%d/ns/net", e.holder.Process.Pid) }

// reach opens a connection from the server's network.
func (h *Host) reach(dial func() (net.Conn, error)) (conn net.Conn, err error) {
	err = h.engine.inside(func() error {
		conn, err = dial()
		return err
	})
	return conn, err
}

// inside does something within the engine's network. A nil engine is this
// machine's.
func (e *dockerd) inside(do func() error) error {
	if e == nil {
		return do()
	}
	return within(e.network(), do)
}

// within runs a function in the network namespace of a file: a socket belongs to the
// network of the thread that opened it. The thread returns to its own namespace, since
// the processes that it started would end with it.
func within(namespace string, do func() error) error {
	theirs, err := os.Open(namespace)
	if err != nil {
		return err
	}
	defer theirs.Close()
	runtime.LockOSThread()
	ours, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer ours.Close()
	if err := sys.Setns(int(theirs.Fd()), sys.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	err = do()
	if backErr := sys.Setns(int(ours.Fd()), sys.CLONE_NEWNET); backErr != nil {
		return errors.Join(err, backErr) // the thread stays locked and ends with its goroutine
	}
	runtime.UnlockOSThread()
	return err
}
