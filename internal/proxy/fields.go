package proxy

import (
	"bytes"
	"net/http"
	"net/textproto"
	"strings"
)

func indexByte(b []byte, c byte) int { return bytes.IndexByte(b, c) }

// tokenBytes are the bytes that a header's name may hold (RFC 9110, 5.6.2).
var tokenBytes = func() (set [256]bool) {
	for _, c := range []byte("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") {
		set[c] = true
	}
	return set
}()

func isToken(s string) bool {
	for i := range len(s) {
		if !tokenBytes[s[i]] {
			return false
		}
	}
	return s != ""
}

// isFieldValue tells whether s holds no control character but the tab.
func isFieldValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// hasToken tells whether one of the comma-separated values holds token.
func hasToken(values []string, token string) bool {
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}

// passedUpgrades are the protocols of Upgrade fields that a service may switch
// to. HTTP/2 is none: the requests of a client that speaks it to the service
// through a tunnel would have whatever headers it likes.
func passedUpgrades(values []string) []string {
	var passed []string
	for _, v := range values {
		for token := range strings.SplitSeq(v, ",") {
			if token = strings.TrimSpace(token); token != "" && !strings.EqualFold(token, "h2c") {
				passed = append(passed, token)
			}
		}
	}
	return passed
}

// listed are the names that Connection fields list beside the usual ones; nil
// for nearly every request.
func listed(values []string) []string {
	var names []string
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			switch part = strings.TrimSpace(part); {
			case part == "", strings.EqualFold(part, "keep-alive"), strings.EqualFold(part, "close"), strings.EqualFold(part, "upgrade"):
			default:
				names = append(names, http.CanonicalHeaderKey(part))
			}
		}
	}
	return names
}

// ownedByProxy tells whether a request's header never passes as the client
// sent it: it speaks of one connection only, or the proxy writes it itself.
func ownedByProxy(key string) bool {
	switch key {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "Proxy-Authenticate",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings", "Content-Length", "Host", "Expect",
		"Forwarded", "X-Real-Ip", "Cookie":
		return true
	}
	if strings.HasPrefix(key, "X-Forwarded-") {
		return true
	}
	// Servers that turn names into variables cannot tell X_Forwarded_For from
	// X-Forwarded-For.
	return strings.IndexByte(key, '_') >= 0 &&
		ownedByProxy(textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(key, "_", "-")))
}

// HeaderClientIP carries the client's address to the server inside this process.
const HeaderClientIP = "Berth-Client-Ip"

// setByEdge tells whether a request's header is the edge's own word, which no
// field of the client takes away or adds to.
func setByEdge(key string) bool { return key == HeaderClientIP || key == "X-Request-Id" }

// hopByHop tells whether an answer's header speaks of one connection only.
func hopByHop(key string) bool {
	switch key {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// trailerAllowed tells whether a field may stand behind a body: nothing that
// frames, routes or authenticates may.
func trailerAllowed(key string) bool {
	switch key {
	case "Authorization", "Content-Encoding", "Content-Range", "Content-Type", "Cookie", "Set-Cookie", "Max-Forwards",
		"Content-Length", "Host", "Expect", "Forwarded", "X-Real-Ip":
		return false
	}
	return !hopByHop(key) && !ownedByProxy(key) && !setByEdge(key)
}

// ownCookie tells whether a cookie is the host's own, by how it begins: tenants
// neither see nor set those.
func ownCookie(pair string) bool {
	return strings.HasPrefix(pair, "__Host-berth_") || strings.HasPrefix(pair, "berth_")
}

// tenantCookies is a Cookie header as a tenant may see it: one line, without
// the dashboard's cookies.
func tenantCookies(values []string) string {
	joined := strings.Join(values, "; ")
	if !strings.Contains(joined, "berth") {
		return joined
	}
	var kept []string
	for pair := range strings.SplitSeq(joined, ";") {
		if pair = strings.TrimSpace(pair); pair != "" && !ownCookie(pair) {
			kept = append(kept, pair)
		}
	}
	return strings.Join(kept, "; ")
}

// refusedCookie tells whether a Set-Cookie header of a tenant at host stays
// here: it is named like the host's own, or reaches beyond the tenant, to others
// or to the dashboard.
func refusedCookie(value, host string) bool {
	return ownCookie(strings.TrimLeft(value, " \t=")) || widensCookie(value, host)
}

// widensCookie tells whether the Domain of a Set-Cookie header reaches beyond
// host. Of several the last one counts in browsers; here each has to be right.
func widensCookie(value, host string) bool {
	_, attributes, _ := strings.Cut(value, ";")
	for attribute := range strings.SplitSeq(attributes, ";") {
		name, domain, _ := strings.Cut(attribute, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "domain") {
			continue
		}
		domain = strings.ToLower(strings.Trim(strings.TrimSpace(domain), "."))
		if domain != "" && domain != host && strings.HasSuffix(host, "."+domain) {
			return true
		}
	}
	return false
}
