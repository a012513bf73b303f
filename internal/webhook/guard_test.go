package webhook

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/store"
)

// allowed is the one address of this machine that the guard's tests allow.
const allowed = "127.0.0.2"

// trap listens on every address of this machine and counts the connections to
// forbidden ones. The allowed one is an HTTP server.
type trap struct {
	port      string
	forbidden atomic.Int64
	allowed   atomic.Int64
	redirect  atomic.Value // where to, "" for an answer of 200
}

func setTrap(t *testing.T) *trap {
	t.Helper()
	trap := &trap{}
	trap.redirect.Store("")
	l := trap.listen(t)
	server := &http.Server{Handler: trap, ErrorLog: quietLog(), ConnState: func(c net.Conn, state http.ConnState) {
		if state != http.StateNew {
			return
		}
		if addr := c.LocalAddr().(*net.TCPAddr); addr.IP.String() != allowed {
			trap.forbidden.Add(1)
			return
		}
		trap.allowed.Add(1)
	}}
	go server.Serve(l) //nolint:errcheck // ends with Close
	t.Cleanup(func() { server.Close() })
	return trap
}

// listen takes a port below the kernel's ports for outgoing connections, so that no test of another
// package connects to what was the port of a server there.
func (p *trap) listen(t *testing.T) net.Listener {
	t.Helper()
	for range 1000 {
		p.port = strconv.Itoa(5000 + rand.IntN(5000))
		if l, err := net.Listen("tcp", ":"+p.port); err == nil {
			return l
		}
	}
	t.Fatal("no port is free")
	return nil
}

func (p *trap) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if to := p.redirect.Load().(string); to != "" {
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
}

// url is a URL of a host at the trap's port.
func (p *trap) url(host string) string { return "http://" + host + ":" + p.port + "/hook" }

// Hosts that webhooks must not reach. %s is the trap's port.
var targets = []string{
	// loopback, this host and this network
	"127.0.0.1", "127.0.0.3", "127.1.2.3", "127.255.255.254", "0.0.0.0", "0.1.2.3", "localhost", "LOCALHOST", "localhost.", "[::1]", "[::]",
	// odd spellings of 127.0.0.1, which the test's DNS server reads as a C library would
	"2130706433", "0x7f000001", "0x7f.0.0.1", "0x7f.1", "127.1", "127.0.1", "0177.0.0.1", "017700000001", "127.0.0.01", "127.0.0.1.", "00127.0.0.1", "%31%32%37.0.0.1", "1%32%37.1", "①②⑦.⓪.⓪.①", "127。0。0。1", "１２７.0.0.1",
	// private
	"10.0.0.1", "10.255.255.255", "172.16.0.1", "172.17.0.1", "172.31.255.254", "192.168.1.1", "[fc00::1]", "[fd12:3456:789a::1]",
	// the stacks' networks
	"10.213.0.2",
	// link-local and the metadata services of clouds
	"169.254.169.254", "169.254.170.2", "[fe80::1]", "[fe80::1%25lo]", "[fe80::a9fe:a9fe]", "168.63.129.16", "100.100.100.200", "192.0.0.192", "[fd00:ec2::254]", "[fd20:ce::254]",
	// shared, benchmark, documentation, protocol assignments, reserved, broadcast, multicast
	"100.64.0.1", "100.127.255.254", "198.18.0.1", "198.19.255.254", "192.0.2.1", "198.51.100.7", "203.0.113.9", "192.0.0.1", "192.88.99.1", "240.0.0.1", "255.255.255.255", "224.0.0.1", "239.255.255.250", "[ff02::1]", "[ff05::2]", "[2001:db8::1]", "[3fff::1]", "[100::1]", "[fec0::1]", "[5f00::1]",
	// IPv4 in IPv6: mapped, compatible, translated, NAT64, 6to4, Teredo, ISATAP, ORCHID
	"[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]", "[::ffff:169.254.169.254]", "[::127.0.0.1]", "[::7f00:1]", "[::ffff:0:127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b::10.0.0.1]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::1]", "[2002:a9fe:a9fe::]", "[2001:0:7f00:1::]", "[2001::1]", "[2606:4700::5efe:7f00:1]", "[2606:4700::200:5efe:10.0.0.1]", "[2001:10::1]", "[2001:20::1]",
	// names
	"loopback.test", "six.test", "mapped.test", "metadata.test", "azure.test", "nat64.test", "private.test", "many.test", "own.test",
	// names whose answers change or mix, where the allowed one may be reached
	"mixed.test", "mixed-six.test", "flips.test", "flips-back.test",
}

// maybeReached are the targets that also have the allowed address.
var maybeReached = []string{"mixed.test", "mixed-six.test", "flips.test", "flips-back.test"}

// names is the test's DNS: each look-up of a name takes the next answer, and the
// last one stays. Any other name is read as an odd spelling of 127.0.0.1.
type names struct {
	mu      sync.Mutex
	answers map[string][][]string
	asked   map[string]int
}

func (n *names) answer(name string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	answers, ok := n.answers[strings.ToLower(name)]
	if !ok {
		return []string{"127.0.0.1"}
	}
	asked := n.asked[name]
	n.asked[name]++
	return answers[min(asked/2, len(answers)-1)] // each look-up asks for two families
}

func newNames(t *testing.T) *names {
	one := func(addrs ...string) [][]string { return [][]string{addrs} }
	return &names{asked: map[string]int{}, answers: map[string][][]string{
		"loopback.test":   one("127.0.0.1"),
		"six.test":        one("::1"),
		"mapped.test":     one("::ffff:127.0.0.1"),
		"metadata.test":   one("169.254.169.254"),
		"azure.test":      one("168.63.129.16"),
		"nat64.test":      one("64:ff9b::7f00:1"),
		"private.test":    one("10.0.0.1", "fd00::1"),
		"many.test":       one("127.0.0.1", "127.0.0.3", "10.0.0.1", "::1", "fe80::1", "0.0.0.0"),
		"own.test":        one(ownAddresses(t)...),
		"mixed.test":      one("127.0.0.1", allowed, "127.0.0.3"),
		"mixed-six.test":  one("::1", allowed),
		"flips.test":      {{allowed}, {"127.0.0.1"}},
		"flips-back.test": {{"127.0.0.1"}, {allowed}, {"::1"}},
	}}
}

func ownAddresses(t *testing.T) []string {
	t.Helper()
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, a := range own {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, prefix.Addr().String())
	}
	return all
}

// guarded is a dispatcher that may reach the allowed address alone.
func guarded(t *testing.T) *Dispatcher {
	t.Helper()
	d := New(Config{Timeout: 5 * time.Second})
	g := newGuard([]netip.Prefix{netip.MustParsePrefix(allowed + "/32")}, pool)
	d.transport = newTransport(g, resolver(t, newNames(t).answer))
	t.Cleanup(d.stop)
	return d
}

func TestGuard_KeepsWebhooksOffEveryForbiddenAddress(t *testing.T) {
	p := setTrap(t)
	d := guarded(t)
	t.Setenv("HTTP_PROXY", p.url("127.0.0.1"))
	t.Setenv("ALL_PROXY", p.url("127.0.0.1"))
	hosts := slices.Clone(targets)
	for _, own := range ownAddresses(t) {
		if strings.Contains(own, ":") {
			own = "[" + own + "]"
		}
		hosts = append(hosts, own)
	}
	if len(targets) < 60 {
		t.Fatalf("only %d targets", len(targets))
	}
	for _, host := range hosts {
		for attempt := range 4 {
			before := p.forbidden.Load()
			o := d.send(t.Context(), store.Webhook{URL: p.url(host), Secret: secret}, extended())
			if n := p.forbidden.Load() - before; n != 0 {
				t.Errorf("%s, attempt %d: %d forbidden connections", host, attempt+1, n)
			}
			if slices.Contains(maybeReached, host) {
				continue
			}
			if o.status != 0 || !o.retry || !strings.HasPrefix(o.problem, toldNone) {
				t.Errorf("%s: %+v, want what an attempt without an answer gives", host, o)
			}
			if !errors.Is(o.cause, errDenied) && !neverDialled(host) {
				t.Errorf("%s: %v, want it denied", host, o.cause)
			}
		}
	}
	if p.forbidden.Load() != 0 || p.allowed.Load() == 0 {
		t.Errorf("%d forbidden connections, and %d allowed ones", p.forbidden.Load(), p.allowed.Load())
	}
}

// neverDialled reports whether a target has no address: it is not a URL, or it is a
// number, which Go does not treat as a name.
func neverDialled(host string) bool {
	if strings.ContainsFunc(host, func(r rune) bool { return r == '%' || r > 127 }) {
		return true
	}
	_, err := netip.ParseAddr(host)
	return err != nil && strings.Trim(host, "0123456789.") == ""
}

func TestGuard_ReachesTheAllowedAddressOfAMixedAnswer(t *testing.T) {
	p := setTrap(t)
	d := guarded(t)
	for _, host := range []string{allowed, "mixed.test", "mixed-six.test", "[::ffff:" + allowed + "]"} {
		if o := d.send(t.Context(), store.Webhook{URL: p.url(host), Secret: secret}, extended()); o.status != 200 {
			t.Errorf("%s: %+v, want 200", host, o)
		}
	}
	if n := p.forbidden.Load(); n != 0 {
		t.Errorf("%d forbidden connections", n)
	}
}

func TestGuard_ChecksEveryAttemptOfANameThatChanges(t *testing.T) {
	p := setTrap(t)
	d := guarded(t)
	for name, want := range map[string][]int{"flips.test": {200, 0, 0}, "flips-back.test": {0, 200, 0}} {
		for i, status := range want {
			o := d.send(t.Context(), store.Webhook{URL: p.url(name), Secret: secret}, extended())
			if o.status != status {
				t.Errorf("%s, attempt %d: %+v, want status %d", name, i+1, o, status)
			}
		}
	}
	if n := p.forbidden.Load(); n != 0 {
		t.Errorf("%d forbidden connections", n)
	}
}

func TestGuard_RedirectsLeadNowhere(t *testing.T) {
	p := setTrap(t)
	d := guarded(t)
	for _, to := range []string{p.url("127.0.0.1"), p.url("[::1]"), p.url("loopback.test"), "//127.0.0.1:" + p.port + "/", p.url(allowed)} {
		p.redirect.Store(to)
		before := p.allowed.Load()
		o := d.send(t.Context(), store.Webhook{URL: p.url(allowed), Secret: secret}, extended())
		if o.status != http.StatusTemporaryRedirect || o.problem != "" || p.allowed.Load() != before+1 {
			t.Errorf("redirected to %s: %+v after %d connections", to, o, p.allowed.Load()-before)
		}
	}
	if n := p.forbidden.Load(); n != 0 {
		t.Errorf("%d forbidden connections", n)
	}
}

func TestGuard_LetsPublicAddressesThrough(t *testing.T) {
	g := newGuard(nil, pool)
	for _, addr := range []string{
		"1.1.1.1", "8.8.8.8", "11.0.0.1", "100.63.255.255", "100.128.0.1", "172.15.255.255", "172.32.0.1", "168.63.129.17", "198.17.255.255", "198.20.0.1", "223.255.255.254",
		"2606:4700::1111", "2a00:1450:4001:830::200e", "2001:4860:4860::8888", "2400::5efe",
	} {
		if err := g.check(netip.MustParseAddr(addr)); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

func TestIsOwn_KnowsTheAddressesOfInterfaces(t *testing.T) {
	own := []net.Addr{
		&net.IPNet{IP: net.ParseIP("8.8.4.4"), Mask: net.CIDRMask(24, 32)},
		&net.IPNet{IP: net.ParseIP("2606:4700::1"), Mask: net.CIDRMask(64, 128)},
	}
	for addr, want := range map[string]bool{"8.8.4.4": true, "2606:4700::1": true, "8.8.4.5": false, "2606:4700::2": false} {
		if got := isOwn(netip.MustParseAddr(addr), own); got != want {
			t.Errorf("%s: %v, want %v", addr, got, want)
		}
	}
}

func TestGuard_DeniesAPoolOfPublicAddresses(t *testing.T) {
	g := newGuard(nil, netip.MustParsePrefix("44.0.0.0/16"))
	if err := g.check(netip.MustParseAddr("44.0.3.4")); !errors.Is(err, errDenied) {
		t.Errorf("an address of the pool: %v", err)
	}
	if err := g.check(netip.MustParseAddr("44.1.3.4")); err != nil {
		t.Errorf("one beside it: %v", err)
	}
}

func TestGuard_AllowsWhatTheOperatorNames(t *testing.T) {
	var allow []netip.Prefix
	for _, prefix := range []string{"10.213.0.0/16", "127.0.0.1/32", "fd00::/8", "168.63.129.16/32"} {
		allow = append(allow, netip.MustParsePrefix(prefix))
	}
	g := newGuard(allow, pool)
	for address, want := range map[string]bool{
		"10.213.9.9:80": true, "127.0.0.1:1": true, "[fd12::1]:443": true, "168.63.129.16:80": true, "[::ffff:127.0.0.1]:80": true,
		"10.214.0.1:80": false, "127.0.0.2:80": false, "[::1]:80": false, "[fd12::1%lo]:80": false, "nonsense": false,
	} {
		network := "tcp4"
		if strings.HasPrefix(address, "[") {
			network = "tcp6"
		}
		if err := g.control(network, address, nil); (err == nil) != want {
			t.Errorf("%s: %v, allowed should be %v", address, err, want)
		}
	}
	if err := g.control("unix", "127.0.0.1:80", nil); !errors.Is(err, errDenied) {
		t.Errorf("another kind of network: %v", err)
	}
}

func FuzzGuard(f *testing.F) {
	for _, seed := range []string{"127.0.0.1", "::ffff:10.0.0.1", "2002:7f00:1::", "1.1.1.1", "fe80::1%eth0"} {
		f.Add(seed)
	}
	g := newGuard(nil, pool)
	f.Fuzz(func(t *testing.T, text string) {
		addr, err := netip.ParseAddr(text)
		if err != nil || g.control("tcp6", net.JoinHostPort(text, "80"), nil) != nil {
			return
		}
		addr = addr.Unmap()
		if addr.IsLoopback() || addr.IsPrivate() || addr.IsLinkLocalUnicast() || addr.IsMulticast() || addr.IsUnspecified() || addr.Zone() != "" {
			t.Errorf("%s is let through", text)
		}
	})
}
