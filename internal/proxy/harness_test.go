package proxy_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/edge"
	"github.com/berth-host/berth/internal/edge/lanetest"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/wire"
)

const (
	testHex  = "0123456789ab"
	testHost = "web-" + testHex + ".apps.test"
)

var quiet = slog.New(slog.DiscardHandler)

// front is a proxy with one live service, and the address to reach it at.
type front struct {
	routes *proxy.Routes
	target *proxy.Target
	addr   string
}

func newFront(t testing.TB, backend string, o proxy.Options) *front {
	t.Helper()
	if o.Log == nil {
		o.Log = quiet
	}
	f := &front{routes: &proxy.Routes{}, target: proxy.NewUpstream(backend, o)}
	f.routes.Set(testHex, proxy.Entry{
		Status: stack.Live, Name: "shop", Hosts: hosts(map[string]*proxy.Target{"web": f.target}),
	})
	t.Cleanup(func() { // after the front has closed
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		f.routes.Drain(ctx)
	})
	f.addr = serveRoutes(t, f.routes)
	return f
}

// serveRoutes serves the routes' hosts and returns the address: with net/http alone, or as the
// edge does with its first lane.
func serveRoutes(t testing.TB, routes *proxy.Routes) string {
	t.Helper()
	if !lanetest.Fast() {
		return serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { routes.Serve(w, r, r.Host) }))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := edge.NewServer(edge.Config{BaseHost: "berth.test", AppsDomain: "apps.test", Routes: routes, API: http.NotFoundHandler(), FastLane: true, Log: quiet})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() { s.Close(); <-served })
	return l.Addr().String()
}

// hosts are the services of the test's stack, by host.
func hosts(targets map[string]*proxy.Target) map[string]proxy.Service {
	services := map[string]proxy.Service{}
	for name, target := range targets {
		services[name+"-"+testHex+".apps.test"] = proxy.Service{Name: name, Target: target}
	}
	return services
}

// serve runs a handler on loopback and returns its address.
func serve(t testing.TB, h http.Handler) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(quiet.Handler(), slog.LevelDebug)
	s.Config.DisableGeneralOptionsHandler = true
	s.Start()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.Listener.Addr().String()
}

// script is a backend that reads a request's head and answers with raw bytes
// on every connection; talk gets the connection after the head.
func script(t testing.TB, talk func(c net.Conn, br *bufio.Reader, head string)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				br := bufio.NewReader(c)
				var head strings.Builder
				for {
					line, err := br.ReadString('\n')
					if err != nil {
						return
					}
					if head.WriteString(line); line == "\r\n" {
						break
					}
				}
				talk(c, br, head.String())
			}()
		}
	}()
	return l.Addr().String()
}

// says is a script that answers with text and closes.
func says(t testing.TB, text string) string {
	return script(t, func(c net.Conn, _ *bufio.Reader, _ string) { io.WriteString(c, text) })
}

// request makes a request for the test host at addr.
func request(t testing.TB, method, addr, path string, body io.Reader) *http.Request {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, "http://"+addr+path, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = testHost
	return r
}

// newClient is a client with connections of its own that follows no redirect.
func newClient(t testing.TB) *http.Client {
	tr := &http.Transport{DisableCompression: true, ExpectContinueTimeout: 5 * time.Second}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func send(t testing.TB, r *http.Request) (*http.Response, string) {
	t.Helper()
	res, err := newClient(t).Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", r.Method, r.URL, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s %s: body: %v", r.Method, r.URL, err)
	}
	return res, string(b)
}

// raw sends text over one connection and returns all that comes back.
func raw(t testing.TB, addr, text string) string {
	t.Helper()
	c := dial(t, addr)
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(c)
	return string(b)
}

// ask sends a request over a connection of its own, and returns the answer and its body.
func ask(t testing.TB, addr, host, method, target string) (*http.Response, string) {
	t.Helper()
	c := dial(t, addr)
	defer c.Close()
	if _, err := io.WriteString(c, method+" "+target+" HTTP/1.1\r\nHost: "+host+"\r\nX-Forwarded-Prefix: /evil\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		t.Fatal(host, target, err)
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(host, target, err)
	}
	return res, string(text)
}

// readyPage is a handler that has its answer ready, which the first lane sends itself.
type readyPage string

func (p readyPage) ServeHTTP(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, string(p)) }

func (p readyPage) Ready(*wire.Request, string) (wire.Ready, bool) {
	return wire.Ready{Status: http.StatusOK, Length: int64(len(p)), Body: []byte(p)}, true
}

func dial(t testing.TB, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(30 * time.Second))
	return c
}

// within fails the test when ch is not closed or sent to in time.
func within[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(20 * time.Second):
		t.Fatal("not in time: " + what)
		panic("unreachable")
	}
}
