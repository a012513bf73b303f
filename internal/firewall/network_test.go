package firewall

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/berth-host/berth/internal/engine"
)

// machine is a host with the networks of two stacks, that of the first one's builds and an
// outside, in network namespaces of the test, which packets do not leave.
//
//	a1, a2 on bthaaaaaaaaaaaa (10.213.0.1/28), b1 on bthbbbbbbbbbbbb (10.213.0.17/28)
//	c1 on bth_aaaaaaaaaaa (10.213.0.33/28)
//	out with the addresses that a stack may or may not reach
type machine struct {
	t      *testing.T
	prefix string
}

const (
	bridgeA = engine.BridgePrefix + "aaaaaaaaaaaa"
	bridgeB = engine.BridgePrefix + "bbbbbbbbbbbb"
	bridgeC = engine.BuildBridgePrefix + "aaaaaaaaaaa"

	public   = "192.31.196.7" // of a range that only takes in stray questions to the DNS, and not closed
	metadata = "169.254.169.254"
	private  = "10.9.9.9"
	mirror   = "10.9.9.53"
)

var machines atomic.Int32

// newMachine creates the namespaces, or skips the test if it does not run as root.
// Without the programs it skips it too, unless BERTH_REQUIRE_ENGINE is set.
func newMachine(t *testing.T) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root makes network namespaces")
	}
	for _, program := range []string{"ip", "iptables-restore"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("BERTH_REQUIRE_ENGINE") != "1" {
				t.Skip(err)
			}
			t.Fatalf("%v; install iproute2 and iptables", err)
		}
	}
	m := &machine{t: t, prefix: fmt.Sprintf("berth-test-%d-%d-", os.Getpid(), machines.Add(1))}
	for _, name := range []string{"host", "a1", "a2", "b1", "c1", "out"} {
		m.must("ip netns add " + m.prefix + name)
		t.Cleanup(func() { m.must("ip netns del " + m.prefix + name) })
		m.sh(name, "ip link set lo up")
	}
	m.sh("host", "sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1")
	m.bridge(bridgeA, "10.213.0.1/28")
	m.bridge(bridgeB, "10.213.0.17/28")
	m.bridge(bridgeC, "10.213.0.33/28")
	m.plug("a1", bridgeA, "10.213.0.2/28", "10.213.0.1")
	m.plug("a2", bridgeA, "10.213.0.3/28", "10.213.0.1")
	m.plug("b1", bridgeB, "10.213.0.18/28", "10.213.0.17")
	m.plug("c1", bridgeC, "10.213.0.34/28", "10.213.0.33")
	m.sh("host", "ip addr add fd00:a::1/64 dev "+bridgeA+" nodad")
	m.sh("a1", "ip addr add fd00:a::2/64 dev eth0 nodad")
	m.outside()
	return m
}

func (m *machine) bridge(name, addr string) {
	m.sh("host", "ip link add "+name+" type bridge && ip addr add "+addr+" dev "+name+" && ip link set "+name+" up")
}

// plug connects a namespace to a bridge.
func (m *machine) plug(name, bridge, addr, gateway string) {
	m.sh("host", "ip link add v"+name+" type veth peer name eth0 netns "+m.prefix+name)
	m.sh("host", "ip link set v"+name+" master "+bridge+" && ip link set v"+name+" up")
	m.sh(name, "ip addr add "+addr+" dev eth0 && ip link set eth0 up && ip route add default via "+gateway)
}

// outside connects the namespace of everybody else.
func (m *machine) outside() {
	m.sh("host", "ip link add out0 type veth peer name eth0 netns "+m.prefix+"out && ip addr add 192.0.2.1/24 dev out0 && ip link set out0 up")
	m.sh("out", "ip addr add 192.0.2.2/24 dev eth0 && ip link set eth0 up && ip route add 10.213.0.0/16 via 192.0.2.1")
	for _, addr := range []string{public, metadata, private, mirror} {
		m.sh("out", "ip addr add "+addr+"/32 dev lo")
		m.sh("host", "ip route add "+addr+"/32 via 192.0.2.2")
	}
}

// sh runs commands in a namespace.
func (m *machine) sh(namespace, commands string) {
	m.t.Helper()
	m.must("ip netns exec " + m.prefix + namespace + " sh -ec '" + commands + "'")
}

func (m *machine) must(command string) {
	m.t.Helper()
	out, err := exec.Command("sh", "-ec", command).CombinedOutput()
	require.NoError(m.t, err, "%s: %s", command, out)
}

// in runs do on a thread that is in a namespace and ends with it.
func (m *machine) in(namespace string, do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: nobody else gets the thread
		file, err := os.Open("/run/netns/" + m.prefix + namespace)
		if err == nil {
			err = errors.Join(unix.Setns(int(file.Fd()), unix.CLONE_NEWNET), file.Close())
		}
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}

// listen answers connections in a namespace until the test ends.
func (m *machine) listen(namespace string, ports ...string) {
	m.t.Helper()
	for _, port := range ports {
		require.NoError(m.t, m.in(namespace, func() error {
			ln, err := net.Listen("tcp", ":"+port)
			if err != nil {
				return err
			}
			m.t.Cleanup(func() { ln.Close() })
			go func() {
				for {
					conn, err := ln.Accept()
					if err != nil {
						return
					}
					conn.Close()
				}
			}()
			return nil
		}))
	}
}

// reaches reports whether a connection from a namespace is established. A packet that
// is dropped gets no answer, so the connection times out.
func (m *machine) reaches(namespace, addr string) bool {
	err := m.in(namespace, func() error {
		conn, err := net.DialTimeout("tcp", addr, 500*time.Millisecond)
		if err == nil {
			conn.Close()
		}
		return err
	})
	return err == nil
}

// apply runs Apply of a new Firewall on the host.
func (m *machine) apply(opts Options, mail ...string) error {
	opts.Log = slog.New(slog.DiscardHandler)
	opts.Pool = netip.MustParsePrefix("10.213.0.0/16")
	if opts.Bridges == nil {
		opts.Bridges = func(context.Context) ([]string, error) { return []string{bridgeA}, nil }
	}
	return m.in("host", func() error { return New(opts).Apply(context.Background(), mail) })
}

var leaseEnd = regexp.MustCompile(`until \d+`)

// flood sends a datagram from each of so many ports in a namespace, and returns how long that
// took.
func (m *machine) flood(namespace, addr string, ports int) time.Duration {
	m.t.Helper()
	begun := time.Now()
	require.NoError(m.t, m.in(namespace, func() error {
		for range ports {
			conn, err := net.Dial("udp", addr)
			if err != nil {
				return err
			}
			_, err = conn.Write([]byte("x"))
			if err = errors.Join(err, conn.Close()); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
				return err
			}
		}
		return nil
	}))
	return time.Since(begun)
}

// connections returns how many connections the kernel's table of the host has.
func (m *machine) connections() int {
	m.t.Helper()
	var text []byte
	require.NoError(m.t, m.in("host", func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/stat/nf_conntrack")
		return err
	}))
	fields := strings.Fields(strings.SplitN(string(text), "\n", 3)[1])
	count, err := strconv.ParseInt(fields[0], 16, 64)
	require.NoError(m.t, err)
	return int(count)
}

// rules returns the output of iptables-save, or ip6tables-save, on the host, without
// times.
func (m *machine) rules(program string) string {
	m.t.Helper()
	var out []byte
	require.NoError(m.t, m.in("host", func() (err error) {
		for _, table := range []string{"mangle", "raw"} {
			text, failed := exec.Command(program, "-t", table).Output()
			out, err = append(out, text...), errors.Join(err, failed)
		}
		return err
	}))
	var lines []string
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return leaseEnd.ReplaceAllString(strings.Join(lines, ""), "until then")
}
