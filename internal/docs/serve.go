package docs

import (
	"net/http"
	"strconv"
)

// Has reports whether a path always serves a document; / serves one only to clients
// that do not accept HTML.
func (d *Documents) Has(path string) bool {
	_, ok := d.pages[path]
	return ok && path != "/"
}

// Links holds the values of the front page's Link header, which point to the documents.
var Links = []string{
	`</openapi.json>; rel="service-desc"; type="application/json"`,
	`</docs>; rel="service-doc"; type="text/html"`,
	`</llms.txt>; rel="service-doc"; type="text/plain"`,
	`</schema/stack.json>; rel="describedby"; type="application/schema+json"`,
}

// ServeHTTP serves a document. Pages of any origin may read it, because nothing in it
// is private.
func (d *Documents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p, ok := d.pages[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		h.Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusMethodNotAllowed)
		_, _ = w.Write([]byte(`{"detail":"` + r.URL.Path + ` is read-only; request it with GET"}`)) // one of our own paths
		return
	}
	if r.URL.Path == "/" {
		h["Link"] = Links
		h.Set("Vary", "Accept")
	}
	h.Set("Content-Type", p.contentType)
	h.Set("Content-Length", strconv.Itoa(len(p.content)))
	h.Set("Cache-Control", "public, max-age=300")
	h.Set("X-Content-Type-Options", "nosniff")
	if r.Method == http.MethodGet {
		_, _ = w.Write(p.content)
	}
}
