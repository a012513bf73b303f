package edge

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/wire"
)

// A caller that ends its sending side, of TCP or of TLS alone, has left; the service learns of it
// while it thinks. In the first lane bytes of a next request that nobody has read do not keep it
// from that.
func TestLane_SeesThatACallerHasLeft(t *testing.T) {
	borrowed := httptest.NewTLSServer(nil)
	defer borrowed.Close()
	next := "GET /b HTTP/1.1\r\nHost: " + testService + "\r\n\r\n"
	for _, tt := range []struct {
		lane   string
		secure bool
		after  string
	}{{fast, false, ""}, {fast, false, next}, {fast, true, ""}, {fast, true, next}, {standard, false, ""}, {standard, true, ""}} {
		for _, head := range []string{"GET /a HTTP/1.1\r\nHost: " + testService + "\r\n\r\n", "POST /a HTTP/1.1\r\nHost: " + testService + "\r\nContent-Length: 4\r\n\r\ndata"} {
			t.Run(fmt.Sprintf("%s, TLS %v, %d bytes behind %.4s", tt.lane, tt.secure, len(tt.after), head), func(t *testing.T) {
				began, left := make(chan struct{}, 2), make(chan time.Time, 2)
				backend := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					began <- struct{}{}
					<-r.Context().Done()
					left <- time.Now()
				}))
				defer backend.Close()
				cfg := testConfig(who("api"))
				cfg.FastLane = tt.lane == fast
				cfg.Routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: hosts(proxy.NewUpstream(backend.Listener.Addr().String(), proxy.Options{Log: quiet}))})
				if tt.secure {
					cfg.TLS = &tls.Config{Certificates: borrowed.TLS.Certificates}
				}
				addr, _ := start(t, cfg)
				fastest := time.Hour
				for tries := 0; fastest > 100*time.Millisecond && tries < 50; tries++ { // a busy machine may be late now and then
					c := dialLane(t, addr, tt.secure)
					_, err := io.WriteString(c, head+tt.after)
					require.NoError(t, err)
					<-began
					at := time.Now()
					require.NoError(t, c.(interface{ CloseWrite() error }).CloseWrite())
					fastest = min(fastest, (<-left).Sub(at))
					text, err := io.ReadAll(c)
					require.NoError(t, err)
					require.Empty(t, text)
					c.Close()
				}
				require.LessOrEqual(t, fastest, 100*time.Millisecond)
			})
		}
	}
}

// dialLane connects to a server, within TLS if it is secure.
func dialLane(t *testing.T, addr string, secure bool) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	if !secure {
		return c
	}
	s := tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}) // the lane is tested, not the certificate
	require.NoError(t, s.Handshake())
	return s
}

// Requests that come over TLS while one is served are answered in their order, also when they are
// more than what is read ahead.
func TestLane_ServesWhatItHasReadAhead(t *testing.T) {
	borrowed := httptest.NewTLSServer(nil)
	defer borrowed.Close()
	for name, count := range map[string]int{"few": 3, "many": 3000} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			answer := sync.OnceFunc(func() { close(release) })
			defer answer()
			backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					<-release
					sent, _ := io.ReadAll(r.Body)
					w.Write(sent)
				}
				io.WriteString(w, r.URL.Path)
			}))
			defer backend.Close()
			cfg := testConfig(who("api"))
			cfg.FastLane, cfg.TLS = true, &tls.Config{Certificates: borrowed.TLS.Certificates}
			cfg.Routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: hosts(proxy.NewUpstream(backend.Listener.Addr().String(), proxy.Options{Log: quiet}))})
			addr, srv := start(t, cfg)
			c := dialLane(t, addr, true)
			body := strings.Repeat("b", 10_000)
			_, err := fmt.Fprintf(c, "POST /slow HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", testService, len(body), body)
			require.NoError(t, err)
			var requests bytes.Buffer
			for i := range count {
				fmt.Fprintf(&requests, "GET /%d HTTP/1.1\r\nHost: %s\r\n\r\n", i, testService)
			}
			sent := make(chan error, 1)
			go func() { _, err := c.Write(requests.Bytes()); sent <- err }()
			require.Eventually(t, func() bool { return srv.lanes.readAhead() >= min(requests.Len(), 50<<10) }, 10*time.Second, time.Millisecond)
			answer()
			br := bufio.NewReader(c)
			for i := -1; i < count; i++ {
				require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
				res, err := http.ReadResponse(br, nil)
				require.NoError(t, err)
				text, err := io.ReadAll(res.Body)
				require.NoError(t, err)
				if i < 0 {
					require.Equal(t, body+"/slow", string(text))
				} else {
					require.Equal(t, fmt.Sprintf("/%d", i), string(text))
				}
			}
			require.NoError(t, <-sent)
		})
	}
}

// readAhead returns how many bytes the lanes have read behind requests that are under way.
func (s *lanes) readAhead() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.all {
		l.ahead.mu.Lock()
		if l.ahead.on {
			n += len(l.have)
		}
		l.ahead.mu.Unlock()
	}
	return n
}

// held is a connection that keeps what is written to it, once it is told so.
type held struct {
	net.Conn
	keeps   bool
	written []byte
}

func (h *held) Write(p []byte) (int, error) {
	if !h.keeps {
		return h.Conn.Write(p)
	}
	h.written = append(h.written, p...)
	return len(p), nil
}

// pass writes up to n of the bytes that it keeps, and waits until they have come.
func (h *held) pass(t *testing.T, n int, to *net.TCPConn) {
	t.Helper()
	n = min(n, len(h.written))
	_, err := h.Conn.Write(h.written[:n])
	require.NoError(t, err)
	h.written = h.written[n:]
	require.Eventually(t, func() bool { return pending(t, to) >= n }, 10*time.Second, time.Millisecond)
}

// pending returns how many bytes can be read.
func pending(t *testing.T, tcp *net.TCPConn) (n int) {
	t.Helper()
	raw, err := tcp.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ) }))
	return n
}

// Records may come in pieces, and what there is no room for stays where it is.
func TestAhead_ReadsWhatThereIs(t *testing.T) {
	near, far := tcpPair(t)
	borrowed := httptest.NewTLSServer(nil)
	defer borrowed.Close()
	cfg := testConfig(who("api"))
	cfg.FastLane = true
	srv := NewServer(cfg)
	c := newConn(near, srv, nil)
	server := tls.Server(c, &tls.Config{Certificates: borrowed.TLS.Certificates})
	done := make(chan error, 1)
	go func() { done <- server.Handshake() }()
	out := &held{Conn: far}
	client := tls.Client(out, &tls.Config{InsecureSkipVerify: true})
	require.NoError(t, client.Handshake())
	require.NoError(t, <-done)
	out.keeps = true

	l := srv.newLane(c, server)
	l.ahead.on = true
	require.False(t, l.ahead.hasLeft())
	require.Nil(t, l.buf, "it holds a buffer for nothing")
	body := wire.Large.Get()
	l.buf, l.have = body, (*body)[4:4]
	require.False(t, l.ahead.hasLeft())
	require.Same(t, body, l.buf, "the body of the request is in it")
	sent := strings.Repeat("a request", 20)
	_, err := io.WriteString(client, sent)
	require.NoError(t, err)
	for len(out.written) > 0 {
		require.Empty(t, l.have)
		out.pass(t, 7, near)
		require.False(t, l.ahead.hasLeft())
	}
	require.Equal(t, sent, string(l.have))

	more := strings.Repeat("another", 20_000)
	_, err = io.WriteString(client, more)
	require.NoError(t, err)
	require.NoError(t, client.CloseWrite())
	require.NoError(t, far.SetWriteDeadline(time.Time{})) // it was set to now
	passed := make(chan error, 1)
	go func() { _, err := far.Write(out.written); passed <- err }()
	require.Eventually(t, func() bool { return l.ahead.hasLeft() || len(l.have) == cap(l.have) }, 10*time.Second, time.Millisecond)
	require.False(t, l.ahead.hasLeft(), "the end is behind what there is no room for")
	rest, err := io.ReadAll(l.nc)
	require.NoError(t, err)
	require.NoError(t, <-passed)
	require.Equal(t, sent+more, string(l.have)+string(rest))
}

// A farewell that comes with the end of its request lies in the memory of TLS, of which the kernel
// has nothing to say.
func TestLane_SeesAFarewellThatCameWithTheRequest(t *testing.T) {
	borrowed := httptest.NewTLSServer(nil)
	defer borrowed.Close()
	left := make(chan string, 1)
	addr, _ := lanesOf(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		<-r.Context().Done()
		left <- fmt.Sprintf("%s %d bytes, %v", r.Method, len(body), err)
	}), borrowed.TLS.Certificates...)
	for want, request := range map[string]string{
		"GET 0 bytes, <nil>":     soakHead("GET /a") + "\r\n",
		"POST 4000 bytes, <nil>": soakHead("POST /a") + "Content-Length: 4000\r\n\r\n" + strings.Repeat("b", 4000),
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			nc, err := net.Dial("tcp", addr)
			require.NoError(t, err)
			defer nc.Close()
			out := &held{Conn: nc}
			c := tls.Client(out, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}, MaxVersion: version})
			require.NoError(t, c.Handshake())
			out.keeps = true
			_, err = io.WriteString(c, request)
			require.NoError(t, err)
			require.NoError(t, c.CloseWrite())
			require.NoError(t, nc.SetDeadline(time.Now().Add(20*time.Second)))
			_, err = nc.Write(out.written)
			require.NoError(t, err)
			text, err := io.ReadAll(c)
			require.NoError(t, err)
			require.Empty(t, text)
			require.Equal(t, want, <-left, tls.VersionName(version))
		}
	}
}
