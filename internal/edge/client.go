package edge

import (
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
)

// client is who sent a request.
type client struct{ text, proto string }

// identify finds the client of r.
func (e *edge) identify(r *http.Request, c *conn) client {
	peer := c.peerOf(r)
	who := client{text: peer.text, proto: "http"}
	if r.TLS != nil {
		who.proto = "https"
	}
	if len(e.trusted) == 0 || !e.trusts(peer.ip) {
		return who
	}
	if ip, ok := e.forwardedFor(r.Header["X-Forwarded-For"]); ok {
		who.text = ip.String()
	}
	if proto := r.Header["X-Forwarded-Proto"]; len(proto) == 1 && (proto[0] == "http" || proto[0] == "https") {
		who.proto = proto[0]
	}
	return who
}

// forwardedFor is the rightmost address that is not a trusted proxy's. It
// fails when there is none, or when something that is no address comes first.
func (e *edge) forwardedFor(lines []string) (netip.Addr, bool) {
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; {
			var last string
			rest, last, more = cutLast(rest)
			ip, ok := parseIP(last)
			if !ok {
				return netip.Addr{}, false
			}
			if !e.trusts(ip) {
				return ip, true
			}
		}
	}
	return netip.Addr{}, false
}

func cutLast(list string) (before, last string, more bool) {
	i := strings.LastIndexByte(list, ',')
	if i < 0 {
		return "", strings.TrimSpace(list), false
	}
	return list[:i], strings.TrimSpace(list[i+1:]), true
}

func (e *edge) trusts(ip netip.Addr) bool {
	for _, p := range e.trusted {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}

// parseIP reads an address, with or without a port.
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

// requestID is the client's own id for the request when it is a sane one, else
// a new one. It is for finding lines in logs, no secret.
func requestID(r *http.Request) string {
	if ids := r.Header["X-Request-Id"]; len(ids) == 1 && saneID(ids[0]) {
		return ids[0]
	}
	var b [16]byte
	for i := 0; i < len(b); i += 8 {
		n := rand.Uint64()
		for j := range 8 {
			b[i+j] = byte(n >> (8 * j))
		}
	}
	return hex.EncodeToString(b[:])
}

func saneID(id string) bool {
	if len(id) < 1 || len(id) > 128 {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-_.:", c) >= 0) {
			return false
		}
	}
	return true
}
