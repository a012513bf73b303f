package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// observer is a service that reports which requests reached it, except those of the
// health check.
var observer = Tree{"server.js": `
const seen = [];
require('http').createServer((req, res) => {
  if (req.url === '/seen') return res.end(JSON.stringify(seen.splice(0)));
  let body = '';
  req.on('data', (d) => { body += d; });
  req.on('end', () => {
    if (req.url !== '/') seen.push({ line: req.method + ' ' + req.url, headers: req.headers, trailers: req.trailers, body });
    res.end('ok');
  });
}).listen(process.env.PORT);`}

// testimony is one request as the observer received it.
type testimony struct {
	Line     string
	Headers  map[string]string
	Trailers map[string]string
	Body     string
}

func (h *Host) seen(t *testing.T, st *Stack) []testimony {
	t.Helper()
	var seen []testimony
	require.NoError(t, json.Unmarshal([]byte(h.get(t, st.url("web", "/seen")).body), &seen))
	return seen
}

// talk sends bytes over one connection, a last request after them, and returns
// the status of every answer until the server closes.
func (h *Host) talk(t *testing.T, bytes, host string) []int {
	t.Helper()
	conn := h.dial(t)
	go func() {
		_, _ = io.WriteString(conn, bytes+"GET /last HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
	}()
	var statuses []int
	for in := bufio.NewReader(conn); ; {
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			return statuses
		}
		statuses = append(statuses, res.StatusCode)
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			return statuses
		}
	}
}

// shape is a request on the wire, with @ for the host's name, and its expected result:
// the requests that the service gets, with their bodies, or the status with which the
// edge refuses it.
type shape struct {
	bytes   string
	reaches []string
	refused int
}

var shapes = map[string]shape{
	"plain":                     {"POST /a HTTP/1.1\r\nHost: @\r\nContent-Length: 3\r\n\r\nabc", []string{"POST /a abc"}, 0},
	"length and chunks":         {"POST /a HTTP/1.1\r\nHost: @\r\nContent-Length: 30\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", []string{"POST /a abc"}, 0},
	"chunks and length":         {"POST /a HTTP/1.1\r\nHost: @\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n3\r\nabc\r\n0\r\n\r\n", []string{"POST /a abc"}, 0},
	"HTTP/1.0 with both":        {"POST /a HTTP/1.0\r\nHost: @\r\nConnection: keep-alive\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", nil, 400},
	"HTTP/1.0 with chunks":      {"POST /a HTTP/1.0\r\nHost: @\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", nil, 400},
	"the same length twice":     {"POST /a HTTP/1.1\r\nHost: @\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", []string{"POST /a abc"}, 0},
	"two lengths":               {"POST /a HTTP/1.1\r\nHost: @\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nabcde", nil, 400},
	"two lengths in one":        {"POST /a HTTP/1.1\r\nHost: @\r\nContent-Length: 3, 5\r\n\r\nabcde", nil, 400},
	"a signed length":           {"POST /a HTTP/1.1\r\nHost: @\r\nContent-Length: +3\r\n\r\nabc", nil, 400},
	"a negative length":         {"POST /a HTTP/1.1\r\nHost: @\r\nContent-Length: -3\r\n\r\nabc", nil, 400},
	"a hexadecimal length":      {"POST /a HTTP/1.1\r\nHost: @\r\nContent-Length: 0x3\r\n\r\nabc", nil, 400},
	"a length beyond 64 bits":   {"POST /a HTTP/1.1\r\nHost: @\r\nContent-Length: 18446744073709551619\r\n\r\nabc", nil, 400},
	"a length before a colon":   {"POST /a HTTP/1.1\r\nHost: @\r\nContent-Length : 3\r\n\r\nabc", nil, 400},
	"chunked twice":             {"POST /a HTTP/1.1\r\nHost: @\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", nil, 501},
	"chunked in two lines":      {"POST /a HTTP/1.1\r\nHost: @\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", nil, 501},
	"nearly chunked":            {"POST /a HTTP/1.1\r\nHost: @\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", nil, 501},
	"chunked behind a tab":      {"POST /a HTTP/1.1\r\nHost: @\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", nil, 400},
	"chunked before a colon":    {"POST /a HTTP/1.1\r\nHost: @\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n", nil, 400},
	"identity":                  {"POST /a HTTP/1.1\r\nHost: @\r\nTransfer-Encoding: identity\r\nContent-Length: 3\r\n\r\nabc", nil, 501},
	"an extension of a chunk":   {"POST /a HTTP/1.1\r\nHost: @\r\nTransfer-Encoding: chunked\r\n\r\n3;x=\"y\"\r\nabc\r\n0;z\r\n\r\n", []string{"POST /a abc"}, 0},
	"a chunk larger than all":   {"POST /a HTTP/1.1\r\nHost: @\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\nabc\r\n0\r\n\r\n", nil, 400},
	"a chunk with a sign":       {"POST /a HTTP/1.1\r\nHost: @\r\nTransfer-Encoding: chunked\r\n\r\n+3\r\nabc\r\n0\r\n\r\n", nil, 400},
	"a chunk that is too long":  {"POST /a HTTP/1.1\r\nHost: @\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n", nil, 400},
	"chunks that end in LF":     {"POST /a HTTP/1.1\r\nHost: @\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\n0\n\n", nil, 400},
	"trailers that frame":       {"POST /a HTTP/1.1\r\nHost: @\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n3\r\nabc\r\n0\r\nContent-Length: 9\r\nX-Forwarded-For: 6.6.6.6\r\nHost: x\r\nX-T: y\r\n\r\n", []string{"POST /a abc"}, 0},
	"a folded header":           {"GET /a HTTP/1.1\r\nHost: @\r\nX-A: one\r\n two\r\n\r\n", []string{"GET /a "}, 0},
	"a header that starts so":   {"GET /a HTTP/1.1\r\n Host: @\r\nHost: @\r\n\r\n", nil, 400},
	"lines that end in LF":      {"GET /a HTTP/1.1\nHost: @\nX-A: b\n\n", []string{"GET /a "}, 0},
	"a CR in a header":          {"GET /a HTTP/1.1\r\nHost: @\r\nX-A: one\rX-B: two\r\n\r\n", nil, 400},
	"a NUL in a header":         {"GET /a HTTP/1.1\r\nHost: @\r\nX-A: one\x00two\r\n\r\n", nil, 400},
	"a NUL in a header's name":  {"GET /a HTTP/1.1\r\nHost: @\r\nX\x00A: one\r\n\r\n", nil, 400},
	"a NUL in the target":       {"GET /a\x00b HTTP/1.1\r\nHost: @\r\n\r\n", nil, 400},
	"an escape in the target":   {"GET /\x1b[2J HTTP/1.1\r\nHost: @\r\n\r\n", nil, 400},
	"a space in the target":     {"GET /a b HTTP/1.1\r\nHost: @\r\n\r\n", nil, 400},
	"an invalid method":         {"GE(T /a HTTP/1.1\r\nHost: @\r\n\r\n", nil, 400},
	"two hosts":                 {"GET /a HTTP/1.1\r\nHost: @\r\nHost: localhost\r\n\r\n", nil, 400},
	"the same host twice":       {"GET /a HTTP/1.1\r\nHost: @\r\nHost: @\r\n\r\n", nil, 400},
	"a host with a path":        {"GET /a HTTP/1.1\r\nHost: @/x\r\n\r\n", nil, 400},
	"a host with a user":        {"GET /a HTTP/1.1\r\nHost: x@@\r\n\r\n", nil, 400},
	"a whole URL":               {"GET http://@/a HTTP/1.1\r\nHost: localhost\r\n\r\n", []string{"GET /a "}, 0},
	"a whole URL of another":    {"GET http://example.com/a HTTP/1.1\r\nHost: @\r\n\r\n", nil, 400},
	"a URL within a URL":        {"GET x:http://evil.example/a HTTP/1.1\r\nHost: @\r\n\r\n", nil, 400},
	"a URL without its scheme":  {"GET @/a HTTP/1.1\r\nHost: @\r\n\r\n", nil, 400},
	"an opaque URL":             {"GET x:a HTTP/1.1\r\nHost: @\r\n\r\n", nil, 400},
	"a URL of no host":          {"GET http:/a HTTP/1.1\r\nHost: @\r\n\r\n", nil, 400},
	"a URL of an empty host":    {"GET http:///a HTTP/1.1\r\nHost: @\r\n\r\n", nil, 400},
	"a star":                    {"GET * HTTP/1.1\r\nHost: @\r\n\r\n", nil, 400},
	"a host behind the port":    {"GET /a HTTP/1.1\r\nHost: localhost:80.@\r\n\r\n", nil, 400},
	"a host in brackets":        {"GET /a HTTP/1.1\r\nHost: [localhost]\r\n\r\n", nil, 400},
	"a port that is a word":     {"GET /a HTTP/1.1\r\nHost: localhost:x\r\n\r\n", nil, 400},
	"a port below zero":         {"GET /a HTTP/1.1\r\nHost: localhost:-1\r\n\r\n", nil, 400},
	"a tunnel":                  {"CONNECT @:80 HTTP/1.1\r\nHost: @\r\n\r\n", nil, 400},
	"what HTTP/2 begins with":   {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", nil, 400},
	"a version to come":         {"GET /a HTTP/9.9\r\nHost: @\r\n\r\n", nil, 505},
	"encoded slashes and dots":  {"GET /a%2f..%2f%2e%2e/../b/./c//d HTTP/1.1\r\nHost: @\r\n\r\n", []string{"GET /a%2f..%2f%2e%2e/../b/./c//d "}, 0},
	"encoded control bytes":     {"GET /%00%0d%0aX-A:%20b HTTP/1.1\r\nHost: @\r\n\r\n", []string{"GET /%00%0d%0aX-A:%20b "}, 0},
	"an invalid encoding":       {"GET /%zz HTTP/1.1\r\nHost: @\r\n\r\n", nil, 400},
	"two slashes at the start":  {"GET //example.com/a HTTP/1.1\r\nHost: @\r\n\r\n", []string{"GET //example.com/a "}, 0},
	"headers that are listed":   {"GET /a HTTP/1.1\r\nHost: @\r\nConnection: keep-alive, X-Forwarded-For, Host, X-A\r\nX-A: b\r\n\r\n", []string{"GET /a "}, 0},
	"a body that is a request":  {"POST /a HTTP/1.1\r\nHost: @\r\nContent-Length: 39\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.b.c\r\n\r\n", []string{"POST /a GET /smuggled HTTP/1.1\r\nHost: a.b.c\r\n\r\n"}, 0},
	"trailing data":             {"POST /a HTTP/1.1\r\nHost: @\r\nContent-Length: 3\r\n\r\nabcnonsense\r\n\r\n", []string{"POST /a abc"}, 400},
	"headers larger than ours":  {"GET /a HTTP/1.1\r\nHost: @\r\nX-A: " + strings.Repeat("x", 100_000) + "\r\n\r\n", nil, 431},
	"a target larger than ours": {"GET /" + strings.Repeat("x", 100_000) + " HTTP/1.1\r\nHost: @\r\n\r\n", nil, 431},
}

// However a request is shaped on the wire, the service gets what the edge
// understood, in a shape of the edge's own, or nothing; and what follows on the
// connection is answered in step, or the connection is closed.
func TestHostile_RequestShapes(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, observer, manifest("services: [{name: web, runtime: node, start: node server.js}]"))
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		c := shapes[name]
		t.Run(name, func(t *testing.T) {
			statuses := h.talk(t, strings.ReplaceAll(c.bytes, "@", st.host("web")), st.host("web"))
			var reached []string
			for _, got := range h.seen(t, st) {
				if got.Line == "GET /last" {
					continue
				}
				reached = append(reached, got.Line+" "+got.Body)
				require.Equal(t, "127.0.0.1", got.Headers["x-forwarded-for"])
				require.Equal(t, st.host("web"), got.Headers["host"])
				require.False(t, got.Headers["content-length"] != "" && got.Headers["transfer-encoding"] != "", "%v", got.Headers)
				require.Subset(t, []string{"x-t"}, slices.Collect(maps.Keys(got.Trailers)))
				if name == "headers that are listed" {
					require.NotContains(t, got.Headers, "x-a")
				}
			}
			if c.refused == 0 {
				require.Equal(t, c.reaches, reached)
				if name == "length and chunks" || name == "chunks and length" {
					require.Equal(t, []int{200}, statuses)
					return
				}
				require.Equal(t, []int{200, 200}, statuses)
				return
			}
			require.Equal(t, c.refused, statuses[len(c.reaches)], "%v", statuses)
			if len(reached) > len(c.reaches) { // its head went out before its body was seen to be wrong
				t.Errorf("the service got %q", reached)
			}
		})
	}
}

// At the API the same shapes are refused in JSON, or answered as they mean.
func TestHostile_RequestShapesAtTheAPI(t *testing.T) {
	t.Parallel()
	h := start(t)
	host := strings.TrimPrefix(h.base(), "http://")
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		c := shapes[name]
		t.Run(name, func(t *testing.T) {
			r := h.raw(t, strings.ReplaceAll(c.bytes, "@", host))
			require.GreaterOrEqual(t, r.status, 400)
			require.Empty(t, orders(r.detail(t)))
		})
	}
	require.JSONEq(t, `{"ok": true}`, h.get(t, "/healthz").body)
}

// A path leads into a static site or nowhere: not to another folder, and not to
// another host.
func TestHostile_PathsOfAStaticSite(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, page("home").plus(Tree{"docs/index.html": "docs"}), manifest("services: [{name: web, runtime: static, spa: false}]"))
	for _, path := range []string{
		"/../../../../etc/passwd", "/..%2f..%2f..%2fetc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/docs/../../etc/passwd", "/..\\..\\etc\\passwd",
		"/%00", "/index.html%00.txt", "/%0d%0aX-A:%20b", "//example.com/%2e%2e", "//example.com/docs", "/\\example.com/docs", "/docs%2f..%2f..%2fetc",
		"/.", "/..", "/%2e", "/docs/%2e%2e%2f%2e%2e%2fberth.db", "/" + strings.Repeat("a/", 5000), "/" + strings.Repeat("%2e%2e/", 1000),
	} {
		r := h.raw(t, "GET "+path+" HTTP/1.1\r\nHost: "+st.host("web")+"\r\nConnection: close\r\n\r\n")
		require.NotContains(t, r.body, "root:", path)
		require.Contains(t, []int{200, 301, 400, 404}, r.status, path)
		require.Empty(t, r.header.Get("X-A"), path)
		if to := r.header.Get("Location"); to != "" {
			require.Regexp(t, `^/([^/\\]|$)`, to, path)
		}
		if r.status == http.StatusOK {
			require.Contains(t, []string{"home", "docs"}, r.body, path)
		}
	}
}

// A service gets the headers in which the host describes the client; a client gets no
// header that describes the host.
func TestHostile_HeadersOfTheHostStayInside(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, observer.plus(Tree{"site/index.html": "x"}), manifest(`services:
  - {name: web, runtime: node, start: node server.js}
  - {name: site, runtime: static, publish: site}`))
	h.seen(t, st)
	r := h.get(t, st.url("web", "/a"), "Berth-Client-Ip", "6.6.6.6", "Berth_Client_Ip", "6.6.6.6", "X-Forwarded-For", "6.6.6.6", "X_Forwarded_For", "6.6.6.6",
		"X-Forwarded-Prefix", "/x", "Forwarded", "for=6.6.6.6", "X-Real-Ip", "6.6.6.6", "Cookie", "a=b; __Host-berth_session=secret", "User-Agent", "test")
	require.Equal(t, http.StatusOK, r.status)
	got := h.seen(t, st)
	require.Len(t, got, 1)
	require.Equal(t, []string{"cookie", "host", "user-agent", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "x-request-id"},
		slices.DeleteFunc(slices.Sorted(maps.Keys(got[0].Headers)), func(name string) bool { return name == "connection" || name == "berth_client_ip" }))
	for _, value := range []string{"x-forwarded-for", "x-real-ip"} {
		require.Equal(t, "127.0.0.1", got[0].Headers[value])
	}
	require.Equal(t, "a=b", got[0].Headers["cookie"])

	for name, r := range map[string]Reply{
		"a service":         r,
		"a site":            h.get(t, st.url("site", "/")),
		"a page of no file": h.get(t, st.url("site", "/nothing")),
		"no stack":          h.get(t, "http://web-0123456789ab.localhost/"),
		"no host":           h.get(t, "http://example.com/"),
		"the API":           h.show200(t, st),
		"an error":          h.get(t, "/v0/nothing"),
		"a health check":    h.get(t, "/healthz"),
	} {
		for _, header := range []string{"Server", "X-Powered-By", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Berth-Client-Ip", "X-Runtime"} {
			require.Empty(t, r.header.Values(header), "%s: %s", name, header)
		}
		require.NotContains(t, strings.ToLower(fmt.Sprint(r.header)), "fasthttp", name)
	}
	for _, path := range []string{"/", "/nothing"} {
		require.Equal(t, "nosniff", h.get(t, st.url("site", path)).header.Get("X-Content-Type-Options"), path)
		require.Equal(t, "noindex", h.get(t, st.url("site", path)).header.Get("X-Robots-Tag"), path)
	}
	require.Equal(t, "noindex", r.header.Get("X-Robots-Tag"))
}

// The limits count the client's network whatever its Connection header says.
func TestHostile_NoHeaderTakesTheClientsAddressAway(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_UNCLAIMED_PER_IP", "1"))
	h.live(t, page("one"), nil)
	for _, connection := range []string{"Berth-Client-Ip", "close, berth-client-ip, x-request-id"} {
		r := h.post(t, archive(t, page("two")), nil, "", "Connection", connection, "X-Request-Id", "mine")
		require.Contains(t, r.refused(t, http.StatusTooManyRequests), "limit 1")
	}
}

// show200 is the reply that shows a stack.
func (h *Host) show200(t *testing.T, st *Stack) Reply {
	t.Helper()
	r := h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID)
	require.Equal(t, http.StatusOK, r.status, r.body)
	return r
}
