package edge

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
)

// The time that lane one has spent on a head counts after the hand-over: net/http alone would
// wait for an hour here.
func TestLane_LimitsAHeadOnceOverTheHandOver(t *testing.T) {
	borrowed := httptest.NewTLSServer(nil)
	t.Cleanup(borrowed.Close)
	for _, secure := range []bool{false, true} {
		for name, before := range map[string]string{"first": "", "later": "GET / HTTP/1.1\r\nHost: " + testService + "\r\n\r\n"} {
			t.Run(name+map[bool]string{true: " over TLS"}[secure], func(t *testing.T) {
				t.Parallel() // all wait
				cfg := testConfig(who("api"))
				cfg.FastLane = true
				backend := httptest.NewServer(who("web"))
				defer backend.Close()
				cfg.Routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: hosts(proxy.NewUpstream(backend.Listener.Addr().String(), proxy.Options{Log: quiet}))})
				handed := make(chan struct{}, 1)
				cfg.Connected = func(lane string) {
					if lane == handedOver {
						handed <- struct{}{}
					}
				}
				if secure {
					cfg.TLS = &tls.Config{Certificates: borrowed.TLS.Certificates}
				}
				srv := NewServer(cfg)
				srv.lanes.headTimeout, srv.http.ReadHeaderTimeout = 8*time.Second, time.Hour
				l, err := net.Listen("tcp", "127.0.0.1:0")
				require.NoError(t, err)
				go srv.Serve(l)
				defer srv.Close()
				c, err := net.Dial("tcp", l.Addr().String())
				require.NoError(t, err)
				defer c.Close()
				c.SetDeadline(time.Now().Add(20 * time.Second))
				if secure {
					c = tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
				}
				br := bufio.NewReader(c)
				if before != "" {
					_, err = io.WriteString(c, before)
					require.NoError(t, err)
					res, err := http.ReadResponse(br, nil)
					require.NoError(t, err)
					_, err = io.Copy(io.Discard, res.Body)
					require.NoError(t, err)
				}
				_, err = io.WriteString(c, "GET / HTTP/1.0\r\nHost: "+testService+"\r\n")
				require.NoError(t, err)
				select {
				case <-handed:
				case <-time.After(20 * time.Second):
					t.Fatal("the connection is not handed over")
				}
				_, err = br.ReadByte()
				require.Error(t, err)
				require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the connection is open")
			})
		}
	}
}

// The time for the first head runs from the beginning of the connection, as with net/http, and
// not from its first byte.
func TestLane_LimitsTheFirstHeadFromTheBeginning(t *testing.T) {
	cfg := testConfig(who("api"))
	cfg.FastLane = true
	srv := NewServer(cfg)
	srv.lanes.headTimeout = 300 * time.Millisecond
	near, far := tcpPair(t)
	place := &seat{} // shows when the lane waits
	c := newConn(near, srv, place)
	l := srv.newLane(c, c)
	ended := make(chan step)
	go func() { ended <- l.next() }()
	require.Eventually(t, func() bool { return place.state.Load() != inUse }, 10*time.Second, time.Millisecond)
	began := time.Now()
	_, err := io.WriteString(far, "G")
	require.NoError(t, err)
	require.Equal(t, end, <-ended)
	require.False(t, l.limited.After(began.Add(srv.lanes.headTimeout)))
}

// The deadline of a head that a lane has begun holds until the head is there.
func TestConn_KeepsTheDeadlineOfAHead(t *testing.T) {
	near, far := tcpPair(t)
	c := newConn(near, nil, nil)
	c.whole = time.Now().Add(-time.Second)
	_, err := io.WriteString(far, "x")
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Hour)))
	_, err = c.Read(make([]byte, 1))
	require.True(t, errors.Is(err, os.ErrDeadlineExceeded), "%v", err)
	require.NoError(t, c.SetReadDeadline(time.Time{})) // as net/http does once it has the head
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Hour)))
	_, err = c.Read(make([]byte, 1))
	require.NoError(t, err)
}

// tcpPair returns both ends of a connection.
func tcpPair(t testing.TB) (near, far *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	other, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { other.Close() })
	return other.(*net.TCPConn), c.(*net.TCPConn)
}
