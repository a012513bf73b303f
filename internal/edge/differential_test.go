package edge

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/textproto"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/edge/lanetest"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/site"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/wire"
)

// seenRequest is a request as a service saw it.
type seenRequest struct {
	Method, Target, Host, Body string
	Fields                     map[string][]string
	Length                     int64
	Chunked                    bool
}

// answered is an answer as its caller saw it: fields by their names in lower case.
type answered struct {
	Status   int
	Fields   map[string][]string
	Length   []string // the values of Content-Length, of an answer that has no body
	Body     string
	Trailers map[string][]string
	Cut      bool // its body did not end
}

// outcome is what came of bytes on a connection.
type outcome struct {
	Seen     []seenRequest
	Answered []answered
	Open     bool // the connection was still open
}

// twoLanes are two servers of one service: one has the first lane, the other is the reference.
type twoLanes struct {
	addrs [2]string

	mu   sync.Mutex
	seen []seenRequest
}

func newTwoLanes(t testing.TB) *twoLanes {
	two := &twoLanes{}
	backend := httptest.NewUnstartedServer(http.HandlerFunc(two.answer))
	backend.Config.ErrorLog = nil
	backend.Start()
	t.Cleanup(backend.Close)
	dir := siteFolder(t)
	for i := range two.addrs {
		routes := &proxy.Routes{}
		pages, err := site.Open(dir, site.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { pages.Close() })
		target, files := proxy.NewUpstream(backend.Listener.Addr().String(), proxy.Options{Log: quiet}), proxy.NewHandler(methodSite{pages})
		routes.Set(testHex, proxy.Entry{Status: stack.Live, Name: "shop", Hosts: map[string]proxy.Service{
			testService: {Name: "web", Target: target},
			testSite:    {Name: "site", Target: files},
			testPaths: {Name: "paths", Target: files, Paths: []proxy.Path{
				{Prefix: "/api", Host: testService, Strip: true}, {Prefix: "/whole", Host: testService}, {Prefix: "/docs", Host: testSite, Strip: true},
			}},
		}})
		drained(t, routes)
		srv := NewServer(Config{BaseHost: "berth.test", AppsDomain: "apps.test", Routes: routes, API: http.HandlerFunc(answerAPI), FastLane: i == 0, Log: quiet})
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		go srv.Serve(l)
		t.Cleanup(func() { srv.Close() })
		two.addrs[i] = l.Addr().String()
	}
	return two
}

// The hosts of a static site, and of a service whose paths lead to the other two, with and without
// their prefixes.
const (
	testSite  = "site-" + testHex + ".apps.test"
	testPaths = "paths-" + testHex + ".apps.test"
)

// siteFolder returns a folder with files of the kinds that a site sends in different ways.
func siteFolder(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "guide"), 0o755))
	for name, size := range map[string]int{"index.html": 10, "guide/index.html": 20, "app.js": 2000, "a b.txt": 5, "large.png": 130 << 10, "404.html": 30} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), bytes.Repeat([]byte("x"), size), 0o644))
	}
	return dir
}

// methodSite is a site whose answers say to what they are, as those of the service do.
type methodSite struct{ site *site.Site }

func (m methodSite) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Method", r.Method)
	m.site.ServeHTTP(w, r)
}

func (m methodSite) Ready(r *wire.Request, target string) (a wire.Ready, ok bool) {
	if a, ok = m.site.Ready(r, target); ok {
		a.Head = append(slices.Clip(a.Head), "X-Method: "+r.Method+"\r\n"...)
	}
	return a, ok
}

func answerAPI(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Method", r.Method)
	io.WriteString(w, "api")
}

// answer notes the request, and answers in the way that its path names.
func (two *twoLanes) answer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // a part of a request; whether it gets here depends on the time
	}
	fields := map[string][]string{}
	for key, values := range r.Header {
		if key != "X-Request-Id" || len(values) != 1 || len(values[0]) != 32 { // one of the edge's is another one each time
			fields[strings.ToLower(key)] = values
		}
	}
	two.mu.Lock()
	two.seen = append(two.seen, seenRequest{r.Method, r.RequestURI, r.Host, string(body), fields, r.ContentLength, r.TransferEncoding != nil})
	two.mu.Unlock()
	w.Header().Set("X-Method", r.Method)
	w.Header()["X-Many"] = []string{"a", "b"}
	switch {
	case strings.HasPrefix(r.URL.Path, "/chunked"):
		w.(http.Flusher).Flush()
		fmt.Fprintf(w, "%d bytes", len(body))
	case strings.HasPrefix(r.URL.Path, "/trailers"):
		w.Header()["Trailer"] = []string{"X-Sum", "X-Never, Content-Length"}
		w.(http.Flusher).Flush()
		fmt.Fprintf(w, "%d bytes", len(body))
		w.Header()["X-Sum"] = []string{"a", "b"}
		w.Header().Set(http.TrailerPrefix+"X-Late", "c")
		w.Header().Set(http.TrailerPrefix+"Set-Cookie", "d=e")
	case strings.HasPrefix(r.URL.Path, "/sized/"): // with the length of a body that there is not
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprintf(c, "HTTP/1.1 %s\r\nX-Method: %s\r\nContent-Type: a/b\r\nContent-Length: 1234\r\nConnection: close\r\n\r\n", r.URL.Path[len("/sized/"):], r.Method)
	case strings.HasPrefix(r.URL.Path, "/nothing"):
		w.WriteHeader(http.StatusNoContent)
	case strings.HasPrefix(r.URL.Path, "/same"):
		w.WriteHeader(http.StatusNotModified)
	case strings.HasPrefix(r.URL.Path, "/early"):
		w.Header().Set("Link", "</a>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		fallthrough
	default:
		text := fmt.Sprintf("%s %s %d bytes", r.Method, r.RequestURI, len(body))
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		io.WriteString(w, text)
	}
}

// send sends bytes over one connection, and returns what came of them. The connection counts
// as open if no byte comes for a while.
func (two *twoLanes) send(t testing.TB, addr string, p []byte, quiet time.Duration) (o outcome) {
	two.mu.Lock()
	two.seen = nil
	two.mu.Unlock()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer c.Close()
	_, _ = c.Write(p)
	var all []byte
	for buf := make([]byte, 32<<10); ; {
		c.SetReadDeadline(time.Now().Add(quiet))
		n, err := c.Read(buf)
		all = append(all, buf[:n]...)
		if err != nil {
			failure, ok := errors.AsType[net.Error](err)
			o.Open = ok && failure.Timeout()
			break
		}
	}
	// An answer without X-Method may be read as if it had a body: then the next one is that.
	br := bufio.NewReader(bytes.NewReader(passing.ReplaceAll(all, nil)))
	for more := true; more; {
		if _, err := br.Peek(1); err != nil {
			break
		}
		var a answered
		a, more = readAnswer(br)
		o.Answered = append(o.Answered, a)
	}
	two.mu.Lock()
	defer two.mu.Unlock()
	o.Seen = two.seen
	return o
}

// passing are the lines of the edge's own that differ from one answer to the next.
var passing = regexp.MustCompile(`(X-Request-Id: [0-9a-f]{32}|Date: [^\r\n]*)\r\n`)

// volatile are fields that differ from one answer to the next, or that frame it.
var volatile = []string{"date", "x-request-id", "content-length", "transfer-encoding"}

// readAnswer reads one answer, and reports whether another one may follow.
func readAnswer(br *bufio.Reader) (a answered, more bool) {
	tp := textproto.NewReader(br)
	line, err := tp.ReadLine()
	if err != nil || len(line) < 12 {
		return answered{Cut: true, Body: line}, false
	}
	a.Status, _ = strconv.Atoi(line[9:12])
	head, err := tp.ReadMIMEHeader()
	if err != nil {
		return answered{Cut: true}, false
	}
	a.Fields = stable(head)
	if a.Status < 200 || a.Status == 204 || a.Status == 304 || head.Get("X-Method") == "HEAD" {
		a.Length = head["Content-Length"]
		return a, true
	}
	var body io.Reader = br
	switch length := head.Get("Content-Length"); {
	case head.Get("Transfer-Encoding") != "":
		text, err := io.ReadAll(httputil.NewChunkedReader(br))
		if err == nil {
			head, err = tp.ReadMIMEHeader()
			if len(head) > 0 { // a small answer may get a length on the way
				a.Trailers = stable(head)
			}
		}
		a.Body, a.Cut = string(text), err != nil
		return a, err == nil
	case length != "":
		n, _ := strconv.ParseInt(length, 10, 64)
		body = io.LimitReader(br, n)
	}
	text, err := io.ReadAll(body)
	a.Body, a.Cut = string(text), err != nil
	return a, err == nil
}

// stable returns fields by their names in lower case, but for those that are volatile.
func stable(head textproto.MIMEHeader) map[string][]string {
	fields := map[string][]string{}
	for key, values := range head {
		if key = strings.ToLower(key); !slices.Contains(volatile, key) {
			fields[key] = values
		}
	}
	return fields
}

// compare asserts that both lanes make the same of bytes. On a busy machine an answer may be
// late, so what differs is looked at again with more patience.
func (two *twoLanes) compare(t testing.TB, p []byte) {
	var got, want outcome
	for _, quiet := range []time.Duration{60 * time.Millisecond, time.Second, 5 * time.Second} {
		got, want = two.send(t, two.addrs[0], p, quiet), two.send(t, two.addrs[1], p, quiet)
		if assert.ObjectsAreEqual(want, got) {
			return
		}
	}
	assert.Equal(t, want, got, "with the first lane, of %q", p)
}

// seeds are bytes that many have read in more than one way: each with a request behind it that
// must stay one, or never be one.
func seeds() (all []string) {
	const host = "Host: " + testService + "\r\n"
	const smuggled = "GET /smuggled HTTP/1.1\r\n" + host + "\r\n"
	heads := map[string]bool{}
	for _, target := range []string{"/", "/a?b=c", "/chunked", "/nothing", "/same", "/sized/304", "/sized/204", "/trailers", "/early", "/%41%2f", "/a/../b", "//a", "/a b", "*", "http://" + testService + "/a", "/%zz", "/a#b", "/\xc3\xa9"} {
		for _, method := range []string{"GET", "HEAD", "POST", "OPTIONS", "get"} {
			heads[method+" "+target+" HTTP/1.1\r\n"+host] = true
		}
	}
	for _, version := range []string{"HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "http/1.1", "HTTP/1.1 ", "HTTP/01.1"} {
		heads["GET / "+version+"\r\n"+host] = true
	}
	for _, other := range []string{"Host: berth.test\r\n", "Host: other.test\r\n", "Host:\r\n", "Host: a b\r\n", "", host + host, "host:" + testService + "\r\n", "Host : " + testService + "\r\n", "HOST: " + strings.ToUpper(testService) + ":80\r\n", "Host: " + testService + ".\r\n", "Host: [::1]\r\n"} {
		heads["GET / HTTP/1.1\r\n"+other], heads["HEAD / HTTP/1.1\r\n"+other] = true, true
	}
	for head := range heads {
		all = append(all, head+"\r\n"+smuggled, head+"Content-Length: 3\r\n\r\nabc"+smuggled)
	}
	for _, framing := range []string{
		"Content-Length: 3", "Content-Length: 03", "Content-Length: +3", "Content-Length: 3, 3", "Content-Length: 3\r\nContent-Length: 3",
		"Content-Length: 3\r\nContent-Length: 4", "Content-Length: 0x3", "Content-Length: -3", "Content-Length: 3 ", "Content-Length:\t3",
		"Content-Length : 3", "Content_Length: 3", "Content-Length: 99999999999999999999", "Content-Length:", "content-length: 0",
		"Transfer-Encoding: chunked", "Transfer-Encoding: Chunked", "Transfer-Encoding: identity", "Transfer-Encoding: gzip, chunked",
		"Transfer-Encoding: chunked, chunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "Transfer-Encoding : chunked",
		"Transfer_Encoding: chunked", "Transfer-Encoding: \x0bchunked", "Transfer-Encoding:\tchunked", "Transfer-Encoding: chunked\r\nContent-Length: 3",
		"Content-Length: 3\r\nTransfer-Encoding: chunked", "X: a\r\n Transfer-Encoding: chunked", "X: a\rTransfer-Encoding: chunked", "Transfer-Encoding: x\r\nContent-Length: 3",
		"Connection: Content-Length\r\nContent-Length: 3", "Connection: close\r\nContent-Length: 3", "Connection: keep-alive, X-A\r\nX-A: b", "Connection: Upgrade\r\nUpgrade: h2c",
		"Expect: 100-continue\r\nContent-Length: 3", "Expect: nonsense\r\nContent-Length: 3", "TE: trailers", "Trailer: X\r\nTransfer-Encoding: chunked", "Upgrade: websocket",
		"Berth-Client-Ip: 1.2.3.4", "X-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Proto: https", "X_Forwarded_For: 1.2.3.4", "Forwarded: for=1.2.3.4", "X-Request-Id: abc", "X-Request-Id: a b",
		"X-Request-Id: a\r\nX-Request-Id: b", "Cookie: a=b; berth_session=c\r\nCookie: d=e", "Pragma: no-cache", "Pragma: no-cache\r\nCache-Control: a", "X: \x00", "X: \xff", ": a", "X", "X\t: a", "Proxy-Connection: close", "Keep-Alive: 5",
	} {
		for _, method := range []string{"POST", "GET"} {
			head := method + " /a HTTP/1.1\r\n" + host + framing + "\r\n\r\n"
			for _, body := range []string{"", "abc", "3\r\nabc\r\n0\r\n\r\n", "0\r\n\r\n"} {
				all = append(all, head+body+smuggled)
			}
		}
		all = append(all, "POST /a HTTP/1.0\r\n"+host+framing+"\r\n\r\nabc"+smuggled)
	}
	for _, text := range []string{"\r\n", "\n", "\r\n\n", "\r\n\r\n", " ", "\x16\x03\x01\x02", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET / HTTP/1.1\n" + strings.ReplaceAll(host, "\r", "") + "\n"} {
		all = append(all, text+smuggled, smuggled+text)
	}
	slices.Sort(all)
	return all
}

// routedSeeds are requests for a site, and for paths that lead to other services, each with another
// one behind it.
func routedSeeds() (all []string) {
	for _, host := range []string{testSite, testPaths} {
		behind := "GET /app.js HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
		for _, line := range []string{
			"GET /", "HEAD /", "GET /app.js", "HEAD /large.png", "GET /large.png", "GET /a%20b.txt", "GET /none", "HEAD /none", "GET /guide", "GET /guide/?a=b",
			"GET /../app.js", "GET /%2e%2e/app.js", "GET /guide/../app.js", "GET /guide%2findex.html", "OPTIONS /", "PURGE /",
			"GET /api", "HEAD /api/sized/204", "GET /api/x?y=/api", "GET /api/", "GET /api//a", "GET /apis", "GET /api/../x", "GET /x/../api/y", "GET /api%2fx", "GET /%61pi/%7ea",
			"GET /whole/x", "GET /docs", "GET /docs?a", "GET /docs/", "GET /docs/guide", "HEAD /docs/large.png", "GET /docs/none",
		} {
			all = append(all, line+" HTTP/1.1\r\nHost: "+host+"\r\n\r\n"+behind)
		}
		for _, fields := range []string{
			"Accept-Encoding: gzip", "Accept-Encoding: br, gzip;q=0", "If-None-Match: *", "If-None-Match: \"a\"", "If-Modified-Since: Fri, 31 Dec 9999 23:59:59 GMT",
			"Range: bytes=1-3", "If-Match: *", "Accept: text/html", "X-Forwarded-Prefix: /evil", "Connection: X-Forwarded-Prefix", "Content-Length: 0", "Connection: close", "Cookie: a=b\r\nCookie: berth_session=c",
		} {
			for _, target := range []string{"/app.js", "/api/app.js", "/docs/large.png"} {
				all = append(all, "GET "+target+" HTTP/1.1\r\nHost: "+host+"\r\n"+fields+"\r\n\r\n"+behind)
			}
		}
		for _, target := range []string{"/", "/app.js", "/api/x", "/docs/x"} {
			all = append(all, "POST "+target+" HTTP/1.1\r\nHost: "+host+"\r\nContent-Length: 3\r\n\r\nabc"+behind)
		}
	}
	return all
}

func TestLanes_MakeTheSameOfEverySeed(t *testing.T) {
	if lanetest.Fast() {
		t.Skip("it was run with both lanes already")
	}
	all := slices.Concat(seeds(), routedSeeds())
	require.GreaterOrEqual(t, len(all), 300)
	const workers = 16
	for i := range workers {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			two := newTwoLanes(t)
			for ; i < len(all); i += workers {
				two.compare(t, []byte(all[i]))
			}
		})
	}
}

// FuzzLanes holds the first lane against the reference, whatever a caller sends. Without
// fuzzing it tries few seeds, since TestLanes_MakeTheSameOfEverySeed tries all at once.
func FuzzLanes(f *testing.F) {
	fuzzing := flag.Lookup("test.fuzz").Value.String() != ""
	for i, seed := range slices.Concat(seeds(), routedSeeds()) {
		if fuzzing || i%50 == 0 {
			f.Add([]byte(seed))
		}
	}
	two := newTwoLanes(f)
	f.Fuzz(func(t *testing.T, p []byte) { two.compare(t, p) })
}
