package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/exchange"
	"github.com/berth-host/berth/internal/proxy"
)

// closing is a listener whose first connections are closed once a request has come, as
// by a server that stops.
type closing struct {
	accept net.Listener
	left   atomic.Int64
}

func (l *closing) Addr() net.Addr { return l.accept.Addr() }

func (l *closing) Close() error { return l.accept.Close() }

func (l *closing) Accept() (net.Conn, error) {
	for {
		c, err := l.accept.Accept()
		if err != nil || l.left.Add(-1) < 0 {
			return c, err
		}
		_, _ = c.Read(make([]byte, 1))
		c.Close()
	}
}

// peerFront serves the test's host, which leads to a peer, and returns the address.
func peerFront(t *testing.T, p *proxy.Peer) string {
	routes := &proxy.Routes{}
	routes.Lead("s", wildcard, p)
	t.Cleanup(func() { // after the front has closed
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = p.Drain(ctx)
	})
	return serveRoutes(t, routes)
}

func TestPeer_ThatStopsIsAskedAgain(t *testing.T) {
	for _, tt := range []struct {
		name, method, body string
		closed             int64
		want               int
	}{
		{"twice", http.MethodGet, "", 2, http.StatusOK},
		{"always", http.MethodGet, "", 100, http.StatusBadGateway},
		{"with a body", http.MethodPost, "text", 1, http.StatusBadGateway},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plain, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			l := &closing{accept: plain}
			l.left.Store(tt.closed)
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "here") })}
			go server.Serve(l)
			defer server.Close()
			p := proxy.NewPeer(proxy.PeerOptions{
				Node: "n2", Name: func() string { return "n2" }, Lost: func() bool { return false }, Protocol: func() int { return 1 },
				Dial: func(ctx context.Context) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
				},
			})
			res, _ := send(t, request(t, tt.method, peerFront(t, p), "/", strings.NewReader(tt.body)))
			require.Equal(t, tt.want, res.StatusCode)
		})
	}
}

// Many requests at once make few connections, and take those of others that are done.
func TestPeer_ConnectsForAFewRequestsAtOnce(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "here") }))
	defer server.Close()
	var now, most, all atomic.Int64
	p := proxy.NewPeer(proxy.PeerOptions{
		Node: "n2", Name: func() string { return "n2" }, Lost: func() bool { return false }, Protocol: func() int { return 1 },
		Dial: func(ctx context.Context) (net.Conn, error) {
			defer now.Add(-1)
			all.Add(1)
			for seen, is := most.Load(), now.Add(1); is > seen && !most.CompareAndSwap(seen, is); seen = most.Load() {
			}
			time.Sleep(500 * time.Millisecond) // as a slow handshake takes
			return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
		},
		Limits: proxy.Options{ConnectTimeout: time.Minute},
	})
	const requests = 200
	addr, client := peerFront(t, p), newClient(t)
	var asking sync.WaitGroup
	for range requests {
		r := request(t, "GET", addr, "/", nil)
		asking.Go(func() {
			res, err := client.Do(r)
			if !assert.NoError(t, err) {
				return
			}
			defer res.Body.Close()
			text, err := io.ReadAll(res.Body)
			assert.NoError(t, err)
			assert.Equal(t, "200 here", fmt.Sprint(res.StatusCode, " ", string(text)))
		})
	}
	asking.Wait()
	require.LessOrEqual(t, most.Load(), int64(exchange.NodeDials))
	require.Less(t, all.Load(), int64(requests)/2)
}

// While no connection can be had, a request waits as long as it may, and no longer. The clock is
// not the kernel's, so there is no front.
func TestPeer_WaitsForAConnectionUntilTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := proxy.NewPeer(proxy.PeerOptions{
			Node: "n2", Name: func() string { return "n2" }, Lost: func() bool { return false }, Protocol: func() int { return 1 },
			Dial:   func(ctx context.Context) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() },
			Limits: proxy.Options{ConnectTimeout: 3 * time.Second},
		})
		began := time.Now()
		var asking sync.WaitGroup
		for range 3 * exchange.NodeDials {
			asking.Go(func() {
				w := httptest.NewRecorder()
				p.Serve(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
				assert.Equal(t, http.StatusBadGateway, w.Code)
			})
		}
		asking.Wait()
		require.Equal(t, 3*time.Second, time.Since(began))
	})
}

// severed is a connection to a node that was cut off after it took a request.
type severed struct{ net.Conn }

func (severed) Read([]byte) (int, error) {
	return 0, &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ETIMEDOUT)}
}

func TestPeer_ThatIsCutOffIsNoLateAnswer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	p := proxy.NewPeer(proxy.PeerOptions{
		Node: "n2", Name: func() string { return "n2" }, Lost: func() bool { return false }, Protocol: func() int { return 1 },
		Dial: func(ctx context.Context) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
			return severed{c}, err
		},
		Limits: proxy.Options{HeaderTimeout: -1}, // as between nodes
	})
	res, text := send(t, request(t, "POST", peerFront(t, p), "/", strings.NewReader("text")))
	require.Equal(t, http.StatusBadGateway, res.StatusCode)
	require.NotEmpty(t, res.Header.Get("Retry-After"))
	require.Contains(t, text, "broke off")
}

// A node may have done what it was asked for before it went away, even if it cannot be asked
// again: only of a request that changes nothing it can be said that the node was not reached.
func TestPeer_ThatIsAwayAfterItWasAsked(t *testing.T) {
	for method, says := range map[string]string{http.MethodGet: "cannot be reached", http.MethodDelete: "broke off"} {
		t.Run(method, func(t *testing.T) {
			dialed := false
			p := proxy.NewPeer(proxy.PeerOptions{
				Node: "n2", Name: func() string { return "n2" }, Lost: func() bool { return false }, Protocol: func() int { return 1 },
				Dial: func(context.Context) (net.Conn, error) {
					if dialed {
						return nil, syscall.ECONNREFUSED
					}
					dialed = true
					near, far := net.Pipe()
					go func() {
						_, _ = http.ReadRequest(bufio.NewReader(far))
						far.Close()
					}()
					return near, nil
				},
			})
			res, text := send(t, request(t, method, peerFront(t, p), "/", nil))
			require.Equal(t, http.StatusBadGateway, res.StatusCode)
			require.Contains(t, text, says)
		})
	}
}
