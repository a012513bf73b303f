package firewall

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// routes says which connections are possible; each row holds before and after a repair.
var routes = []struct {
	what, from, to string
	without, with  bool // rules
}{
	{"a container of the same stack", "a1", "10.213.0.3:80", true, true},
	{"another stack by address", "a1", "10.213.0.18:80", true, false},
	{"another stack's gateway", "a1", "10.213.0.17:80", true, false},
	{"its own gateway", "a1", "10.213.0.1:80", true, false},
	{"the host by its outer address", "a1", "192.0.2.1:80", true, false},
	{"the host by IPv6, which stacks do not have", "a1", "[fd00:a::1]:80", true, false},
	{"a public address", "a1", public + ":80", true, true},
	{"a metadata service", "a1", metadata + ":80", true, false},
	{"a private address", "a1", private + ":80", true, false},
	{"a mirror's other port", "a1", mirror + ":80", true, false},
	{"a public mail server", "a1", public + ":25", true, false},
	{"a public submission port over TLS", "a1", public + ":465", true, false},
	{"a public submission port", "a1", public + ":587", true, false},
	{"the stack's services, from its builds", "c1", "10.213.0.2:80", true, false},
	{"another stack, from builds", "c1", "10.213.0.18:80", true, false},
	{"builds, from the stack's services", "a1", "10.213.0.34:80", true, false},
	{"the host, from builds", "c1", "192.0.2.1:80", true, false},
	{"a private address, from builds", "c1", private + ":80", true, false},
	{"a public address, from builds", "c1", public + ":80", true, true},
	{"a public mail server, from builds", "c1", public + ":25", true, false},
	{"the host, to a stack", "host", "10.213.0.2:80", true, true},
	{"the host, to a private address", "host", private + ":80", true, true},
	{"the outside, to a stack", "out", "10.213.0.2:80", true, false},
	{"the outside, to the host", "out", "192.0.2.1:80", true, true},
}

func TestApply_WallsOffTheStacks(t *testing.T) {
	m := newMachine(t)
	for _, name := range []string{"host", "a1", "a2", "b1", "c1"} {
		m.listen(name, "80")
	}
	m.listen("out", "80", "443", "25", "465", "587")
	for _, r := range routes {
		assert.Equal(t, r.without, m.reaches(r.from, r.to), "%s, without rules", r.what)
	}
	require.NoError(t, m.apply(Options{}))
	for _, r := range routes {
		assert.Equal(t, r.with, m.reaches(r.from, r.to), "%s", r.what)
	}
	assert.False(t, m.reaches("a1", mirror+":443"))
	require.NoError(t, m.apply(Options{Open: []string{mirror + ":443", "192.0.2.1:80"}}, bridgeA, "bthgone"))
	assert.True(t, m.reaches("a1", mirror+":443"), "a mirror is open")
	assert.False(t, m.reaches("a1", mirror+":80"), "and no more than its port")
	assert.True(t, m.reaches("a1", "192.0.2.1:80"), "on the host itself too")
	assert.True(t, m.reaches("a1", public+":25"), "a claimed stack sends mail")
	assert.False(t, m.reaches("b1", public+":25"), "and no other")
	assert.NotContains(t, m.rules("iptables-save"), "bthgone")
	require.NoError(t, m.apply(Options{Build: []string{private + ":443", "192.0.2.1:80"}}, bridgeC))
	assert.True(t, m.reaches("c1", private+":443"), "a package host is open to builds")
	assert.False(t, m.reaches("c1", private+":80"), "and no more than its port")
	assert.True(t, m.reaches("c1", "192.0.2.1:80"), "on the host itself too")
	assert.False(t, m.reaches("a1", private+":443"), "to builds alone")
	assert.True(t, m.reaches("c1", mirror+":443"), "what is open to stacks is open to builds")
	assert.True(t, m.reaches("c1", public+":25"), "the builds of a claimed stack send mail")
	assert.True(t, m.reaches("a1", public+":443"))
	shut := Options{
		Open:  []string{mirror + ":443", mirror + ":80", "192.0.2.1:80"},
		Shut:  func() []string { return []string{public + ":443", mirror + ":80", "127.0.0.1:5432"} },
		Nodes: func() []string { return []string{mirror} },
	}
	require.NoError(t, m.apply(shut))
	assert.False(t, m.reaches("a1", public+":443"), "a registry is closed even if it is public")
	assert.True(t, m.reaches("a1", public+":80"), "and no more than its port")
	assert.False(t, m.reaches("a1", mirror+":80"), "even if it is opened, too")
	assert.True(t, m.reaches("a1", mirror+":443"), "what is open on a node stays open")
	assert.NotContains(t, m.rules("iptables-save"), "127.0.0.1/32")
	shut.Nodes = func() []string { return []string{public} }
	require.NoError(t, m.apply(shut))
	assert.False(t, m.reaches("a1", public+":80"), "a node is closed whole")
	assert.True(t, m.reaches("host", public+":443"), "to stacks alone")
	// The metadata service stays closed to a stack that may send mail.
	assert.False(t, m.reaches("a1", metadata+":80"))
}

func TestApply_RepairsWhateverIsChanged(t *testing.T) {
	m := newMachine(t)
	require.NoError(t, m.apply(Options{}))
	whole, whole6 := m.rules("iptables-save"), m.rules("ip6tables-save")
	for _, change := range []string{
		"iptables -t mangle -D BERTH-FORWARD 1",
		"iptables -t mangle -I BERTH-INPUT -j RETURN",
		"iptables -t mangle -D INPUT -i bth+ -j BERTH-INPUT",
		"iptables -t mangle -F",
		"iptables -t mangle -F && iptables -t mangle -X",
		"iptables -t mangle -A BERTH-OPEN -d 10.9.9.9/32 -j ACCEPT",
		"iptables -t mangle -A BERTH-MAIL -i bthgone -j ACCEPT",
		"iptables -t mangle -F BERTH-RATE",
		"iptables -t mangle -A BERTH-BUILD -d 10.9.9.9/32 -j ACCEPT",
		"iptables -t raw -F",
		"iptables -t raw -F && iptables -t raw -X",
		"iptables -t raw -A BERTH-WITHIN -j CT --notrack",
		"ip6tables -t mangle -F",
	} {
		m.sh("host", change)
		require.NoError(t, m.apply(Options{}), change)
		assert.ElementsMatch(t, strings.Split(whole, "\n"), strings.Split(m.rules("iptables-save"), "\n"), change)
		assert.ElementsMatch(t, strings.Split(whole6, "\n"), strings.Split(m.rules("ip6tables-save"), "\n"), change)
	}
}

// The limits are those that docs/security.md promises.
func TestApply_BoundsTheConnectionsOfANetwork(t *testing.T) {
	m := newMachine(t)
	for _, name := range []string{"a1", "a2"} {
		m.listen(name, "80")
	}
	m.listen("out", "80")
	require.NoError(t, m.apply(Options{}))
	before := m.connections()
	m.flood("a1", "10.213.0.3:9", 2*rateBurst)
	assert.LessOrEqual(t, m.connections(), before+10, "what stays in a network is not counted, though the kernels may have said something")

	took := m.flood("a1", public+":9", 5*rateBurst)
	over := time.Now()
	held := m.connections() - before
	assert.GreaterOrEqual(t, held, rateBurst*9/10, "those at once are let through")
	assert.LessOrEqual(t, held, rateBurst+ratePerSecond*(int(took.Seconds())+1))
	assert.Less(t, held, 5*rateBurst)
	assert.True(t, m.reaches("b1", public+":80"), "another stack is not held back")
	assert.True(t, m.reaches("c1", public+":80"), "and neither are builds")
	assert.True(t, m.reaches("host", "10.213.0.2:80"), "the host reaches the stack")
	assert.True(t, m.reaches("a1", "10.213.0.3:80"), "and so does the stack itself")

	require.NoError(t, m.apply(Options{Open: []string{mirror + ":443"}}))
	held = m.connections()
	m.flood("a1", public+":9", 2*rateBurst)
	assert.LessOrEqual(t, m.connections()-held, ratePerSecond*(int(time.Since(over).Seconds())+1), "putting rules right does not begin the count anew")
	require.Eventually(t, func() bool { return m.reaches("a1", public+":80") }, 10*time.Second, time.Millisecond, "the stack is served again")
}

func TestApply_LeavesOthersRulesAlone(t *testing.T) {
	m := newMachine(t)
	m.sh("host", "iptables -t mangle -A FORWARD -j MARK --set-mark 7 && iptables -t mangle -N MINE && iptables -A FORWARD -j ACCEPT")
	require.NoError(t, m.apply(Options{}))
	rules := m.rules("iptables-save")
	assert.Contains(t, rules, "-A FORWARD -j MARK --set-xmark 0x7/0xffffffff\n")
	assert.Contains(t, rules, ":MINE - ")
	m.listen("b1", "80")
	assert.False(t, m.reaches("a1", "10.213.0.18:80"), "another's ACCEPT in filter undoes nothing")
}

func TestApply_OfManyInstallationsAtOnceSetsTheRulesOnce(t *testing.T) {
	m := newMachine(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { assert.NoError(t, m.apply(Options{Open: []string{mirror + ":443"}}, bridgeA, bridgeB)) })
	}
	all.Wait()
	rules := m.rules("iptables-save")
	for _, rule := range []string{"-A INPUT ", "-A BERTH-MAIL -i " + bridgeA, "-A BERTH-OPEN -d " + mirror + "/32 -p tcp", "-A BERTH-INPUT -j DROP"} {
		assert.Equal(t, 1, strings.Count(rules, rule), "%s in\n%s", rule, rules)
	}
}

func TestApply_RefusesAnEngineThatIsElsewhere(t *testing.T) {
	m := newMachine(t)
	elsewhere := func(context.Context) ([]string, error) { return []string{"docker0"}, nil }
	require.ErrorContains(t, m.apply(Options{Bridges: elsewhere}), "not on this machine")
	assert.NotContains(t, m.rules("iptables-save"), "BERTH")
}

func TestApply_SaysWhatIsMissing(t *testing.T) {
	m := newMachine(t)
	t.Setenv("PATH", t.TempDir())
	require.ErrorContains(t, m.apply(Options{}), "apt-get install iptables")
	t.Setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin") // for the cleaning
}

func TestOpenChanges_RenewsHalfwayAndRemovesWhatIsOver(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	want := wanted{open: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:443")}, now: now}
	rule := func(addr, protocol string, left time.Duration) string {
		w := wanted{open: []netip.AddrPort{netip.MustParseAddrPort(addr)}, now: now.Add(left - lease)}
		for _, line := range w.openChanges(nil) {
			if strings.Contains(line, "-p "+protocol) {
				return strings.TrimPrefix(line, "-A BERTH-OPEN ")
			}
		}
		t.Fatal("no rule")
		return ""
	}
	fresh, stale := rule("10.0.0.1:443", "tcp", lease*3/4), rule("10.0.0.1:443", "udp", lease/4)
	others, over := rule("10.0.0.2:443", "tcp", time.Second), rule("10.0.0.3:443", "tcp", -time.Second)
	assert.Equal(t, []string{
		"-A BERTH-OPEN " + rule("10.0.0.1:443", "udp", lease),
		"-D BERTH-OPEN " + stale,
		"-D BERTH-OPEN " + over,
		"-D BERTH-OPEN -j ACCEPT",
	}, sortedByKind(want.openChanges([]string{fresh, stale, others, over, "-j ACCEPT"})))
}

// sortedByKind puts the line that accepts the open destinations last.
func sortedByKind(lines []string) []string {
	var last []string
	kept := lines[:0:0]
	for _, line := range lines {
		if strings.HasSuffix(line, "OPEN -j ACCEPT") {
			last = append(last, line)
			continue
		}
		kept = append(kept, line)
	}
	return append(kept, last...)
}

func TestResolvers_AreThoseOfEveryFile(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	require.NoError(t, os.WriteFile(one, []byte("# nameserver 10.0.0.9\nnameserver 127.0.0.53\noptions edns0\n"), 0o600))
	require.NoError(t, os.WriteFile(two, []byte("nameserver 10.0.0.53\nnameserver fd00::53\nnameserver\n"), 0o600))
	found := resolvers([]string{one, filepath.Join(dir, "none"), two})
	assert.Equal(t, []netip.Addr{netip.MustParseAddr("127.0.0.53"), netip.MustParseAddr("10.0.0.53")}, found)
}

func TestClosed_IsWhatIsNotPublic(t *testing.T) {
	for addr, want := range map[string]bool{
		"10.1.2.3": true, "172.31.0.1": true, "192.168.1.1": true, "169.254.169.254": true, "100.100.100.200": true,
		"168.63.129.16": true, "127.0.0.1": true, "224.0.0.1": true, "255.255.255.255": true, "0.0.0.0": true,
		"192.0.2.1": true, "198.51.100.7": true, "203.0.113.255": true,
		"172.32.0.1": false, "8.8.8.8": false, "192.31.196.7": false, "203.0.114.0": false,
	} {
		assert.Equal(t, want, closed(netip.MustParseAddr(addr)), addr)
	}
}

func TestShut_RefusesWhatIsOpenedToo(t *testing.T) {
	f := New(Options{Open: []string{"10.0.0.9:443"}, Shut: func() []string { return []string{"10.0.0.9:5000", "203.0.113.7:5432", "127.0.0.1:6379"} }})
	shut, err := f.Shut(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []netip.AddrPort{netip.MustParseAddrPort("10.0.0.9:5000"), netip.MustParseAddrPort("203.0.113.7:5432")}, shut)
	f.opts.Build = append(f.opts.Build, "10.0.0.9:5000")
	_, err = f.Shut(t.Context())
	require.ErrorContains(t, err, "opens 10.0.0.9:5000 to stacks or builds")
}
