package edge

import (
	"net/http"
	"path"
	"strings"
)

// crossOrigin returns why a request for the base URL's host is refused because a page
// of another origin sent it to a page of ours; nil if it is not refused. A tenant's
// page is same-site with the dashboard, so SameSite cookies alone would come along.
//
// Browsers say where a request comes from in Sec-Fetch-Site, but not over plain http to
// names other than localhost, and a page without a referrer then has the origin "null".
// Such a request passes: the form's token has to show that it comes from a page of
// ours.
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

// byToken reports whether a path is one that no cookie opens: the caller shows a token,
// or may be anybody. The server behind the edge decodes and cleans paths, so byToken
// returns false for a path that this would change.
func byToken(p, raw string) bool {
	if raw != "" || path.Clean(p) != p {
		return false
	}
	return strings.HasPrefix(p, "/v0/") || p == "/healthz" || p == "/mcp"
}
