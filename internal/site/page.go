package site

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
)

// pageText is an answer without a file, for people.
const pageText = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>%[1]d %[2]s</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:32rem;margin:20vh auto 0;padding:0 1.5rem;color-scheme:light dark}h1{font-size:1.25rem}</style>
<h1>%[1]d %[2]s</h1>
<p>%[3]s</p>
</html>
`

var varyAccept = []string{"Accept"}

// sendPage answers without a file: a page for a browser, JSON for the rest.
func sendPage(w http.ResponseWriter, r *http.Request, status int, detail string) {
	h := w.Header()
	for _, name := range []string{"Etag", "Last-Modified", "Accept-Ranges", "Content-Encoding", "Content-Length"} {
		delete(h, name)
	}
	h["Cache-Control"] = lifetimePage
	if h["Vary"] == nil {
		h["Vary"] = varyAccept
	}
	var body []byte
	if mentions(r.Header["Accept"], "text/html") {
		h["Content-Type"] = kinds[".html"].contentType
		body = fmt.Appendf(nil, pageText, status, http.StatusText(status), html.EscapeString(detail))
	} else {
		h["Content-Type"] = kinds[".json"].contentType
		body, _ = json.Marshal(map[string]string{"detail": detail}) // a string always encodes
	}
	h["Content-Length"] = decimal(int64(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		w.Write(body) // fails only when the client has left
	}
}
