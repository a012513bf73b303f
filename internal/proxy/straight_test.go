package proxy_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/proxy"
)

// seen is what a backend saw of a request.
type seen struct {
	Method, Target, Host, Body string
	Header, Trailer            http.Header
	Length                     int64
	Chunked                    bool
}

// got is what a client saw of an answer.
type got struct {
	Status          int
	Header, Trailer http.Header
	Body, BodyErr   string
	Length          int64
	Interim         []string
}

// ofProxy are headers that differ by design between straight and proxied: the edge gives a
// request its id.
var ofProxy = []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "Date", "Content-Length", "Transfer-Encoding", "Connection", "Trailer", "X-Request-Id"}

func cleaned(h http.Header) http.Header {
	h = h.Clone()
	for _, k := range ofProxy {
		delete(h, k)
	}
	if len(h) == 0 {
		return nil
	}
	return h
}

type exchangeCase struct {
	name    string
	method  string
	target  string
	header  http.Header
	body    func() io.Reader
	length  int64 // of the body if body is not a *bytes.Reader; -1 chunked
	trailer http.Header
	answer  http.HandlerFunc
}

func text(s string) func() io.Reader { return func() io.Reader { return strings.NewReader(s) } }

func chunks(s string) func() io.Reader {
	return func() io.Reader { return io.MultiReader(strings.NewReader(s)) }
}

func plain(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "fine") }

var exchangeCases = []exchangeCase{
	{name: "get", answer: plain},
	{name: "odd target", target: "/a%2Fb//c/../d;x?q=%zz&r=a+b&&", answer: plain},
	{name: "options of a path", method: "OPTIONS", answer: plain},
	{name: "unusual method", method: "PURGE", answer: plain},
	{name: "headers of many values", header: http.Header{"X-Many": {"a", "b"}, "Accept": {"x/y"}}, answer: func(w http.ResponseWriter, r *http.Request) {
		w.Header()["X-Many"] = []string{"1", "2"}
		w.Header()["Set-Cookie"] = []string{"a=1; Path=/", "b=2"}
		plain(w, r)
	}},
	{name: "head with length", method: "HEAD", answer: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "12345")
		w.Header().Set("Content-Type", "image/png")
	}},
	{name: "head without length", method: "HEAD", answer: func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-A", "b") }},
	{name: "no content", answer: func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(204) }},
	{name: "not modified", answer: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"x"`)
		w.WriteHeader(304)
	}},
	{name: "empty answer", answer: func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(200) }},
	{name: "no content type", answer: func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = nil
		io.WriteString(w, "<html>do not guess")
	}},
	{name: "redirect", answer: func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}},
	{name: "error status", answer: func(w http.ResponseWriter, r *http.Request) { http.Error(w, "teapot", http.StatusTeapot) }},
	{name: "large with length", answer: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(3<<20))
		w.Write(bytes.Repeat([]byte("0123456789abcdef"), 3<<20/16))
	}},
	{name: "large chunked", answer: func(w http.ResponseWriter, r *http.Request) {
		for i := range 1000 {
			w.Write(bytes.Repeat([]byte{byte('a' + i%26)}, 1+i*7%5000))
		}
	}},
	{name: "many flushes", answer: func(w http.ResponseWriter, r *http.Request) {
		for i := range 200 {
			fmt.Fprintf(w, "%d\n", i)
			w.(http.Flusher).Flush()
		}
	}},
	{name: "large header", answer: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("x", 60_000))
		plain(w, r)
	}},
	{name: "announced trailers", answer: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum, X-Count")
		plain(w, r)
		w.Header().Set("X-Sum", "abc")
		w.Header().Set("X-Count", "4")
	}},
	{name: "unannounced trailers", answer: func(w http.ResponseWriter, r *http.Request) {
		plain(w, r)
		w.(http.Flusher).Flush()
		w.Header().Set(http.TrailerPrefix+"X-Late", "yes")
	}},
	{name: "early hints", answer: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(103)
		w.Header().Del("Link")
		plain(w, r)
	}},
	{name: "post with length", method: "POST", body: text("hello"), answer: plain},
	{name: "post empty", method: "POST", body: func() io.Reader { return http.NoBody }, answer: plain},
	{name: "post chunked", method: "POST", body: chunks("hello"), length: -1, answer: plain},
	{name: "put large", method: "PUT", body: text(strings.Repeat("abc", 1<<20)), answer: plain},
	{name: "get with body", method: "GET", body: text("odd but legal"), answer: plain},
	{name: "request trailers", method: "POST", body: chunks("hello"), length: -1, trailer: http.Header{"X-Md5": {"1b2"}}, answer: plain},
	{name: "expect continue", method: "POST", body: text("patient"), header: http.Header{"Expect": {"100-continue"}}, answer: plain},
	{name: "expect refused", method: "POST", body: text("never sent"), header: http.Header{"Expect": {"100-continue"}}, answer: func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "no", http.StatusExpectationFailed)
	}},
	{name: "breaks off with length", answer: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}},
	{name: "breaks off chunked", answer: func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}},
	{name: "te trailers", header: http.Header{"Te": {"trailers"}}, answer: plain},
}

// TestProxy_IsAsStraightToTheBackend sends every request to a backend and
// through the proxy, and compares what either side saw.
func TestProxy_IsAsStraightToTheBackend(t *testing.T) {
	for _, c := range exchangeCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			requests := make(chan seen, 4)
			backend := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				s := seen{Method: r.Method, Target: r.RequestURI, Host: r.Host, Header: cleaned(r.Header), Length: r.ContentLength, Chunked: r.TransferEncoding != nil}
				if c.name != "expect refused" {
					b, _ := io.ReadAll(r.Body)
					s.Body, s.Trailer = string(b), r.Trailer
				}
				requests <- s
				c.answer(w, r)
			}))
			front := newFront(t, backend, proxy.Options{})
			wantAnswer, wantSeen := c.run(t, backend), within(t, "straight", requests)
			gotAnswer, gotSeen := c.run(t, front.addr), within(t, "proxied", requests)
			if d := cmp.Diff(wantSeen, gotSeen); d != "" {
				t.Errorf("the backend saw (-straight +proxied):\n%s", d)
			}
			if d := cmp.Diff(wantAnswer, gotAnswer); d != "" {
				t.Errorf("the client saw (-straight +proxied):\n%s", d)
			}
		})
	}
}

func (c exchangeCase) run(t *testing.T, addr string) got {
	var body io.Reader
	if c.body != nil {
		body = c.body()
	}
	target := c.target
	if target == "" {
		target = "/path?q=1"
	}
	r := request(t, or(c.method, "GET"), addr, "/", body)
	r.URL.Opaque = target
	if c.length != 0 {
		r.ContentLength = c.length
	}
	maps.Copy(r.Header, c.header)
	r.Trailer = c.trailer.Clone()
	var g got
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if code != 100 {
				g.Interim = append(g.Interim, fmt.Sprint(code, h.Get("Link")))
			}
			return nil
		},
	}))
	res, err := newClient(t).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		g.BodyErr = err.Error()
	}
	g.Status, g.Header, g.Trailer, g.Body, g.Length = res.StatusCode, cleaned(res.Header), cleaned(res.Trailer), string(b), res.ContentLength
	if len(b) < 4096 && g.BodyErr == "" && c.method != "HEAD" {
		g.Length = 0 // a small chunked answer may get a length on the way
	}
	return g
}

func or(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}
