package edge

import (
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

// Details of the 400 for a request whose end or host is in doubt.
const (
	untrusted = "the length of this request is ambiguous: HTTP/1.0 has no Transfer-Encoding; send it with HTTP/1.1, or with only a Content-Length"
	badTarget = "the request's target is not supported; send a path that begins with /, a complete http:// or https:// URL of this host, or * with OPTIONS"
	badHost   = "the Host header is not a name or an address with an optional port; send the host of the requested URL"
)

// validTarget reports whether r asks for a path, for the whole URL of a host, or for
// the server itself. net/http also accepts anything that url.ParseRequestURI can parse,
// and passes it to handlers as a URL without a path.
func validTarget(r *http.Request) bool {
	switch u := r.URL; {
	case strings.HasPrefix(r.RequestURI, "/"):
		return true
	case r.RequestURI == "*":
		return r.Method == http.MethodOptions
	default: // HTTP/2 has the host beside the target, HTTP/1 in it
		return (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.Host == r.Host && u.User == nil
	}
}

// parseHost returns a Host in lower case, without port, without the brackets of an IPv6
// address and without a final dot. The Host is valid if it is a name, an IPv4 address or
// an IPv6 address in brackets, with an optional port. A name may end in a dot, but has
// no other empty labels. The empty Host of HTTP/1.0 is valid too.
func parseHost(hostport string) (host string, valid bool) {
	if literal, ok := strings.CutPrefix(hostport, "["); ok {
		literal, port, closed := strings.Cut(literal, "]")
		ip, err := netip.ParseAddr(literal)
		return strings.ToLower(literal), closed && err == nil && ip.Is6() && ip.Zone() == "" && validPort(port)
	}
	name, _, _ := strings.Cut(hostport, ":")
	port := hostport[len(name):]
	name = strings.TrimSuffix(name, ".")
	valid = !strings.Contains("."+name+".", "..") && !strings.ContainsFunc(name, notInName) && validPort(port)
	return strings.ToLower(name), valid || hostport == ""
}

// notInName reports whether r cannot be part of a host's name.
func notInName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
}

// validPort reports whether s is empty, or a colon and at most one port.
func validPort(s string) bool {
	digits, colon := strings.CutPrefix(s, ":")
	if digits == "" {
		return true
	}
	_, err := strconv.ParseUint(digits, 10, 16)
	return colon && err == nil
}
