package site

import (
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
)

// route is the meaning of a URL path.
type route struct {
	file  *file // nil: nothing
	moved bool  // the page is at the same path with the last slash added or taken away
	page  bool  // there is a page of this path and .html: with a slash at its end it has moved here
}

// routesOf returns the URL paths of a site, the more literal reading first: a file, a
// folder's index.html, a page without its .html, and a folder without its slash. Each
// key is a part of a file's own path and so takes no memory. A page with a slash would
// not be one: its route records it, and at finds it.
func routesOf(files map[string]*file) map[string]route {
	routes := make(map[string]route, len(files))
	for name, f := range files {
		routes[name] = route{file: f}
		if dir, base := path.Split(name); base == "index.html" {
			routes[dir] = route{file: f}
		}
	}
	for name, f := range files {
		if page, ok := strings.CutSuffix(name, ".html"); ok && path.Base(name) != "index.html" && path.Base(name) != ".html" {
			r, taken := routes[page]
			if !taken {
				r.file = f
			}
			r.page = true
			routes[page] = r
		}
	}
	for name, f := range files {
		dir, base := path.Split(name)
		key := strings.TrimSuffix(dir, "/")
		if _, taken := routes[key]; !taken && base == "index.html" {
			routes[key] = route{file: f, moved: true}
		}
	}
	return routes
}

// at returns the route of a key, the zero route if there is none.
func (s *Site) at(key string) route {
	if r, ok := s.routes[key]; ok {
		return r
	}
	if page, ok := strings.CutSuffix(key, "/"); ok {
		if r := s.routes[page]; r.page {
			return route{file: r.file, moved: true}
		}
	}
	return route{}
}

// find looks up a decoded URL path. It returns its route and its key, without the
// leading slash; for a page that has moved, the key to redirect to, which never starts
// with a slash, since that would name another host.
func (s *Site) find(urlPath string) (route, string) {
	key := strings.TrimPrefix(urlPath, "/")
	if r := s.at(key); r.file != nil {
		return r, destination(r, key)
	}
	if len(key) > maxPath {
		return route{}, key
	}
	single := squeeze(key)
	r := s.at(s.follow(single))
	to := destination(r, single)
	if single != key {
		r.moved = true
	}
	return r, to
}

// destination returns where a client should go for what it found at key.
func destination(r route, key string) string {
	switch {
	case !r.moved:
		return key
	case strings.HasSuffix(key, "/"):
		return strings.TrimSuffix(key, "/")
	default:
		return key + "/"
	}
}

// follow replaces symlinked folders in key by their targets; key has no two slashes in
// a row and none at its start. A target contains no links, so each step uses up one
// element of key and circles end.
func (s *Site) follow(key string) string {
	if len(s.links) == 0 {
		return key
	}
	at, rest := "", key
	for {
		element, tail, more := strings.Cut(rest, "/")
		if at != "" {
			element = at + "/" + element
		}
		if target, ok := s.links[element]; ok {
			element = target
		}
		if !more {
			return element
		}
		at, rest = element, tail
	}
}

// squeeze replaces several slashes by one, and removes those at the start.
func squeeze(key string) string {
	key = strings.TrimLeft(key, "/")
	for strings.Contains(key, "//") {
		key = strings.ReplaceAll(key, "//", "/")
	}
	return key
}

// prefixOf returns what the proxy has removed from the request's path; "" for nothing.
func prefixOf(r *http.Request) string { return r.Header.Get("X-Forwarded-Prefix") }

// isBare reports whether the path of a request is its prefix, without a slash. Relative links of
// a page there would lead out of it.
func isBare(r *http.Request) bool { return r.URL.Path == "" && prefixOf(r) != "" }

// redirect sends the client to key on the same host, below the prefix that the proxy has
// removed from the request's path, if any. The redirect is not cached: the next generation
// may have other pages.
func redirect(w http.ResponseWriter, r *http.Request, key string) {
	to := url.URL{Path: "/" + key, RawQuery: r.URL.RawQuery}
	h := w.Header()
	h["Location"] = []string{prefixOf(r) + to.String()}
	h["Cache-Control"] = lifetimePage
	h["Content-Length"] = []string{"0"}
	w.WriteHeader(http.StatusMovedPermanently)
}

// isSPA applies the manifest's setting to the files of the site.
func isSPA(word string, files map[string]*file) (bool, error) {
	switch word {
	case "true":
		return true, nil
	case "false":
		return false, nil
	case "auto", "":
		return onlyIndex(files), nil
	default:
		return false, fmt.Errorf("spa is %q, must be auto, true or false", word)
	}
}

// onlyIndex reports whether index.html is the only page.
func onlyIndex(files map[string]*file) bool {
	for name, f := range files {
		if f.kind.page && name != "index.html" {
			return false
		}
	}
	return files["index.html"] != nil
}

// isPagePath reports whether a path without a file may be a view of a single page
// application: nothing in it is hidden or malformed, and the last element is not the
// name of an asset.
func isPagePath(key string) bool {
	if len(key) > maxPath || strings.ContainsFunc(key, isHostile) {
		return false
	}
	for element := range strings.SplitSeq(key, "/") {
		if strings.HasPrefix(element, ".") {
			return false
		}
	}
	kind, known := kinds[extension(key)]
	return !known || kind.page
}

// isNavigation reports whether a client wants a page to show. Browsers say what a
// request is for; for other clients the Accept header decides.
func isNavigation(r fields) bool {
	if mode := r.Values("Sec-Fetch-Mode"); len(mode) > 0 && mode[0] != "" && mode[0] != "navigate" {
		return false
	}
	accept := r.Values("Accept")
	return len(accept) == 0 || mentions(accept, "text/html") || mentions(accept, "text/*") || mentions(accept, "*/*")
}
