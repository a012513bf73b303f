package proxy

import (
	"net/http"
	"net/url"
	"strings"
)

// Path leads the requests below a path of a service's hosts to another service of the
// stack.
type Path struct {
	Prefix string // decoded, one segment or more, as in /api/v2
	Host   string // of the other service, in Entry.Hosts
	Strip  bool   // the service gets the request without the prefix
}

// segment is a part of a request's path between two slashes.
type segment struct {
	sent    string // as the caller wrote it
	decoded string
}

// follow returns where a request for a target goes that has come to p, and with which
// target: to p itself, or where the longest of its paths leads. If that strips its prefix,
// the target is without it, and the prefix is returned escaped.
func (p place) follow(asked string) (_ place, target, prefix string) {
	if len(p.service.Paths) == 0 {
		return p, asked, ""
	}
	way, query, asks := strings.Cut(asked, "?")
	if asks {
		query = "?" + query
	}
	segments := segmentsOf(way)
	var best *Path
	for i := range p.service.Paths {
		path := &p.service.Paths[i]
		if path.matches(segments) && (best == nil || len(path.Prefix) > len(best.Prefix)) {
			best = path
		}
	}
	if best == nil {
		return p, asked, ""
	}
	p.service, p.known = p.entry.Hosts[best.Host]
	if !best.Strip {
		return p, asked, ""
	}
	rest := segments[strings.Count(best.Prefix, "/"):]
	if len(rest) == 0 && p.service.Target.isHandler() {
		return p, query, best.escaped() // the path "": a site leads on to the prefix with a slash
	}
	return p, join(rest) + query, best.escaped()
}

// matches reports whether a path begins with the prefix, segment by segment.
func (path *Path) matches(segments []segment) bool {
	for want := range strings.SplitSeq(path.Prefix[1:], "/") {
		if len(segments) == 0 || segments[0].decoded != want {
			return false
		}
		segments = segments[1:]
	}
	return true
}

// escaped returns the prefix as the path of a URL.
func (path *Path) escaped() string { return (&url.URL{Path: path.Prefix}).EscapedPath() }

// segmentsOf splits the path of a request and resolves its segments of dots, escaped or
// not (RFC 3986, 5.2.4): a path must not begin with a prefix only to leave it again. An
// escaped slash separates nothing.
func segmentsOf(way string) []segment {
	rest, absolute := strings.CutPrefix(way, "/")
	if !absolute {
		return nil // OPTIONS *
	}
	var segments []segment
	last := "" // decoded
	for sent := range strings.SplitSeq(rest, "/") {
		decoded, err := url.PathUnescape(sent)
		if err != nil {
			decoded = sent // net/http refuses such a request
		}
		switch last = decoded; decoded {
		case ".":
		case "..":
			segments = segments[:max(len(segments)-1, 0)]
		default:
			segments = append(segments, segment{sent, decoded})
		}
	}
	if last == "." || last == ".." {
		segments = append(segments, segment{}) // it names a folder
	}
	return segments
}

// join returns the path of segments. It does not begin with two slashes, which a program
// could take for the name of another host.
func join(segments []segment) string {
	for len(segments) > 1 && segments[0].sent == "" {
		segments = segments[1:]
	}
	var b strings.Builder
	for _, s := range segments {
		b.WriteByte('/')
		b.WriteString(s.sent)
	}
	if b.Len() == 0 {
		return "/"
	}
	return b.String()
}

// withTarget returns a request like r with another target, for a path that strips.
func withTarget(r *http.Request, target string) *http.Request {
	to := *r
	to.RequestURI = target
	if query, bare := strings.CutPrefix(target, "?"); bare || target == "" {
		to.URL = &url.URL{RawQuery: query}
	} else if u, err := url.ParseRequestURI(target); err == nil { // a part of a target that was parsed
		to.URL = u
	}
	return &to
}
