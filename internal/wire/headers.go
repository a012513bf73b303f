package wire

import (
	"iter"
	"net/textproto"
	"slices"
	"strings"
)

// Field is one header line: its canonical name, and its value as sent.
type Field struct{ Key, Value string }

// The headers of a request that the edge sets.
const (
	HeaderCallerIP  = "Berth-Client-Ip" // the caller's address, for the server inside this process
	HeaderRequestID = "X-Request-Id"
)

// HeaderPrefix tells a service which prefix was removed from its request's path.
const HeaderPrefix = "X-Forwarded-Prefix"

// The headers of a request between nodes, besides those that the edge sets. A node that
// does not know one ignores it.
const (
	HeaderCallerProto = "Berth-Client-Proto" // http or https, as the caller spoke it
	HeaderProtocol    = "Berth-Peer"         // version of what nodes say to each other
	HeaderHops        = "Berth-Peer-Hops"    // how often the request has been forwarded, with this time
)

// Internal reports whether only nodes of this installation may send a header, in any
// spelling: servers that turn names into variables cannot tell Berth_Client_Ip from
// Berth-Client-Ip.
func Internal(key string) bool {
	return matchesPrefix(key, "berth-client-") || matchesPrefix(key, "berth-peer") && (len(key) == len(HeaderProtocol) || matchesPrefix(key, "berth-peer-"))
}

// matchesPrefix reports whether key begins with a prefix in lower case. Case does not
// count, and an underscore is a dash.
func matchesPrefix(key, prefix string) bool {
	if len(key) < len(prefix) {
		return false
	}
	for i := range len(prefix) {
		c := key[i]
		if c == '_' {
			c = '-'
		}
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != prefix[i] {
			return false
		}
	}
	return true
}

// StripInternal removes the headers that only nodes may send.
func StripInternal(h map[string][]string) {
	for key := range h {
		if Internal(key) {
			delete(h, key)
		}
	}
}

var edgeHeaders = [...]string{HeaderCallerIP, HeaderRequestID}

// EdgeHeaders returns the names of the headers that the edge sets.
func EdgeHeaders() []string { return slices.Clone(edgeHeaders[:]) }

// SetByEdge reports whether the edge sets a request's header. No field of the caller
// removes it or adds to it.
func SetByEdge(key string) bool { return slices.Contains(edgeHeaders[:], key) }

// HopByHop reports whether a header applies to a single connection.
func HopByHop(key string) bool {
	switch key {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// OwnedByProxy reports whether a request's header never passes as the caller sent it:
// it applies to a single connection, or the proxy writes it itself.
func OwnedByProxy(key string) bool {
	switch key {
	case "Proxy-Authorization", "Http2-Settings", "Content-Length", "Host", "Expect", "Forwarded", "X-Real-Ip", "Cookie":
		return true
	}
	if HopByHop(key) || strings.HasPrefix(key, "X-Forwarded-") {
		return true
	}
	// Servers that turn names into variables cannot tell X_Forwarded_For from
	// X-Forwarded-For.
	return strings.IndexByte(key, '_') >= 0 &&
		OwnedByProxy(textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(key, "_", "-")))
}

// TrailerAllowed reports whether a field may follow a body as a trailer: none that
// frames, routes or authenticates may.
func TrailerAllowed(key string) bool {
	switch key {
	case "Authorization", "Content-Encoding", "Content-Range", "Content-Type", "Set-Cookie", "Max-Forwards":
		return false
	}
	return !OwnedByProxy(key) && !SetByEdge(key) && !Internal(key)
}

// Tokens yields the nonempty parts of comma-separated values.
func Tokens(values []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, v := range values {
			for part := range strings.SplitSeq(v, ",") {
				if part = strings.TrimSpace(part); part != "" && !yield(part) {
					return
				}
			}
		}
	}
}

// HasToken reports whether one of the comma-separated values contains token.
func HasToken(values []string, token string) bool {
	for t := range Tokens(values) {
		if strings.EqualFold(t, token) {
			return true
		}
	}
	return false
}

// ConnectionOptions parses the values of Connection fields: it appends the canonical
// names of the headers that must not pass to names, and reports whether the connection
// is to close.
func ConnectionOptions(names, values []string) (_ []string, closes bool) {
	for t := range Tokens(values) {
		switch {
		case strings.EqualFold(t, "close"):
			closes = true
		case strings.EqualFold(t, "keep-alive"), strings.EqualFold(t, "upgrade"):
		default:
			names = append(names, textproto.CanonicalMIMEHeaderKey(t))
		}
	}
	return names, closes
}

// PassedUpgrades returns the protocols of Upgrade fields that a service may switch to.
// HTTP/2 is not among them: a caller that speaks it to the service through a tunnel
// could send any header.
func PassedUpgrades(values []string) []string {
	isHTTP2 := func(t string) bool { return strings.EqualFold(t, "h2c") }
	return slices.DeleteFunc(slices.Collect(Tokens(values)), isHTTP2)
}
