package edge

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
)

// startService serves a service at testService. The test makes the checks for stalls
// itself: their limit is longer than any test.
func startService(t *testing.T, target *proxy.Target) (addr string, srv *Server) {
	t.Helper()
	cfg := testConfig(who("api"))
	cfg.StallTimeout = time.Hour
	cfg.Routes.Set(testHex, proxy.Entry{Status: stack.Live, Name: "shop", Hosts: hosts(target)})
	return start(t, cfg)
}

// process is a service of its own listener.
func process(t *testing.T, h http.HandlerFunc) *proxy.Target {
	t.Helper()
	backend := httptest.NewServer(h)
	t.Cleanup(func() { backend.CloseClientConnections(); backend.Close() })
	return proxy.NewUpstream(backend.Listener.Addr().String(), proxy.Options{Log: quiet, HeaderTimeout: time.Hour})
}

// pass makes as many checks as are needed to close what has not moved since the first.
func pass(srv *Server) {
	for range looks + 5 {
		srv.stalls.look()
	}
}

// awaitIdle waits until no exchange is watched: net/http may finish with a request after
// the client has its answer.
func awaitIdle(srv *Server) {
	busy := func() bool {
		srv.stalls.mu.Lock()
		defer srv.stalls.mu.Unlock()
		for w := range srv.stalls.watches {
			w.mu.Lock()
			open := w.open
			w.mu.Unlock()
			if open {
				return true
			}
		}
		return false
	}
	for busy() {
		time.Sleep(time.Millisecond)
	}
}

// passUntil makes checks until ch is closed.
func passUntil(t *testing.T, srv *Server, what string, ch <-chan struct{}) {
	t.Helper()
	for late := time.After(20 * time.Second); ; {
		pass(srv)
		select {
		case <-ch:
			return
		case <-late:
			t.Fatal("not in time: " + what)
		case <-time.After(time.Millisecond):
		}
	}
}

func open(t *testing.T, addr, request string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	return c
}

// forever writes until it cannot, and then closes ended.
func forever(ended chan struct{}, length string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if length != "" {
			w.Header().Set("Content-Length", length)
		}
		defer close(ended)
		for block := make([]byte, 64<<10); ; {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}
}

func TestStalls_CutOffAClientThatTakesNothing(t *testing.T) {
	for name, length := range map[string]string{"spliced": "1000000000000", "chunked": ""} {
		for _, kind := range []string{"process", "static"} {
			t.Run(name+", "+kind, func(t *testing.T) {
				ended := make(chan struct{})
				target := proxy.NewHandler(forever(ended, length))
				if kind == "process" {
					target = process(t, forever(ended, length))
				}
				addr, srv := startService(t, target)
				c := open(t, addr, "GET / HTTP/1.1\r\nHost: "+testService+"\r\n\r\n")
				io.ReadFull(c, make([]byte, 1<<10))
				passUntil(t, srv, "the service's end", ended)
			})
		}
	}
}

// The answers to a client that keeps sending requests stay in net/http's buffers when
// their handlers return.
func TestStalls_CutOffAClientThatOnlyAsks(t *testing.T) {
	addr, srv := startService(t, proxy.NewHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("x", 60_000))
	})))
	c := open(t, addr, "")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+testService+"\r\n\r\n"); err != nil {
				return
			}
		}
	}()
	passUntil(t, srv, "the end of the connection", ended)
}

func TestStalls_LetASlowClientTakeItsTime(t *testing.T) {
	ended := make(chan struct{})
	addr, srv := startService(t, process(t, forever(ended, "1000000000000")))
	c := open(t, addr, "GET / HTTP/1.1\r\nHost: "+testService+"\r\n\r\n")
	for range 3 * looks {
		c.SetDeadline(time.Now().Add(30 * time.Second))
		if _, err := io.CopyN(io.Discard, c, 8<<20); err != nil {
			t.Fatal(err)
		}
		srv.stalls.look()
	}
	passUntil(t, srv, "the service's end", ended)
}

func TestStalls_EndASilentStream(t *testing.T) {
	say := make(chan string)
	addr, srv := startService(t, process(t, func(w http.ResponseWriter, r *http.Request) {
		for {
			select {
			case line := <-say:
				io.WriteString(w, line)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}))
	c := open(t, addr, "GET / HTTP/1.1\r\nHost: "+testService+"\r\n\r\n")
	say <- "data: 0\n"
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(res.Body)
	for i := range 3 * looks {
		if line, err := lines.ReadString('\n'); line != fmt.Sprintf("data: %d\n", i) {
			t.Fatal(line, err)
		}
		srv.stalls.look()
		say <- fmt.Sprintf("data: %d\n", i+1)
	}
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if _, err := lines.ReadString('\n'); err != io.ErrUnexpectedEOF {
			t.Errorf("the stream ended with %v", err)
		}
	}()
	passUntil(t, srv, "the stream's end", ended)
}

func TestStalls_LeaveTheAPIAndIdleConnectionsAlone(t *testing.T) {
	goOn := make(chan struct{})
	cfg := testConfig(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-goOn
		io.WriteString(w, "api")
	}))
	cfg.StallTimeout = time.Hour
	addr, srv := start(t, cfg)
	c := open(t, addr, "GET / HTTP/1.1\r\nHost: "+testService+"\r\n\r\n")
	br := bufio.NewReader(c)
	answer := func() string {
		t.Helper()
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	if got := answer(); !strings.HasPrefix(got, "web") {
		t.Fatal(got)
	}
	awaitIdle(srv)
	pass(srv)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: berth.test\r\n\r\n")
	pass(srv)
	close(goOn)
	if got := answer(); got != "api" {
		t.Error(got)
	}
}

// The proxy itself answers an upload that stalls.
func TestStalls_EndAnUpload(t *testing.T) {
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	for name, c := range map[string]struct {
		service http.HandlerFunc
		sent    int
		status  string
	}{
		"the client stops":  {func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }, 10, "HTTP/1.1 408 "},
		"the service stops": {func(http.ResponseWriter, *http.Request) { <-release }, 64 << 20, "HTTP/1.1 504 "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backend := httptest.NewServer(c.service)
			t.Cleanup(backend.CloseClientConnections)
			limit := 6 * time.Second // in which all that is sent must have come
			cfg := testConfig(who("api"))
			cfg.StallTimeout = time.Hour
			target := proxy.NewUpstream(backend.Listener.Addr().String(), proxy.Options{Log: quiet, HeaderTimeout: limit})
			cfg.Routes.Set(testHex, proxy.Entry{Status: stack.Live, Name: "shop", Hosts: hosts(target)})
			addr, _ := start(t, cfg)
			conn := open(t, addr, fmt.Sprintf("POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n", testService, 128<<20))
			go io.Copy(conn, io.LimitReader(zeros{}, int64(c.sent)))
			answer, _ := io.ReadAll(conn)
			if !strings.HasPrefix(string(answer), c.status) || !strings.Contains(string(answer), `{"detail":`) {
				t.Errorf("%q", answer)
			}
		})
	}
}

// Over HTTP/2 one stream is cut off and its neighbours on the connection are not.
func TestStalls_CutOffOneStreamOfHTTP2(t *testing.T) {
	ended, say := make(chan struct{}), make(chan string)
	large := forever(ended, "")
	borrowed := httptest.NewTLSServer(nil)
	defer borrowed.Close()
	cfg := testConfig(who("api"))
	cfg.StallTimeout, cfg.TLS = time.Hour, &tls.Config{Certificates: borrowed.TLS.Certificates}
	cfg.Routes.Set(testHex, proxy.Entry{Status: stack.Live, Name: "shop", Hosts: hosts(process(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			large(w, r)
			return
		}
		for line := range say {
			io.WriteString(w, line)
			w.(http.Flusher).Flush()
		}
	}))})
	addr, srv := start(t, cfg)
	client := &http.Client{Transport: &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return net.Dial("tcp", addr) },
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		ForceAttemptHTTP2: true,
	}}
	defer client.CloseIdleConnections()
	get := func(path string) io.Reader {
		t.Helper()
		res, err := client.Get("https://" + testService + path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		if res.ProtoMajor != 2 {
			t.Fatal(res.Proto)
		}
		return res.Body
	}
	go func() { say <- "0\n" }()
	lines := bufio.NewReader(get("/lines"))
	get("/large") // and reads nothing of it
	late := time.After(20 * time.Second)
	for i := 0; ; i++ {
		if line, err := lines.ReadString('\n'); line != fmt.Sprintln(i) {
			t.Fatal(line, err)
		}
		srv.stalls.look()
		say <- fmt.Sprintln(i + 1)
		select {
		case <-ended:
			close(say)
			if rest, err := io.ReadAll(lines); string(rest) != fmt.Sprintln(i+1) || err != nil {
				t.Errorf("%q, %v", rest, err)
			}
			return
		case <-late:
			t.Fatal("not in time: the end of the stream that is not read")
		default:
		}
	}
}
