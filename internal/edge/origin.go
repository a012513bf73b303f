package edge

import (
	"net/http"
	"path"
	"strings"
)

// crossOrigin returns why a request for the base URL's host is refused, nil when
// it is not: it was sent by a page of another origin to a page of ours. A
// tenant's page is same-site with the dashboard, so SameSite cookies alone
// would come along.
//
// Browsers say where a request comes from in Sec-Fetch-Site, but over plain http
// to names other than localhost they do not, and a page without a referrer then
// has the origin "null". Such a request passes: that it comes from a page of
// ours is for the form's own token to show.
func crossOrigin(r *http.Request, proto string) error {
	if byToken(r.URL.Path, r.URL.RawPath) {
		return nil
	}
	if proto == "http" && r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == "null" {
		return nil
	}
	return protection.Check(r)
}

var protection http.CrossOriginProtection

// byToken reports whether a path is one that no cookie opens: whoever asks for it
// shows a token, or may be anybody. The server behind the edge decodes and
// cleans paths, so one that this would change is not.
func byToken(p, raw string) bool {
	if raw != "" || path.Clean(p) != p {
		return false
	}
	return strings.HasPrefix(p, "/v0/") || p == "/healthz" || p == "/mcp"
}
