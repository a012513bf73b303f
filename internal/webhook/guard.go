package webhook

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"code.dny.dev/ssrf"
)

// errDenied is the error for an address that webhooks may not reach.
var errDenied = errors.New("webhooks may not reach this address")

// metadata is Azure's metadata service, an address that is not in any special-purpose
// range.
var metadata = netip.MustParsePrefix("168.63.129.16/32")

// isatap are the interface identifiers, without their last four bytes, of addresses
// that carry an IPv4 address for ISATAP (RFC 5214), in any network.
var isatap = [][]byte{{0, 0, 0x5e, 0xfe}, {2, 0, 0x5e, 0xfe}}

// guard decides which addresses webhooks may reach: public ones that are not this
// host's own, and the operator's exceptions.
type guard struct {
	allow   []netip.Prefix
	classes *ssrf.Guardian // special-purpose ranges
}

// newGuard returns a guard that allows some ranges in any case, and denies the pool of
// the stacks' networks, which may be public addresses.
func newGuard(allow []netip.Prefix, pool netip.Prefix) *guard {
	denied := []netip.Prefix{metadata}
	if pool.IsValid() {
		denied = append(denied, pool)
	}
	return &guard{allow: allow, classes: ssrf.New(ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(denied...))}
}

// control is the Control of a net.Dialer: it sees every address just before it is
// dialled.
func (g *guard) control(network, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil || (network != "tcp4" && network != "tcp6") {
		return fmt.Errorf("%w: %s %s", errDenied, network, address)
	}
	return g.check(target.Addr().Unmap())
}

func (g *guard) check(addr netip.Addr) error {
	if slices.ContainsFunc(g.allow, func(p netip.Prefix) bool { return p.Contains(addr) }) {
		return nil
	}
	if err := g.classes.SafeAddr(addr); err != nil {
		return fmt.Errorf("%w: %w", errDenied, err)
	}
	if carriesIPv4(addr) {
		return fmt.Errorf("%w: %s carries an IPv4 address", errDenied, addr)
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("%w: this host's own are not known: %w", errDenied, err)
	}
	if isOwn(addr, own) {
		return fmt.Errorf("%w: %s is this host's own", errDenied, addr)
	}
	return nil
}

// carriesIPv4 reports whether the last half of an IPv6 address stands for an IPv4 one.
// Networks that stand for IPv4 addresses are special-purpose ranges.
func carriesIPv4(addr netip.Addr) bool {
	if !addr.Is6() {
		return false
	}
	b := addr.As16()
	return slices.ContainsFunc(isatap, func(id []byte) bool { return bytes.Equal(b[8:12], id) })
}

func isOwn(addr netip.Addr, own []net.Addr) bool {
	return slices.ContainsFunc(own, func(a net.Addr) bool {
		network, ok := a.(*net.IPNet)
		return ok && network.IP.Equal(addr.AsSlice())
	})
}
