package site

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"strconv"
	"strings"
	"testing"

	"github.com/berth-host/berth/internal/wire"
)

// plain returns a request as one that was read without net/http.
func plain(r *http.Request) *wire.Request {
	p := &wire.Request{Method: r.Method, Target: r.RequestURI, Host: r.Host, Major: 1, Minor: 1, Length: r.ContentLength}
	for key, values := range r.Header {
		for _, v := range values {
			p.Fields = append(p.Fields, wire.Field{Key: key, Value: v})
		}
	}
	return p
}

// sent returns what a client gets of an answer that is ready.
func sent(a wire.Ready, method string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	fields, err := textproto.NewReader(bufio.NewReader(io.MultiReader(bytes.NewReader(a.Head), strings.NewReader("\r\n")))).ReadMIMEHeader()
	if err != nil {
		panic(err)
	}
	for key, values := range fields {
		w.Header()[key] = values
	}
	if a.Length >= 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(a.Length, 10))
	}
	w.WriteHeader(a.Status)
	if a.File != nil {
		defer a.File.Close()
		if _, err := io.Copy(w, a.File); err != nil {
			panic(err)
		}
	}
	w.Write(a.Body)
	if method == http.MethodHead && w.Body.Len() > 0 {
		panic("a body for HEAD")
	}
	return w
}

func describe(w *httptest.ResponseRecorder) string {
	var out strings.Builder
	fmt.Fprintln(&out, w.Code)
	w.Result().Header.Write(&out)
	fmt.Fprintf(&out, "%d bytes, %.200x", w.Body.Len(), w.Body.Bytes())
	return out.String()
}

// What an answer is ready for. That it is the same as that of ServeHTTP is checked by do, in all
// tests of this package.
func TestReady_IsThereForWholeFiles(t *testing.T) {
	files := map[string]string{
		"index.html": "index", "app.js": string(script(8 << 10)), "logo.png": "png", "guide/index.html": "guide", "404.html": "missing",
		"video.mp4": strings.Repeat("x", maxResident+1), "a b.txt": "spaced",
	}
	site := serve(t, Options{SPA: "false"}, files)
	single := serve(t, Options{}, map[string]string{"index.html": "app", "app.js": "js"})
	for _, tt := range []struct {
		site *Site
		r    *http.Request
		want int // 0: it is for ServeHTTP
	}{
		{site, get("/"), 200},
		{site, get("/?a=b#c"), 200},
		{site, get("/app.js", "Accept-Encoding", "gzip"), 200},
		{site, get("/app.js"), 200},
		{site, get("/guide/"), 200},
		{site, get("/a%20b.txt"), 200},
		{site, get("/video.mp4"), 200},
		{site, request("HEAD", "/video.mp4"), 200},
		{site, request("HEAD", "/"), 200},
		{site, get("/", "If-None-Match", "*"), 304},
		{site, get("/video.mp4", "If-Modified-Since", "Fri, 31 Dec 9999 23:59:59 GMT"), 304},
		{site, get("/none"), 404},
		{single, get("/some/page", "Accept", "text/html"), 200},
		{single, get("/some/page", "Accept", "text/html", "If-None-Match", "*"), 304},

		{site, get("/guide"), 0},
		{site, get("/", "Range", "bytes=0-1"), 0},
		{site, get("/", "If-Match", "*"), 0},
		{site, get("/", "If-Unmodified-Since", "Fri, 31 Dec 1999 23:59:59 GMT"), 0},
		{site, request("POST", "/"), 0},
		{site, request("OPTIONS", "/"), 0},
		{single, get("/some/page", "Accept", "image/png"), 0},
		{single, get("/none.js"), 0},
	} {
		for range 2 { // the second time the head is there
			a, ok := tt.site.Ready(plain(tt.r), tt.r.RequestURI)
			if a.File != nil {
				a.File.Close()
			}
			if ok != (tt.want != 0) || a.Status != tt.want && ok {
				t.Errorf("%s %s %v: ready with %d, %t; want %d", tt.r.Method, tt.r.RequestURI, tt.r.Header, a.Status, ok, tt.want)
			}
		}
		do(tt.site, tt.r)
	}
	if _, ok := site.Ready(&wire.Request{Method: "GET", Length: 3}, "/"); ok {
		t.Error("a request with a body is answered without it")
	}
	if _, ok := site.Ready(&wire.Request{Method: "OPTIONS"}, "*"); ok {
		t.Error("a request of no path has an answer")
	}
}
