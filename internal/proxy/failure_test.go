package proxy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
)

func detailOf(t *testing.T, res *http.Response, body string) string {
	t.Helper()
	var e map[string]string
	if err := json.Unmarshal([]byte(body), &e); err != nil || len(e) != 1 || e["detail"] == "" {
		t.Fatalf("not an error of one field detail: %q", body)
	}
	if ct := res.Header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("Content-Type %q", ct)
	}
	return e["detail"]
}

func TestProxy_AnswersForAServiceThatCannot(t *testing.T) {
	hang := func(c net.Conn, br *bufio.Reader, _ string) { io.Copy(io.Discard, br) }
	for name, c := range map[string]struct {
		backend string
		status  int
	}{
		"refused":            {"127.0.0.1:1", 502}, // nobody listens there
		"silent":             {script(t, hang), 504},
		"closes at once":     {says(t, ""), 502},
		"half a head":        {says(t, "HTTP/1.1 200 OK\r\nX-A:"), 502},
		"not HTTP":           {says(t, "220 smtp ready\r\n\r\n"), 502},
		"conflicting length": {says(t, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"), 502},
		"length and chunked": {says(t, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 502},
		"switches unasked":   {says(t, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"), 502},
		"interim for ever":   {says(t, strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 100)), 502},
		"half a head, then silence": {script(t, func(c net.Conn, br *bufio.Reader, _ string) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			io.Copy(io.Discard, br)
		}), 504},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limit := time.Minute
			if c.status == 504 {
				limit = 300 * time.Millisecond
			}
			f := newFront(t, c.backend, proxy.Options{HeaderTimeout: limit})
			for _, method := range []string{"GET", "POST"} {
				var body io.Reader
				if method == "POST" {
					body = strings.NewReader("hello")
				}
				res, answer := send(t, request(t, method, f.addr, "/", body))
				if res.StatusCode != c.status {
					t.Errorf("%s: status %d, want %d: %s", method, res.StatusCode, c.status, answer)
				}
				detailOf(t, res, answer)
			}
		})
	}
}

func TestProxy_BreaksOffWhatTheServiceBreaksOff(t *testing.T) {
	for name, answer := range map[string]string{
		"short of its length":     "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
		"far short of its length": "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nabc",
		"inside a chunk":          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
		"before the last chunk":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
		"a bad chunk":             "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n",
		"inside its trailers":     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-A: b\r\n",
	} {
		f := newFront(t, says(t, answer), proxy.Options{})
		res, err := newClient(t).Do(request(t, "GET", f.addr, "/", nil))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err == nil || string(body) != "abc" {
			t.Errorf("%s: the client read %q with error %v; want abc and an error", name, body, err)
		}
	}
}

func TestProxy_NeverReadsASmuggledAnswer(t *testing.T) {
	for name, answer := range map[string]string{
		"after HEAD":   "HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled",
		"after 204":    "HTTP/1.1 204 No Content\r\nContent-Length: 60\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled",
		"after 304":    "HTTP/1.1 304 Not Modified\r\nContent-Length: 60\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled",
		"after length": "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled",
		"after chunks": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled",
	} {
		method := "GET"
		if name == "after HEAD" {
			method = "HEAD"
		}
		backend := script(t, func(c net.Conn, br *bufio.Reader, _ string) {
			io.WriteString(c, answer)
			io.Copy(io.Discard, br)
		})
		f := newFront(t, backend, proxy.Options{})
		for range 3 {
			if _, body := send(t, request(t, method, f.addr, "/", nil)); strings.Contains(body, "smuggled") {
				t.Errorf("%s: the next client got %q", name, body)
			}
		}
	}
}

func TestProxy_RepeatsOnlyWhatMayBeRepeated(t *testing.T) {
	for _, c := range []struct {
		method, body string
		want         int
	}{{"GET", "", 200}, {"HEAD", "", 200}, {"DELETE", "", 200}, {"POST", "x", 502}, {"POST", "", 502}, {"PUT", "x", 502}} {
		t.Run(c.method+" "+c.body, func(t *testing.T) {
			var requests atomic.Int32
			backend := script(t, func(conn net.Conn, br *bufio.Reader, _ string) {
				requests.Add(1)
				io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				// The second request on a connection arrives and gets no answer.
				for line := ""; line != "\r\n"; {
					var err error
					if line, err = br.ReadString('\n'); err != nil {
						return
					}
				}
				requests.Add(1)
			})
			f := newFront(t, backend, proxy.Options{})
			if res, _ := send(t, request(t, "GET", f.addr, "/", nil)); res.StatusCode != 200 {
				t.Fatal(res.Status)
			}
			var body io.Reader
			if c.body != "" {
				body = strings.NewReader(c.body)
			}
			if res, _ := send(t, request(t, c.method, f.addr, "/", body)); res.StatusCode != c.want {
				t.Errorf("status %d, want %d", res.StatusCode, c.want)
			}
			if n := requests.Load(); c.want == 502 && n != 2 {
				t.Errorf("the service saw %d requests, want 2", n)
			}
		})
	}
}

func TestProxy_SendsNoBodyDownADeadConnection(t *testing.T) {
	closed := make(chan struct{}, 8)
	backend := script(t, func(c net.Conn, br *bufio.Reader, head string) {
		if strings.HasPrefix(head, "POST") {
			io.CopyN(io.Discard, br, 5)
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		c.Close() // without having said so
		closed <- struct{}{}
	})
	f := newFront(t, backend, proxy.Options{})
	for range 5 {
		res, body := send(t, request(t, "POST", f.addr, "/", strings.NewReader("hello")))
		if res.StatusCode != 200 {
			t.Fatalf("status %d: %s", res.StatusCode, body)
		}
		within(t, "the service's close", closed)
	}
}

func TestProxy_ShowsTheServiceThatItsClientLeft(t *testing.T) {
	for name, begin := range map[string]string{
		"before an answer": "",
		"amid a long one":  "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nabc",
		"amid an answer":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
	} {
		for _, head := range []string{"GET / HTTP/1.1\r\nHost: " + testHost + "\r\n\r\n", "POST / HTTP/1.1\r\nHost: " + testHost + "\r\nContent-Length: 9\r\n\r\nhalf"} {
			reached, left := make(chan struct{}), make(chan struct{})
			backend := script(t, func(c net.Conn, br *bufio.Reader, _ string) {
				io.WriteString(c, begin)
				close(reached)
				io.Copy(io.Discard, br)
				close(left)
			})
			f := newFront(t, backend, proxy.Options{})
			c := dial(t, f.addr)
			io.WriteString(c, head)
			within(t, "the request", reached)
			if begin != "" {
				bufio.NewReader(c).ReadString('\n')
			}
			c.Close()
			within(t, name+": the service notices", left)
		}
	}
}

func TestProxy_HasPagesForEveryState(t *testing.T) {
	routes := &proxy.Routes{}
	web := proxy.Service{Name: "web", Target: proxy.NewHandler(http.HandlerFunc(plain))}
	for hex, e := range map[string]proxy.Entry{
		"aaaaaaaaaaaa": {Status: stack.Live, Name: "shop", Hosts: map[string]proxy.Service{
			"web-aaaaaaaaaaaa.apps.test": web, "api-aaaaaaaaaaaa.apps.test": {Name: "api"}, "shop.example": web,
		}},
		"bbbbbbbbbbbb": {Status: stack.Building, Name: "<b>shop"},
		"cccccccccccc": {Status: stack.Failed, Name: "shop"},
		"ffffffffffff": {Status: stack.Building, Restoring: true, Name: "shop"},
		"dddddddddddd": {Status: stack.Expired, Name: "shop", ClaimURL: "https://berth.test/claim"},
	} {
		e.Wildcard = "*-" + hex + ".apps.test"
		routes.Set(hex, e)
	}
	front := serveRoutes(t, routes)
	for _, c := range []struct {
		host   string
		status int
		retry  string
		detail string
	}{
		{"web-aaaaaaaaaaaa.apps.test", 200, "", ""},
		{"api-aaaaaaaaaaaa.apps.test", 502, "5", "service api of stack shop is not running"},
		{"old-aaaaaaaaaaaa.apps.test", 404, "", "no service old"},
		{"web-bbbbbbbbbbbb.apps.test", 503, "5", "being built"},
		{"web-cccccccccccc.apps.test", 503, "", "failed"},
		{"web-ffffffffffff.apps.test", 503, "5", "being restored"},
		{"web-dddddddddddd.apps.test", 410, "", "https://berth.test/claim"},
		{"web-eeeeeeeeeeee.apps.test", 404, "", "no stack"},
		{"web.apps.test", 404, "", "no stack"},
		{"shop.example", 200, "", ""},
		{"old.example", 404, "", "no stack"},
		{"web-aaaaaaaaaaaa.other.test", 404, "", "no stack"},
		{"a-aaaaaaaaaaaa", 404, "", "no stack"},
		{"", 404, "", "no stack"},
		{"x.web-cccccccccccc.apps.test", 404, "", "no stack"},
		{"-aaaaaaaaaaaa.apps.test", 404, "", "no stack"},
		{"a-b-aaaaaaaaaaaa.apps.test", 404, "", "no service a-b"},
		{"old-bbbbbbbbbbbb.apps.test", 503, "5", "being built"},
		{"old-dddddddddddd.apps.test", 410, "", "https://berth.test/claim"},
	} {
		addr := front
		if !strings.HasSuffix(c.host, ".apps.test") { // the edge leads it elsewhere
			addr = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { routes.Serve(w, r, c.host) }))
		}
		ask := request(t, "GET", addr, "/", nil)
		ask.Host = c.host
		res, body := send(t, ask)
		if res.StatusCode != c.status || res.Header.Get("Retry-After") != c.retry {
			t.Errorf("%s: %d Retry-After %q: %s", c.host, res.StatusCode, res.Header.Get("Retry-After"), body)
		}
		if c.status == 200 {
			continue
		}
		if d := detailOf(t, res, body); !strings.Contains(d, c.detail) {
			t.Errorf("%s: detail %q does not say %q", c.host, d, c.detail)
		}
		r := request(t, "GET", addr, "/", nil)
		r.Host = c.host
		r.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
		res, body = send(t, r)
		if res.StatusCode != c.status || !strings.HasPrefix(body, "<!doctype html>") || strings.Contains(body, "<b>shop") ||
			!strings.Contains(res.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: for a browser: %d %v\n%s", c.host, res.StatusCode, res.Header, body)
		}
	}
}

func TestProxy_KeepsTenantsInTheirPlace(t *testing.T) {
	heads := make(chan string, 1)
	backend := script(t, func(c net.Conn, _ *bufio.Reader, head string) {
		heads <- head
		io.WriteString(c, "HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2; Domain=apps.test\r\nConnection: X-Hop\r\nX-Hop: 1\r\n"+
			"Keep-Alive: timeout=5\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n")
	})
	f := newFront(t, backend, proxy.Options{})
	f.routes.Remove(testHex)
	f.routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: hosts(map[string]*proxy.Target{"web": f.target}), Unclaimed: true})
	r := request(t, "GET", f.addr, "/", nil)
	for k, v := range map[string]string{
		"X-Forwarded-For": "6.6.6.6", "X-Forwarded-Proto": "gopher", "X-Forwarded-Host": "evil", "X-Forwarded-Port": "1", "X_forwarded_for": "6.6.6.6",
		"Forwarded": "for=6.6.6.6", "X-Real-Ip": "6.6.6.6", "Connection": "X-Mine, X-Forwarded-For", "X-Mine": "1", "Keep-Alive": "1",
		"Proxy-Authorization": "Basic x", "Cookie": "a=1; berth_session=secret; __Host-berth_session=secret",
	} {
		r.Header.Set(k, v)
	}
	res, _ := send(t, r)
	head := within(t, "the head", heads)
	for _, want := range []string{
		"\r\nX-Forwarded-For: 127.0.0.1\r\n", "\r\nX-Forwarded-Proto: http\r\n", "\r\nX-Forwarded-Host: " + testHost + "\r\n",
		"\r\nX-Real-Ip: 127.0.0.1\r\n", "\r\nHost: " + testHost + "\r\n", "\r\nCookie: a=1\r\n",
	} {
		if strings.Count(head, want) != 1 {
			t.Errorf("the service did not see %q once", want)
		}
	}
	for _, secret := range []string{"6.6.6.6", "gopher", "evil", "secret", "X-Mine", "Keep-Alive", "Basic", "X-Forwarded-Port"} {
		if strings.Contains(head, secret) {
			t.Errorf("the service saw %q in\n%s", secret, head)
		}
	}
	if c := res.Header["Set-Cookie"]; len(c) != 1 || c[0] != "a=1" {
		t.Errorf("Set-Cookie %q", c)
	}
	for _, key := range []string{"X-Hop", "Keep-Alive", "Proxy-Authenticate"} {
		if res.Header.Get(key) != "" {
			t.Errorf("the client saw %s", key)
		}
	}
	if res.Header.Get("X-Robots-Tag") != "noindex" {
		t.Error("an unclaimed stack's answer may be listed by search engines")
	}
}

// The server in this process has one lane.
func TestProxy_LateConnectionIs502(t *testing.T) {
	target := proxy.NewInner(func(ctx context.Context) (net.Conn, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}, proxy.Options{ConnectTimeout: 50 * time.Millisecond, Log: quiet})
	res, body := send(t, request(t, "GET", serve(t, target), "/", nil))
	if res.StatusCode != 502 {
		t.Errorf("status %d: %s", res.StatusCode, body)
	}
}
