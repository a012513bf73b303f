package proxy_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
)

// echoServer accepts WebSockets and sends back what it gets; ends receives
// the close code of each connection.
func echoServer(t *testing.T) (addr string, ends chan websocket.StatusCode) {
	ends = make(chan websocket.StatusCode, 8)
	return serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
		if err != nil {
			t.Error(err)
			return
		}
		defer c.CloseNow()
		c.SetReadLimit(-1)
		for {
			kind, data, err := c.Read(context.Background())
			if err != nil {
				ends <- websocket.CloseStatus(err)
				return
			}
			c.Write(context.Background(), kind, data)
		}
	})), ends
}

func openSocket(t *testing.T, addr string) *websocket.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	c, _, err := websocket.Dial(ctx, "ws://"+addr+"/ws", &websocket.DialOptions{Host: testHost})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.CloseNow() })
	c.SetReadLimit(-1)
	return c
}

func echo(t *testing.T, c *websocket.Conn, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := c.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
		t.Fatal(err)
	}
	if _, got, err := c.Read(ctx); err != nil || string(got) != text {
		t.Fatalf("echo of %d bytes: %d bytes, %v", len(text), len(got), err)
	}
}

func TestTunnel_CarriesWebSockets(t *testing.T) {
	backend, ends := echoServer(t)
	f := newFront(t, backend, proxy.Options{HeaderTimeout: 5 * time.Second})
	c := openSocket(t, f.addr)
	time.Sleep(5100 * time.Millisecond) // the limit is for the head alone
	for _, size := range []int{0, 1, 125, 126, 70_000, 3 << 20} {
		echo(t, c, strings.Repeat("w", size))
	}
	c.Close(websocket.StatusNormalClosure, "bye")
	if code := within(t, "the service's end", ends); code != websocket.StatusNormalClosure {
		t.Errorf("the service saw close code %d", code)
	}
}

func TestTunnel_TellsBothSidesToGoAway(t *testing.T) {
	backend, ends := echoServer(t)
	f := newFront(t, backend, proxy.Options{})
	c := openSocket(t, f.addr)
	echo(t, c, "hello")
	read := make(chan websocket.StatusCode, 1)
	go func() {
		_, _, err := c.Read(context.Background())
		read <- websocket.CloseStatus(err)
	}()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := f.target.Drain(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), " 1 ") {
		t.Errorf("Drain of one socket: %v", err)
	}
	if code := within(t, "the client's end", read); code != websocket.StatusGoingAway {
		t.Errorf("the client saw close code %d", code)
	}
	if code := within(t, "the service's end", ends); code != websocket.StatusGoingAway {
		t.Errorf("the service saw close code %d", code)
	}
	if err := f.target.Drain(ctx); err != nil {
		t.Errorf("a second Drain: %v", err)
	}
}

// TestTunnel_WritesNoCloseIntoAFrame drains while the service is in the middle
// of a frame: a close frame there would be read as its payload.
func TestTunnel_WritesNoCloseIntoAFrame(t *testing.T) {
	backend := script(t, func(c net.Conn, br *bufio.Reader, _ string) {
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x81\x0ahalf")
		io.Copy(io.Discard, br)
	})
	f := newFront(t, backend, proxy.Options{})
	c := dial(t, f.addr)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+testHost+"\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\r\n")
	br := bufio.NewReader(c)
	for line := ""; line != "\r\n"; {
		var err error
		if line, err = br.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	half := make([]byte, 6)
	if _, err := io.ReadFull(br, half); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	f.target.Drain(ctx)
	if rest, _ := io.ReadAll(br); len(rest) != 0 {
		t.Errorf("%x was written into a frame", rest)
	}
}

// TestTunnel_ClosesOneWayAtATime speaks a protocol of its own: the client ends
// its side, and still reads what the service says after that.
func TestTunnel_ClosesOneWayAtATime(t *testing.T) {
	backend := script(t, func(c net.Conn, br *bufio.Reader, head string) {
		if !strings.Contains(head, "\r\nConnection: Upgrade\r\nUpgrade: shout/1\r\n") {
			io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
			return
		}
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: shout/1\r\n\r\nready\n")
		all, _ := io.ReadAll(br)
		io.WriteString(c, strings.ToUpper(string(all)))
	})
	f := newFront(t, backend, proxy.Options{})
	c := dial(t, f.addr)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+testHost+"\r\nConnection: Upgrade\r\nUpgrade: shout/1\r\n\r\nearly ")
	br := bufio.NewReader(c)
	line, _ := br.ReadString('\n')
	for line2 := line; line2 != "ready\n"; {
		var err error
		if line2, err = br.ReadString('\n'); err != nil {
			t.Fatal(line, err)
		}
	}
	io.WriteString(c, "late")
	c.(*net.TCPConn).CloseWrite()
	got, err := io.ReadAll(br)
	if !strings.HasPrefix(line, "HTTP/1.1 101 ") || string(got) != "EARLY LATE" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestTunnel_RefusedUpgradeIsAnOrdinaryAnswer(t *testing.T) {
	f := newFront(t, says(t, "HTTP/1.1 426 Upgrade Required\r\nContent-Length: 3\r\n\r\nno\n"), proxy.Options{})
	r := request(t, "GET", f.addr, "/", nil)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "websocket")
	if res, body := send(t, r); res.StatusCode != 426 || body != "no\n" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
}

// TestTunnel_IsNeverHTTP2 has a service that would switch to HTTP/2: over such a
// tunnel a client could send requests that nobody has looked at.
func TestTunnel_IsNeverHTTP2(t *testing.T) {
	heads := make(chan string, 1)
	backend := script(t, func(c net.Conn, _ *bufio.Reader, head string) {
		heads <- head
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	})
	f := newFront(t, backend, proxy.Options{})
	for asked, passed := range map[string]string{
		"h2c":                     "",
		"H2C":                     "",
		"h2c, h2c":                "",
		"h2c\r\nUpgrade: h2c":     "",
		"websocket, h2c":          "websocket",
		"h2c , a/1,, b":           "a/1, b",
		"h2c\r\nUpgrade: private": "private",
	} {
		raw(t, f.addr, "GET / HTTP/1.1\r\nHost: "+testHost+"\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: "+asked+"\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n")
		head, err := http.ReadRequest(bufio.NewReader(strings.NewReader(within(t, "the request", heads))))
		if err != nil {
			t.Fatal(err)
		}
		if got := head.Header.Get("Upgrade"); got != passed || (got == "") != (head.Header.Get("Connection") == "") || head.Header["Http2-Settings"] != nil {
			t.Errorf("%q passed as %v", asked, head.Header)
		}
	}
}

// TestRoutes_SwitchesWithoutAFailedRequest exchanges the target again and again
// under load, drains the old one and closes its server.
func TestRoutes_SwitchesWithoutAFailedRequest(t *testing.T) {
	f := newFront(t, serve(t, http.HandlerFunc(plain)), proxy.Options{})
	stop, failed := make(chan struct{}), make(chan string, 8)
	for range 4 {
		go func() {
			client := newClient(t)
			for {
				select {
				case <-stop:
					failed <- ""
					return
				default:
				}
				res, err := client.Do(request(t, "GET", f.addr, "/", nil))
				if err != nil {
					failed <- err.Error()
					return
				}
				body, _ := io.ReadAll(res.Body)
				res.Body.Close()
				if res.StatusCode != 200 {
					failed <- res.Status + string(body)
					return
				}
			}
		}()
	}
	for range 30 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{Handler: http.HandlerFunc(plain)}
		go srv.Serve(l)
		old := f.routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: hosts(map[string]*proxy.Target{
			"web": proxy.NewUpstream(l.Addr().String(), proxy.Options{Log: quiet}),
		})})
		if len(old) != 1 {
			t.Fatalf("%d targets to drain", len(old))
		}
		if err := old[0].Drain(context.Background()); err != nil {
			t.Fatal(err)
		}
		defer srv.Close() // nothing goes to it once the next one is in place
	}
	close(stop)
	for range 4 {
		if f := within(t, "a client", failed); f != "" {
			t.Error(f)
		}
	}
}

func TestDrain_WaitsForOpenRequests(t *testing.T) {
	reached, release := make(chan struct{}), make(chan struct{})
	f := newFront(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(reached)
		<-release
		io.WriteString(w, "done")
	})), proxy.Options{})
	answer := make(chan string, 1)
	go func() {
		_, body := send(t, request(t, "GET", f.addr, "/", nil))
		answer <- body
	}()
	within(t, "the request", reached)
	drained := make(chan error, 1)
	old := f.routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: hosts(map[string]*proxy.Target{"web": nil})})
	go func() { drained <- old[0].Drain(context.Background()) }()
	if res, _ := send(t, request(t, "GET", f.addr, "/", nil)); res.StatusCode != 502 {
		t.Errorf("between two targets: %d", res.StatusCode)
	}
	select {
	case err := <-drained:
		t.Fatal("drained with a request open", err)
	default:
	}
	close(release)
	if body := within(t, "the answer", answer); body != "done" {
		t.Errorf("answer %q", body)
	}
	if err := within(t, "the drain", drained); err != nil {
		t.Error(err)
	}
	if err := old[0].Drain(context.Background()); err != nil {
		t.Error("a second drain:", err)
	}
}

func TestDrain_CutsWhatDoesNotEnd(t *testing.T) {
	gone := make(chan struct{})
	f := newFront(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(gone)
	})), proxy.Options{})
	res, err := newClient(t).Do(request(t, "GET", f.addr, "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := f.routes.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Drain: %v", err)
	}
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("the client took a cut answer for a whole one")
	}
	within(t, "the service sees the end", gone)
}

// hijackable answers a request whose client's connection is taken over.
type hijackable struct {
	*httptest.ResponseRecorder
	client net.Conn
}

func (h hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.client, bufio.NewReadWriter(bufio.NewReader(h.client), bufio.NewWriter(h.client)), nil
}

// oneWay is a connection of two pipes, so that either way can end by itself.
type oneWay struct {
	net.Conn // what it reads
	out      net.Conn
}

func (c oneWay) Write(p []byte) (int, error) { return c.out.Write(p) }

func (c oneWay) CloseWrite() error { return c.out.Close() }

func (c oneWay) Close() error { return errors.Join(c.out.Close(), c.Conn.Close()) }

func pipes() (a, b oneWay) {
	fromA, toB := net.Pipe()
	fromB, toA := net.Pipe()
	return oneWay{toA, fromA}, oneWay{toB, fromB}
}

// end is one end of a tunnel.
type end struct {
	conn oneWay
	br   *bufio.Reader
}

// says writes a line to the other end.
func (e end) says(t *testing.T, line string, other end) {
	t.Helper()
	if _, err := io.WriteString(e.conn, line+"\n"); err != nil {
		t.Fatal(err)
	}
	if got, err := other.br.ReadString('\n'); got != line+"\n" {
		t.Fatal(got, err)
	}
}

// openLines opens a tunnel between a client and a service; ended closes when it
// is over.
func openLines(t *testing.T) (client, service end, ended chan struct{}) {
	t.Helper()
	near, far := pipes()
	front, visitor := pipes()
	target := proxy.NewInner(func(context.Context) (net.Conn, error) { return near, nil }, proxy.Options{Log: quiet})
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "lines")
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		target.ServeHTTP(hijackable{httptest.NewRecorder(), front}, r)
	}()
	client, service = end{visitor, bufio.NewReader(visitor)}, end{far, bufio.NewReader(far)}
	if _, err := readHead(service.br); err != nil {
		t.Fatal(err)
	}
	io.WriteString(service.conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\n")
	if _, err := readHead(client.br); err != nil {
		t.Fatal(err)
	}
	return client, service, ended
}

// endsInSilence asserts that the tunnel ends an hour after the last byte.
func endsInSilence(t *testing.T, client end, ended <-chan struct{}) {
	t.Helper()
	spoken := time.Now()
	if rest, err := io.ReadAll(client.br); len(rest) > 0 || err != nil {
		t.Errorf("the client read %q, %v", rest, err)
	}
	<-ended
	if silent := time.Since(spoken); silent != time.Hour {
		t.Errorf("the tunnel ended after %v", silent)
	}
}

func TestTunnel_EndsAfterAnHourOfSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, service, ended := openLines(t)
		for range 3 { // a byte now and then, either way, is enough
			time.Sleep(59 * time.Minute)
			client.says(t, "up", service)
			time.Sleep(59 * time.Minute)
			service.says(t, "down", client)
		}
		endsInSilence(t, client, ended)
	})
}

// A side that has finished can read for as long as the other one writes.
func TestTunnel_GoesOnWhileOneSideSpeaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, service, ended := openLines(t)
		client.conn.CloseWrite()
		if _, err := service.br.ReadByte(); err != io.EOF {
			t.Fatal(err)
		}
		for range 3 {
			time.Sleep(59 * time.Minute)
			service.says(t, "down", client)
		}
		endsInSilence(t, client, ended)
	})
}
