package integration

import (
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// buildProbe builds the probe once, as a static binary.
var buildProbe = sync.OnceValues(func() ([]byte, error) {
	path := filepath.Join(scratch, "probe")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "./probe")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the probe: %w\n%s", err, out)
	}
	return os.ReadFile(path)
})

// probe is a source that holds the probe.
func probe(t *testing.T) Tree {
	t.Helper()
	binary, err := buildProbe()
	require.NoError(t, err)
	return Tree{"probe": string(binary)}
}

const probeManifest = `services:
  - {name: web, runtime: node, install: "", build: "chmod +x probe && ./probe try %s", start: ./probe serve}
  - {name: api, runtime: node, install: "", build: "chmod +x probe", start: ./probe serve}`

// denied are attempts that must fail, each with what it may give: the outcomes
// that mean that nothing was reached, changed or learnt.
var denied = map[string]string{
	// What the filter of system calls refuses.
	"io_uring_setup": "EPERM", "io_uring_enter": "EPERM", "io_uring_register": "EPERM",
	"socket vsock": "EPERM", "socket alg": "EPERM", "socket packet": "EPERM", "socket bluetooth": "EPERM", "socket xdp": "EPERM",
	"socket raw": "EPERM", "socket raw6": "EPERM",
	"unshare user": "EPERM", "unshare mount": "EPERM", "unshare net": "EPERM", "clone3": "ENOSYS", "setns": "EPERM",
	"clone user namespace": "EPERM", "clone net namespace": "EPERM", "child chroot": "EPERM",
	"mount": "EPERM", "umount2": "EPERM", "fsopen": "EPERM", "open_tree": "EPERM", "move_mount": "EPERM",
	"mount_setattr": "EPERM", "pivot_root": "EPERM", "chroot": "EPERM",
	"bpf": "EPERM", "perf_event_open": "EPERM", "userfaultfd": "EPERM", "keyctl": "EPERM", "add_key": "EPERM",
	"request_key": "EPERM", "init_module": "EPERM", "finit_module": "EPERM", "delete_module": "EPERM", "kexec_load": "EPERM",
	"reboot": "EPERM", "swapon": "EPERM", "swapoff": "EPERM", "sethostname": "EPERM", "settimeofday": "EPERM",
	"clock_settime": "EPERM", "syslog": "EPERM", "quotactl": "EPERM", "acct": "EPERM", "open_by_handle_at": "EPERM",
	"fanotify_init": "EPERM", "pidfd_getfd": "EPERM", "move_pages": "EPERM", "mbind": "EPERM", "vhangup": "EPERM",
	"personality": "EPERM",

	// What takes another user, or a right.
	"setuid 0": "EPERM", "setgid 0": "EPERM", "setgroups": "EPERM", "capset": "EPERM", "setuid program": "refused|no such program",
	"chown to root": "EPERM", "mknod device": "EPERM", "real-time priority": "EPERM", "higher priority": "EACCES|EPERM",
	"core dumps": "EPERM", "out of memory score": "EACCES", "interface down": "EPERM", "root user": "false",
	"capabilities": " *", "no new privileges": "1", "system call filter": "2",

	// Files of the kernel, the host and its engine.
	"read /proc/kcore": "empty|ENOENT", "read /proc/keys": "empty", "read /proc/key-users": "empty", "read /proc/timer_list": "empty|ENOENT",
	"read /proc/sched_debug": "empty|ENOENT", "read /proc/interrupts": "empty", "read /proc/kmsg": "empty",
	"read /proc/latency_stats": "empty|ENOENT", "read /proc/acpi": "empty|ENOENT", "read /proc/scsi": "empty|ENOENT",
	"read /sys/firmware": "empty", "read /sys/kernel/debug": "empty|EACCES|ENOENT", "read /sys/kernel/tracing": "empty|EACCES|ENOENT",
	"read /sys/kernel/security": "empty|ENOENT", "read /sys/fs/bpf": "empty|ENOENT", "read /sys/devices/virtual/powercap": "empty|ENOENT",
	"read /sys/devices/system/cpu/cpu0/thermal_throttle": "empty|ENOENT",
	"read /var/run/docker.sock":                          "ENOENT", "read /run/docker.sock": "ENOENT", "read /run/containerd/containerd.sock": "ENOENT",
	"read /var/lib/docker": "ENOENT", "read /dev/mem": "ENOENT", "read /dev/kmsg": "ENOENT", "read /dev/kvm": "ENOENT",
	"read /dev/vsock": "ENOENT", "read /dev/fuse": "ENOENT", "read /dev/net/tun": "ENOENT", "read /dev/vda": "ENOENT",
	"read /dev/sda": "ENOENT", "read /etc/shadow": "EACCES", "read /root": "EACCES",
	"write /proc/sysrq-trigger": "EACCES|EROFS|ENOENT", "write /proc/sys/kernel/core_pattern": "EACCES|EROFS",
	"write /proc/sys/kernel/modprobe": "EACCES|EROFS|ENOENT", "write /proc/sys/net/ipv4/ip_forward": "EACCES|EROFS",
	"write /proc/sys/net/ipv6/conf/eth0/disable_ipv6": "EACCES|EROFS|ENOENT",
	"write /proc/sys/vm/overcommit_memory":            "EACCES|EROFS", "write /proc/irq/default_smp_affinity": "EACCES|EROFS",
	"write /etc/passwd": "EACCES", "write /etc/resolv.conf": "EACCES", "write /etc/hosts": "EACCES", "write /usr/bin/sh": "EACCES",
	"write /sys/kernel/uevent_helper": "EACCES|EROFS|ENOENT", "cgroup write": "EACCES|EROFS|EPERM|ENOENT", "kernel symbols": "hidden|ENOENT",
	"devices": "full null random tty urandom zero",

	// Others' processes.
	"signal another's process": "ESRCH", "trace another's process": "ESRCH", "see others' processes": "none",

	// The network; "addresses" are the container's own.
	"tcp another stack": "silence", "tcp another stack's gateway": "silence", "tcp own gateway": "silence",
	"name another stack": "unknown", "name another stack's service": "unknown", "tcp Redis of the host": "silence",
	"udp host": "silence", "udp own gateway": "silence", "tcp metadata": "silence", "tcp private 10": "silence",
	"tcp private 192.168": "silence", "tcp provider 100.64": "silence", "tcp allowed host's other port": "silence",
	"tcp mail": "silence", "tcp mail over TLS": "silence", "tcp mail submission": "silence", "tcp link-local IPv6": "ENETUNREACH|EADDRNOTAVAIL|EINVAL|EACCES|silence", "addresses": "IPv4",
	"tcp the server on loopback": "ECONNREFUSED",
}

// allowed are attempts that must succeed, so that the others say something.
var allowed = map[string]string{
	"child": "ok", "socket unix": "ok", "socket inet": "ok", "socket netlink": "ok", "memfd_create": "ok", "inotify_init1": "ok",
	"epoll_create1": "ok", "clock_gettime": "ok", "sched_getaffinity": "ok", "landlock": "ok|EOPNOTSUPP|ENOSYS",
	"tcp public": "ok", "tcp allowed host": "ok",
}

// places are the folders in which the stack's user can make files: its own in the
// container's layer, $DATA_DIR, the temporary ones, and the container's shared
// memory and message queues.
var places = map[string]string{
	"writable": "/app /cache /data /dev/mqueue /dev/shm /home/app /run/lock /tmp /var/tmp",
}

// ofServices is what only a service has, and ofBuilds what only a build has.
var (
	ofServices = map[string]string{"tcp own service": "ok", "name own service": "ok", "tcp package host": "silence"}
	ofBuilds   = map[string]string{"tcp package host": "ok"}
)

func TestIsolation_OfAServiceAndABuild(t *testing.T) {
	t.Parallel()
	isolates(t, nil, nil)
}

// isolates asserts the results of the probe's attempts from a build and from a service
// of an engine; nil is this machine's. differs holds the results that differ from the usual.
// It returns the server and the stack of the probe.
func isolates(t *testing.T, e *dockerd, differs map[string]string, opts ...Option) (*Host, *Stack) {
	t.Helper()
	newOutside(t, e)
	h := start(t, append(opts, with("BERTH_NETWORK_ALLOW", outsideMirror+":443"), openToBuilds(t))...)
	neighbour := h.live(t, perl, manifest(perlManifest))
	targets := h.targets(t, neighbour)
	for name, address := range targets {
		if kind, _, _ := strings.Cut(name, " "); kind == "tcp" && !inside[name] {
			require.NoError(t, h.knock(address), "%s must be there to be reached: %s", name, address)
		}
	}
	var args []string
	for name, address := range targets {
		args = append(args, fmt.Sprintf("'%s=%s'", strings.ReplaceAll(name, "'", `'\''`), address))
	}
	source := fmt.Sprintf(probeManifest, strings.ReplaceAll(strings.Join(args, " "), `\`, `\\`))
	st := h.live(t, probe(t), manifest(source))

	building := findReport(t, h.logs(t, st, "kind=build&service=web&tail=50"))
	check(t, "build", building, denied, allowed, places, ofBuilds, differs)

	c := h.inspect(t, st, "web")
	for _, n := range c.NetworkSettings.Networks {
		targets["tcp own gateway"] = net.JoinHostPort(n.Gateway, portOf(targets["tcp host"]))
		targets["udp own gateway"] = net.JoinHostPort(n.Gateway, portOf(targets["udp host"]))
	}
	targets["tcp own service"], targets["name own service"] = "api:8080", "api"
	query := url.Values{}
	for name, address := range targets {
		query.Set(name, address)
	}
	running := findReport(t, h.get(t, st.url("web", "/try?"+query.Encode())).body)
	check(t, "service", running, denied, allowed, places, ofServices, differs)
	t.Logf("%d attempts in a build, %d in a service", len(building), len(running))

	// A claim opens the mail ports, and nothing else.
	dial := func(address string) string { return h.get(t, st.url("web", "/network?to="+address)).body }
	require.Equal(t, "silence", dial(outsidePublic+":25"))
	require.Equal(t, 200, h.claim(t, h.accountCreate(t, "ana@example.com"), st.ClaimCode, "").status)
	eventually(t, "a claimed stack can send mail", func() error {
		if got := dial(outsidePublic + ":25"); got != "ok" {
			return fmt.Errorf("%s", got)
		}
		return nil
	})
	require.Equal(t, "silence", dial(outsidePrivate+":25"))

	// The next generation can from the start of its build on.
	now := h.redeploy(t, st, probe(t), manifest(fmt.Sprintf(probeManifest, "'tcp mail="+outsidePublic+":25'")))
	require.Equal(t, 2, now.Generation, now.deployError())
	require.Equal(t, "ok", findReport(t, h.logs(t, st, "kind=build&service=web&tail=50"))["tcp mail"])
	h.keeps(t, st, "container web-g2", "container api-g2", "image web", "image api", "volume web-data", "volume api-data", "network g2")
	return h, st
}

// What a deploy runs after the builds is not on their network any more.
func TestIsolation_PackageHostsAreOpenToBuildsAlone(t *testing.T) {
	t.Parallel()
	e := startEngine(t, "")
	newOutside(t, e)
	const source = `services:
  - {name: web, runtime: node, install: "chmod +x probe && ./probe try %[1]s", build: "./probe try %[1]s", release: "./probe try %[1]s", start: ./probe serve}`
	target := "'tcp package host=" + outsidePackages + ":443'"
	h := start(t, on(e), openToBuilds(t), with("BERTH_NETWORK_ALLOW", outsidePackages+":80"))
	st := h.live(t, probe(t), manifest(fmt.Sprintf(source, target)))
	hosts := regexp.MustCompile(`"tcp package host":"(\w+)"`).FindAllStringSubmatch(h.logs(t, st, "kind=build&service=web&tail=50"), -1)
	require.Len(t, hosts, 3)
	for i, want := range []string{"ok", "ok", "silence"} { // install, build, release
		require.Equal(t, want, hosts[i][1])
	}
	dial := func(address string) string { return h.get(t, st.url("web", "/network?to="+address)).body }
	require.Equal(t, "silence", dial(outsidePackages+":443"))
	require.Equal(t, "ok", dial(outsidePackages+":80"), "the operator opens it to stacks, too")
	h.keeps(t, st, "container web-g1", "image web", "volume web-data", "network g1")
}

// The figures are those of docs/security.md, "Network".
func TestIsolation_ConnectionsOfAStackAreBounded(t *testing.T) {
	t.Parallel()
	e := startEngine(t, "") // which has no other connections, and no earlier ones
	newOutside(t, e)
	h := start(t, on(e))
	source := manifest(`services: [{name: web, runtime: node, install: "", build: "chmod +x probe", start: ./probe serve}, {name: api, runtime: node, install: "", build: "chmod +x probe", start: ./probe serve}]`)
	greedy, neighbour := h.live(t, probe(t), source), h.live(t, probe(t), source)
	ask := func(st *Stack, query string) string { return h.get(t, st.url("web", query)).body }

	begun := time.Now()
	require.Equal(t, "ok", ask(greedy, "/flood?times=25000&to="+outsidePublic+":9"))
	held, took := h.connections(t, greedy, outsidePublic), time.Since(begun)
	require.Greater(t, held, 4000, "those at once are let through")
	require.LessOrEqual(t, held, 5000+100*(int(took.Seconds())+1), "in %s", took)

	require.Equal(t, "ok", ask(neighbour, "/network?to="+outsidePublic+":80"), "another stack is not held back")
	require.Equal(t, "ok", ask(greedy, "/network?to=api:8080"), "what stays in the stack is not held back")
	require.Equal(t, "ok", ask(greedy, "/flood?times=10000&to=api:9"))
	for _, n := range h.inspect(t, greedy, "api").NetworkSettings.Networks {
		require.Zero(t, h.connections(t, greedy, n.IPAddress), "and not counted")
	}
	eventually(t, "the stack opens connections again", func() error {
		if got := ask(greedy, "/network?to="+outsidePublic+":80"); got != "ok" {
			return fmt.Errorf("%s", got)
		}
		return nil
	})
}

// connections returns how many connections of a stack's service web to a place the kernel has
// in its table.
func (h *Host) connections(t *testing.T, st *Stack, to string) int {
	t.Helper()
	var text []byte
	require.NoError(t, h.engine.inside(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/nf_conntrack")
		return err
	}))
	count := 0
	for _, n := range h.inspect(t, st, "web").NetworkSettings.Networks {
		count += strings.Count(string(text), " src="+n.IPAddress+" dst="+to+" ")
	}
	return count
}

// inside are targets that are not there when they are seen from the host.
var inside = map[string]bool{"tcp own service": true, "tcp link-local IPv6": true, "tcp own gateway": true}

// targets are addresses for the probe to try: of a neighbour, of this machine and
// of an outside. Each answers whoever may reach it.
func (h *Host) targets(t *testing.T, neighbour *Stack) map[string]string {
	t.Helper()
	c := h.inspect(t, neighbour, "web")
	var tcp net.Listener
	var udp net.PacketConn
	var addresses []net.Addr
	require.NoError(t, h.engine.inside(func() (err error) {
		if tcp, err = net.Listen("tcp4", "0.0.0.0:0"); err != nil {
			return err
		}
		t.Cleanup(func() { tcp.Close() })
		if udp, err = net.ListenPacket("udp4", "0.0.0.0:0"); err != nil {
			return err
		}
		t.Cleanup(func() { udp.Close() })
		addresses, err = net.InterfaceAddrs()
		return err
	}))
	accept(tcp)
	answer(udp, func([]byte) {})
	targets := map[string]string{
		"process":                       fmt.Sprint(c.State.Pid),
		"name another stack":            strings.TrimPrefix(c.Name, "/"),
		"name another stack's service":  "db",
		"tcp the server on loopback":    h.addr(),
		"tcp metadata":                  outsideMetadata + ":80",
		"tcp private 10":                outsidePrivate + ":80",
		"tcp private 192.168":           outsideHome + ":80",
		"tcp public":                    outsidePublic + ":80",
		"tcp mail":                      outsidePublic + ":25",
		"tcp mail over TLS":             outsidePublic + ":465",
		"tcp mail submission":           outsidePublic + ":587",
		"tcp allowed host":              outsideMirror + ":443",
		"tcp allowed host's other port": outsideMirror + ":80",
		"tcp package host":              outsidePackages + ":443",
	}
	for _, n := range c.NetworkSettings.Networks {
		targets["tcp another stack"] = n.IPAddress + ":8080"
		targets["tcp another stack's gateway"] = net.JoinHostPort(n.Gateway, portOf(tcp.Addr().String()))
	}
	if h.engine == nil {
		targets["tcp Redis of the host"] = redis.endpoint
	}
	for _, a := range addresses {
		ip, _, err := net.ParseCIDR(a.String())
		require.NoError(t, err)
		switch {
		case ip.IsLinkLocalUnicast():
			targets["tcp link-local IPv6"] = net.JoinHostPort(ip.String()+"%eth0", portOf(tcp.Addr().String()))
		case ip.To4() != nil && ip[len(ip)-4] == 100:
			targets["tcp provider 100.64"] = net.JoinHostPort(ip.String(), portOf(tcp.Addr().String()))
		case ip.To4() != nil && !ip.IsLoopback() && ip.To4()[0] != 10:
			// The bridges of other runs come and go.
			targets["tcp host "+ip.String()] = net.JoinHostPort(ip.String(), portOf(tcp.Addr().String()))
			targets["tcp host"] = net.JoinHostPort(ip.String(), portOf(tcp.Addr().String()))
			targets["udp host"] = net.JoinHostPort(ip.String(), portOf(udp.LocalAddr().String()))
		}
	}
	return targets
}

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

// knock opens a connection from where the server is.
func (h *Host) knock(address string) error {
	conn, err := h.reach(func() (net.Conn, error) { return net.DialTimeout("tcp", address, patience) })
	if err != nil {
		return err
	}
	return conn.Close()
}

// findReport reads what the probe printed into a text.
func findReport(t *testing.T, text string) map[string]string {
	t.Helper()
	for line := range strings.Lines(text) {
		if line, ok := strings.CutPrefix(line, "probe {"); ok {
			report := map[string]string{}
			require.NoError(t, json.Unmarshal([]byte("{"+line), &report))
			return report
		}
	}
	t.Fatalf("the probe reported nothing:\n%s", text)
	return nil
}

// check compares a report with what the tables say of every attempt.
func check(t *testing.T, where string, report map[string]string, tables ...map[string]string) {
	t.Helper()
	want := map[string]string{}
	for _, table := range tables {
		for name, outcome := range table {
			want[name] = outcome
		}
	}
	for name, outcome := range report {
		expected, known := want[name]
		if strings.HasPrefix(name, "tcp host") {
			expected, known = "silence", true
		}
		if assert.True(t, known, "%s: no table says what %q must give; it gave %q", where, name, outcome) {
			assert.Regexp(t, regexp.MustCompile("^("+expected+")$"), outcome, "%s: %s", where, name)
		}
	}
	for name := range want {
		if !optional(where, name) {
			assert.Contains(t, report, name, "%s: not tried", where)
		}
	}
}

// optional reports whether an attempt cannot be made everywhere: a build knows its
// own gateway only once it runs, and a test's own engine has no Redis.
func optional(where, name string) bool {
	return where == "build" && strings.HasSuffix(name, "own gateway") || name == "tcp link-local IPv6" || name == "tcp Redis of the host"
}
