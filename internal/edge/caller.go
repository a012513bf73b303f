package edge

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/berth-host/berth/internal/exchange"
)

// identify returns the sender of r.
func (e *edge) identify(r *http.Request, c *conn) exchange.Caller {
	peer := c.peerOf(r)
	who := exchange.Caller{IP: peer.text, Proto: "http"}
	if r.TLS != nil {
		who.Proto = "https"
	}
	if !e.trusts(peer.ip) {
		return who
	}
	if ip, ok := forwardedFor(r.Header["X-Forwarded-For"], e.cfg.TrustedProxies); ok {
		who.IP = ip.String()
	}
	if proto := r.Header["X-Forwarded-Proto"]; len(proto) == 1 && (proto[0] == "http" || proto[0] == "https") {
		who.Proto = proto[0]
	}
	return who
}

// forwardedFor returns the rightmost address that does not belong to a trusted proxy.
// It fails if there is none, or if it meets something other than an address first.
func forwardedFor(lines []string, trusted []netip.Prefix) (netip.Addr, bool) {
	for list := strings.Join(lines, ","); ; {
		comma := strings.LastIndexByte(list, ',')
		ip, ok := parseIP(strings.TrimSpace(list[comma+1:]))
		switch {
		case ok && !anyContains(trusted, ip):
			return ip, true
		case !ok || comma < 0:
			return netip.Addr{}, false
		}
		list = list[:comma]
	}
}

func (e *edge) trusts(ip netip.Addr) bool { return anyContains(e.cfg.TrustedProxies, ip) }

func anyContains(networks []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// parseIP parses an address, with or without a port.
func parseIP(s string) (netip.Addr, bool) {
	ip, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	if err != nil {
		withPort, err := netip.ParseAddrPort(s)
		if err != nil {
			return netip.Addr{}, false
		}
		ip = withPort.Addr()
	}
	return ip.Unmap().WithZone(""), true
}
