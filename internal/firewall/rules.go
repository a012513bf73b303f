package firewall

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/engine"
)

// The chains in the table mangle. INPUT and FORWARD lead to the first two. These and chainRate
// are fixed; all installations fill the others.
const (
	chainInput   = "BERTH-INPUT"   // from stacks to this machine
	chainForward = "BERTH-FORWARD" // through this machine from stacks, or to them
	chainRate    = "BERTH-RATE"    // new connections of stacks, which are limited
	chainOpen    = "BERTH-OPEN"    // what the operator lets stacks reach
	chainBuild   = "BERTH-BUILD"   // what is open to builds as well
	chainMail    = "BERTH-MAIL"    // stacks that may send mail
	chainShut    = "BERTH-SHUT"    // what no stack may reach, whatever is open
	chainNodes   = "BERTH-NODES"   // the installation's machines, but for what is open
)

// chainWithin, in the table raw, has what stays within the pool of an installation's networks.
// PREROUTING leads to it.
const chainWithin = "BERTH-WITHIN"

// closedRanges are the addresses that are not public: this network, private, providers'
// own networks, loopback, link-local with the metadata services, protocol assignments,
// documentation, benchmarks, multicast and reserved; and one metadata service outside of these.
var closedRanges = []string{
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16", "172.16.0.0/12",
	"192.0.0.0/24", "192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
}

// The rules that several chains share, as the programs print them.
const (
	answers    = "-m conntrack --ctstate RELATED,ESTABLISHED -j RETURN"
	sameBridge = "-m physdev --physdev-is-bridged -j RETURN"
	mailPorts  = "-p tcp -m multiport --dports 25,465,587"
	newOnes    = "-m conntrack ! --ctstatus CONFIRMED -j " + chainRate // connections that the kernel's table does not have yet
	fromStacks = "-i " + engine.BridgePrefix + "+"
	fromBuilds = "-i " + engine.BuildBridgePrefix + "+ -j " + chainBuild
)

// A network may open ratePerSecond connections, and rateBurst at once after a pause. The
// kernel counts them in a hash table by the network's address, so that a packet costs the same
// however many stacks and connections there are. An entry of that table lasts for longer
// than it takes to have the whole burst again. Its name has the figures, since the kernel
// keeps those of a table whose name it knows. A packet that is dropped takes no entry in the
// table of connections; docs/security.md says what bound on these follows.
const (
	ratePerSecond = 100
	rateBurst     = 5000
	rateLasts     = 2 * rateBurst / ratePerSecond * time.Second
	rateBits      = 28 // of a generation's network; a larger one counts as several
)

var tooFast = fmt.Sprintf("-m hashlimit --hashlimit-above %[1]d/sec --hashlimit-burst %[2]d --hashlimit-mode srcip --hashlimit-name berth-%[1]d-%[2]d --hashlimit-htable-expire %[3]d --hashlimit-srcmask %[4]d -j DROP",
	ratePerSecond, rateBurst, rateLasts.Milliseconds(), rateBits)

// rules maps a chain to its rules, in order.
type rules map[string][]string

// rules4 returns the fixed rules for IPv4.
func rules4() rules {
	forward := []string{
		answers,
		fromStacks + " " + newOnes,
		sameBridge, // what stays in one network
		"-o " + engine.BridgePrefix + "+ -j DROP", // other stacks; and whoever is not this machine, to stacks
		"-j " + chainShut,
		fromBuilds,
		"-j " + chainOpen,
		"-j " + chainNodes,
		"-m conntrack --ctstate DNAT -j DROP", // published ports of this machine's other containers
	}
	for _, r := range closedRanges {
		forward = append(forward, "-d "+r+" -j DROP")
	}
	forward = append(forward, mailPorts+" -j "+chainMail, mailPorts+" -j DROP")
	all := hooked([]string{answers, newOnes, "-j " + chainShut, fromBuilds, "-j " + chainOpen, "-j DROP"}, forward)
	all[chainRate] = []string{tooFast}
	return all
}

// rulesRaw returns the fixed rules for IPv4 in the table raw.
func rulesRaw() rules {
	return rules{"PREROUTING": {fromStacks + " -j " + chainWithin}}
}

// rules6 returns the fixed rules for IPv6, which stacks' networks do not have.
func rules6() rules {
	return hooked([]string{"-j DROP"}, []string{sameBridge, "-j DROP"})
}

// hooked returns the rules of the fixed chains with those of the kernel's own chains that
// lead to them.
func hooked(input, forward []string) rules {
	return rules{
		chainInput:   input,
		chainForward: forward,
		"INPUT":      {fromStacks + " -j " + chainInput},
		"FORWARD":    {fromStacks + " -j " + chainForward, "-o " + engine.BridgePrefix + "+ -j " + chainForward},
	}
}

// wanted describes the chains that all installations fill.
type wanted struct {
	open    []netip.AddrPort
	build   []netip.AddrPort
	shut    []netip.AddrPort
	nodes   []netip.Addr
	pool    netip.Prefix
	mail    []string // interfaces of stacks that may send mail
	present []string // all interfaces there are
	now     time.Time
}

// lease is how long a rule that an installation adds, except to chainMail, lasts unless it is
// renewed, since no other installation knows when one is gone or a host has moved. It is
// renewed when half of it has passed.
const lease = time.Hour

var leased = regexp.MustCompile(`^(.*) -m comment --comment "berth until (\d+)" -j (?:ACCEPT|DROP|CT --notrack)$`)

// openChanges returns the lines that turn chainOpen into what is wanted.
func (w wanted) openChanges(found []string) []string {
	return w.leasedChanges(chainOpen, "ACCEPT", ports(w.open), found)
}

// buildChanges returns the lines that turn chainBuild into what is wanted.
func (w wanted) buildChanges(found []string) []string {
	return w.leasedChanges(chainBuild, "ACCEPT", ports(w.build), found)
}

// shutChanges returns the lines that turn chainShut into what is wanted.
func (w wanted) shutChanges(found []string) []string {
	return w.leasedChanges(chainShut, "DROP", ports(w.shut), found)
}

// nodesChanges returns the lines that turn chainNodes into what is wanted.
func (w wanted) nodesChanges(found []string) []string {
	keep := map[string]bool{}
	for _, addr := range w.nodes {
		keep[fmt.Sprintf("-d %s/32", addr)] = true
	}
	return w.leasedChanges(chainNodes, "DROP", keep, found)
}

// withinChanges returns the lines that turn chainWithin into what is wanted. The kernel keeps
// no entry in its table of connections for what it leads on within a network: such
// connections need no limit. What a stack answers to this machine is not among it.
func (w wanted) withinChanges(found []string) []string {
	keep := map[string]bool{}
	if w.pool.IsValid() {
		keep[fmt.Sprintf("-s %[1]s -d %[1]s -m addrtype ! --dst-type LOCAL", w.pool.Masked())] = true
	}
	return w.leasedChanges(chainWithin, "CT --notrack", keep, found)
}

// ports returns the matches of rules for endpoints.
func ports(endpoints []netip.AddrPort) map[string]bool {
	matches := map[string]bool{}
	for _, e := range endpoints {
		for _, protocol := range []string{"tcp", "udp"} {
			matches[fmt.Sprintf("-d %s/32 -p %[2]s -m %[2]s --dport %d", e.Addr(), protocol, e.Port())] = true
		}
	}
	return matches
}

// leasedChanges returns the lines that give a chain rules with the matches keep, and remove
// those whose lease is over.
func (w wanted) leasedChanges(chain, target string, keep map[string]bool, found []string) []string {
	var lines []string
	for _, rule := range found {
		match, until := leaseOf(rule)
		if keep[match] && until.After(w.now.Add(lease/2)) {
			delete(keep, match)
		} else if keep[match] || until.Before(w.now) {
			lines = append(lines, "-D "+chain+" "+rule)
		}
	}
	for match := range keep {
		lines = append(lines, fmt.Sprintf(`-A %s %s -m comment --comment "berth until %d" -j %s`, chain, match, w.now.Add(lease).Unix(), target))
	}
	slices.Sort(lines) // what is added comes before what it replaces goes
	return lines
}

// leaseOf parses a rule with a lease. For a rule that is not ours the time is long
// past.
func leaseOf(rule string) (match string, until time.Time) {
	parts := leased.FindStringSubmatch(rule)
	if parts == nil {
		return rule, time.Time{}
	}
	seconds, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil {
		return parts[1], time.Time{}
	}
	return parts[1], time.Unix(seconds, 0)
}

var mailRule = regexp.MustCompile(`^-i (\S+) -j ACCEPT$`)

// mailChanges returns the lines that add the wanted stacks to chainMail and remove
// those whose interface is gone, whoever added them.
func (w wanted) mailChanges(found []string) []string {
	missing := map[string]bool{}
	for _, name := range w.mail {
		missing[name] = true
	}
	var lines []string
	for _, rule := range found {
		parts := mailRule.FindStringSubmatch(rule)
		if parts == nil || !slices.Contains(w.present, parts[1]) {
			lines = append(lines, "-D "+chainMail+" "+rule)
		} else {
			delete(missing, parts[1])
		}
	}
	for name := range missing {
		lines = append(lines, "-A "+chainMail+" -i "+name+" -j ACCEPT")
	}
	return lines
}

// closed reports whether stacks cannot reach an address unless it is opened.
func closed(addr netip.Addr) bool {
	return slices.ContainsFunc(closedRanges, func(r string) bool { return netip.MustParsePrefix(r).Contains(addr) })
}

// parse parses the chains and their rules in the output of iptables-save.
func parse(text string) rules {
	found := rules{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, ":"); ok {
			name, _, _ = strings.Cut(name, " ")
			found[name] = nil
		}
		if rule, ok := strings.CutPrefix(line, "-A "); ok {
			chain, rule, _ := strings.Cut(rule, " ")
			found[chain] = append(found[chain], rule)
		}
	}
	return found
}
