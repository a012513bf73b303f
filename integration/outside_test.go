package integration

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The addresses of an outside. None leaves this machine: they are on an interface
// in a network namespace of the test's own, to which routes of the engine's
// network lead.
const (
	outsidePublic   = "192.31.196.77" // of a range that only takes in stray questions to the DNS
	outsideMetadata = "169.254.169.254"
	outsidePrivate  = "10.77.7.9"
	outsideHome     = "192.168.77.9"
	outsideMirror   = "10.77.7.53"
	outsidePackages = "10.77.7.54"
)

// openToBuilds is an option of start that names a package host to builds, at the ports 80 and
// 443 of outsidePackages.
func openToBuilds(t *testing.T) Option {
	t.Helper()
	var text []byte
	if name := buildSetting("BERTH_BUILD_ENV_FILE", "env"); name != "" {
		var err error
		text, err = os.ReadFile(name)
		require.NoError(t, err)
	}
	file := filepath.Join(t.TempDir(), "env")
	require.NoError(t, os.WriteFile(file, append(text, "\nPACKAGES=https://"+outsidePackages+"/index http://"+outsidePackages+"/index\n"...), 0o600))
	return with("BERTH_BUILD_ENV_FILE", file)
}

// outside is a network namespace that stands for the rest of the world. It
// answers on the web and mail ports of its addresses, and knows no name.
type outside struct{ namespace string }

var outsides atomic.Int64

// newOutside makes one for the duration of a test, or skips for who is not root.
// It is outside of an engine's network; nil is this machine's engine.
func newOutside(t *testing.T, e *dockerd) *outside {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root makes network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		lacks(t, "%v; install iproute2", err)
	}
	sweepOutsides(t)
	o := &outside{namespace: fmt.Sprintf("berth-test-%d-%d", os.Getpid(), outsides.Add(1))}
	ip := func(args ...string) { mustRun(t, e.beside("ip", args...)) }
	link := fmt.Sprintf("btx%d", os.Getpid())
	near, far := fmt.Sprintf("100.64.%d.1", os.Getpid()%250), fmt.Sprintf("100.64.%d.2", os.Getpid()%250)
	ip("netns", "add", o.namespace)
	t.Cleanup(func() { mustRun(t, exec.Command("ip", "netns", "del", o.namespace)) }) // with its interfaces and routes
	ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", o.namespace)
	ip("addr", "add", near+"/30", "dev", link)
	ip("link", "set", link, "up")
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"addr", "add", far + "/30", "dev", "eth0"},
		{"link", "set", "eth0", "up"},
	} {
		ip(append([]string{"-n", o.namespace}, args...)...)
	}
	for _, addr := range []string{outsidePublic, outsideMetadata, outsidePrivate, outsideHome, outsideMirror, outsidePackages} {
		ip("-n", o.namespace, "addr", "add", addr+"/32", "dev", "lo")
		// The metric distinguishes the routes of two runs at the same time.
		ip("route", "add", addr+"/32", "via", far, "dev", link, "metric", fmt.Sprint(os.Getpid()))
	}
	for _, port := range []string{"25", "80", "443", "465", "587"} {
		o.open(t, func() (io.Closer, error) {
			ln, err := net.Listen("tcp4", ":"+port)
			if err == nil {
				accept(ln)
			}
			return ln, err
		})
	}
	o.open(t, knowNothing)
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

// open opens something in the namespace until the test ends.
func (o *outside) open(t *testing.T, open func() (io.Closer, error)) {
	t.Helper()
	require.NoError(t, within("/run/netns/"+o.namespace, func() error {
		opened, err := open()
		if err == nil {
			t.Cleanup(func() { opened.Close() })
		}
		return err
	}))
}

// knowNothing answers every question for a name with: there is none.
func knowNothing() (io.Closer, error) {
	conn, err := net.ListenPacket("udp4", outsidePublic+":53")
	if err != nil {
		return nil, err
	}
	answer(conn, func(question []byte) {
		const response, noSuchName = 0x80, 3
		if len(question) >= 12 {
			question[2] |= response
			question[3] = noSuchName
		}
	})
	return conn, nil
}

// answer sends datagrams back, changed, until the connection is closed.
func answer(conn net.PacketConn, change func([]byte)) {
	go func() {
		b := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			change(b[:n])
			_, _ = conn.WriteTo(b[:n], from) // whoever asked may be gone
		}
	}()
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

func mustRun(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: %s", cmd, out)
}
