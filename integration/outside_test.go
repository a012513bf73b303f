package integration

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	kernel "golang.org/x/sys/unix"
)

// The addresses of an outside. None leaves this machine: they are on an interface
// in a network namespace of the test's own, to which routes of the host lead.
const (
	outsidePublic   = "198.51.100.77" // of a range for documentation: nobody's
	outsideMetadata = "169.254.169.254"
	outsidePrivate  = "10.77.7.9"
	outsideHome     = "192.168.77.9"
	outsideMirror   = "10.77.7.53"
)

// outside is a network namespace that stands for the rest of the world. It
// answers on the ports 25, 80 and 443 of its addresses.
type outside struct{ namespace string }

// newOutside makes one for the duration of a test, or skips where that is not
// allowed.
func newOutside(t *testing.T) *outside {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root makes network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip(err)
	}
	sweepOutsides(t)
	o := &outside{namespace: fmt.Sprintf("berth-test-%d", os.Getpid())}
	link := fmt.Sprintf("btx%d", os.Getpid())
	near, far := fmt.Sprintf("100.64.%d.1", os.Getpid()%250), fmt.Sprintf("100.64.%d.2", os.Getpid()%250)
	mustRun(t, "ip", "netns", "add", o.namespace)
	t.Cleanup(func() { mustRun(t, "ip", "netns", "del", o.namespace) }) // with its interfaces and routes
	mustRun(t, "ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", o.namespace)
	mustRun(t, "ip", "addr", "add", near+"/30", "dev", link)
	mustRun(t, "ip", "link", "set", link, "up")
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"addr", "add", far + "/30", "dev", "eth0"},
		{"link", "set", "eth0", "up"},
	} {
		mustRun(t, "ip", append([]string{"-n", o.namespace}, args...)...)
	}
	for _, addr := range []string{outsidePublic, outsideMetadata, outsidePrivate, outsideHome, outsideMirror} {
		mustRun(t, "ip", "-n", o.namespace, "addr", "add", addr+"/32", "dev", "lo")
		// The metric tells the routes of two runs at the same time apart.
		mustRun(t, "ip", "route", "add", addr+"/32", "via", far, "dev", link, "metric", fmt.Sprint(os.Getpid()))
	}
	for _, port := range []string{"25", "80", "443"} {
		o.answer(t, ":"+port)
	}
	return o
}

// sweepOutsides removes those of runs that were cut off.
func sweepOutsides(t *testing.T) {
	t.Helper()
	left, err := filepath.Glob("/run/netns/berth-test-*")
	require.NoError(t, err)
	for _, path := range left {
		number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), "berth-test-"), "-")
		if pid, err := strconv.Atoi(number); err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			_ = exec.Command("ip", "netns", "del", filepath.Base(path)).Run() // another run may sweep, too
		}
	}
}

// answer accepts connections in the namespace until the test ends.
func (o *outside) answer(t *testing.T, addr string) {
	t.Helper()
	var ln net.Listener
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends in the namespace
		file, err := os.Open("/run/netns/" + o.namespace)
		if err == nil {
			err = errors.Join(kernel.Setns(int(file.Fd()), kernel.CLONE_NEWNET), file.Close())
		}
		if err == nil {
			ln, err = net.Listen("tcp4", addr)
		}
		done <- err
	}()
	require.NoError(t, <-done)
	t.Cleanup(func() { ln.Close() })
	accept(ln)
}

// accept takes connections and closes them, until the listener is closed.
func accept(ln net.Listener) {
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
}

func mustRun(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, out)
}
