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
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
)

// bounded returns a bound that counts loopback, too, and what it has observed.
func bounded(limit int) (*Conns, func(outcome string) int64) {
	counts := map[string]*atomic.Int64{idleClosed: {}, refusedNew: {}}
	c := NewConns(ConnsConfig{
		Limit: limit, Network: stack.NetworkOf, Observe: func(outcome string) { counts[outcome].Add(1) },
	})
	c.exempt = func(netip.Addr) bool { return false }
	return c, func(outcome string) int64 { return counts[outcome].Load() }
}

func (c *Conns) total() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, seats := range c.networks {
		n += len(seats)
	}
	return n
}

// caller is a client's connection.
type caller struct {
	net.Conn
	br *bufio.Reader
}

func (c caller) get(t *testing.T, host, path string) {
	t.Helper()
	c.send(t, host, path)
	res, err := http.ReadResponse(c.br, nil)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, res.Body)
	require.NoError(t, err)
	require.Equal(t, 200, res.StatusCode)
}

func (c caller) send(t *testing.T, host, path string) {
	t.Helper()
	_, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
	require.NoError(t, err)
}

// closed waits for the end of the connection.
func (c caller) closed(t *testing.T) {
	t.Helper()
	_, err := c.br.ReadByte()
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}

// idleSeats waits until a number of connections is idle.
func (c *Conns) idleSeats(t *testing.T, want int) {
	t.Helper()
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		n := 0
		for _, seats := range c.networks {
			for _, s := range seats {
				if s.state.Load() > 0 {
					n++
				}
			}
		}
		return n == want
	}, 10*time.Second, time.Millisecond)
}

// The bound is one for both lanes, with TLS and without: the longest idle connection makes
// room, one with a request under way never does, and without an idle one the new one is refused.
func TestConns_AreBoundedInBothLanes(t *testing.T) {
	borrowed := httptest.NewTLSServer(nil)
	defer borrowed.Close()
	for _, secure := range []bool{false, true} {
		for _, lane := range []string{fast, standard} {
			t.Run(fmt.Sprintf("TLS %v, %s", secure, lane), func(t *testing.T) {
				began, release := make(chan struct{}, 8), make(chan struct{})
				program := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/slow" {
						began <- struct{}{}
						<-release
					}
					io.WriteString(w, "done")
				})
				backend := httptest.NewServer(program)
				defer backend.Close()
				cfg := testConfig(program)
				cfg.Routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: hosts(proxy.NewUpstream(backend.Listener.Addr().String(), proxy.Options{Log: quiet}))})
				cfg.FastLane = lane == fast
				if secure {
					cfg.TLS = &tls.Config{Certificates: borrowed.TLS.Certificates}
				}
				conns, counted := bounded(3)
				cfg.Conns = conns
				addr, _ := start(t, cfg)
				dial := func() caller {
					t.Helper()
					c, err := net.Dial("tcp", addr)
					require.NoError(t, err)
					t.Cleanup(func() { c.Close() })
					c.SetDeadline(time.Now().Add(20 * time.Second))
					if secure {
						c = tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
					}
					return caller{c, bufio.NewReader(c)}
				}
				first, second, third := dial(), dial(), dial()
				conns.dialled(t, 3)
				first.get(t, testService, "/")
				conns.idleSeats(t, 3)
				second.get(t, "berth.test", "/") // the API's: with net/http
				conns.idleSeats(t, 3)
				third.get(t, testService, "/")
				first.get(t, testService, "/") // so second is idle for longest
				conns.idleSeats(t, 3)

				fourth := dial()
				fourth.get(t, testService, "/")
				second.closed(t)
				require.EqualValues(t, 1, counted(idleClosed))

				for _, c := range []caller{first, third, fourth} {
					host := testService
					if c == third {
						host = "berth.test"
					}
					c.send(t, host, "/slow")
					<-began
				}
				fifth := dial()
				if secure {
					require.Error(t, fifth.Conn.(*tls.Conn).Handshake())
				} else {
					fifth.send(t, testService, "/")
					res, err := http.ReadResponse(fifth.br, nil)
					require.NoError(t, err)
					require.Equal(t, 503, res.StatusCode)
					require.NotEmpty(t, res.Header.Get("Retry-After"))
					text, err := io.ReadAll(res.Body)
					require.NoError(t, err)
					require.Contains(t, string(text), `"detail":"your network has 3 connections`)
				}
				require.EqualValues(t, 1, counted(refusedNew))
				close(release)
				for _, c := range []caller{first, third, fourth} {
					res, err := http.ReadResponse(c.br, nil)
					require.NoError(t, err)
					require.Equal(t, 200, res.StatusCode)
					c.Close()
				}
				require.Eventually(t, func() bool { return conns.total() == 0 }, 10*time.Second, time.Millisecond, "places stay taken")
			})
		}
	}
}

// dialled waits until n connections are counted.
func (c *Conns) dialled(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return c.total() == n }, 10*time.Second, time.Millisecond)
}

func TestConns_CountNetworksApartAndExemptProxies(t *testing.T) {
	c := NewConns(ConnsConfig{Limit: 1, Network: stack.NetworkOf, Trusted: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}})
	for address, exempt := range map[string]bool{"127.0.0.1": true, "127.9.9.9": true, "::1": true, "192.0.2.7": true, "203.0.113.1": false, "2001:db8::1": false} {
		require.Equal(t, exempt, c.exempt(netip.MustParseAddr(address)), address)
	}
	add := func(network string) bool {
		s := &seat{conns: c, network: network}
		_, ok := c.seat(s)
		return ok
	}
	require.True(t, add("203.0.113.1"))
	require.False(t, add("203.0.113.1"))
	require.True(t, add("203.0.113.2"))
	require.True(t, add("2001:db8::/64"))
}

// An upgraded connection is in use however quiet it is; one that has sent nothing is idle.
func TestConns_KeepUpgradedOnes(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		nc, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer nc.Close()
		io.WriteString(nc, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		io.Copy(nc, nc)
	}))
	defer backend.Close()
	cfg := testConfig(who("api"))
	cfg.FastLane = true
	cfg.Routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: hosts(proxy.NewUpstream(backend.Listener.Addr().String(), proxy.Options{Log: quiet}))})
	conns, counted := bounded(2)
	cfg.Conns = conns
	addr, _ := start(t, cfg)
	dial := func() caller {
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(20 * time.Second))
		return caller{c, bufio.NewReader(c)}
	}
	upgraded := dial()
	_, err := io.WriteString(upgraded, "GET / HTTP/1.1\r\nHost: "+testService+"\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	require.NoError(t, err)
	res, err := http.ReadResponse(upgraded.br, nil)
	require.NoError(t, err)
	require.Equal(t, 101, res.StatusCode)
	silent := dial()
	conns.dialled(t, 2)
	conns.idleSeats(t, 1)
	dial()
	silent.closed(t)
	_, err = io.WriteString(upgraded, "x")
	require.NoError(t, err)
	b, err := upgraded.br.ReadByte()
	require.NoError(t, err)
	require.Equal(t, byte('x'), b)
	require.EqualValues(t, 1, counted(idleClosed))
	upgraded.Close()
	require.Eventually(t, func() bool { return conns.total() == 1 }, 10*time.Second, time.Millisecond)
}

// A request whose bytes have come is answered, or its connection was closed before any of it
// reached a service, however new connections push.
func TestConns_LoseNoRequestThatWasRead(t *testing.T) {
	for _, lane := range []string{fast, standard} {
		t.Run(lane, func(t *testing.T) {
			var served, answered atomic.Int64
			cfg := testConfig(who("api"))
			target := proxy.NewHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				served.Add(1)
				io.WriteString(w, "ok")
			}))
			backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				served.Add(1)
				io.WriteString(w, "ok")
			}))
			defer backend.Close()
			if lane == fast {
				target = proxy.NewUpstream(backend.Listener.Addr().String(), proxy.Options{Log: quiet})
			}
			cfg.FastLane = lane == fast
			cfg.Routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: hosts(target)})
			conns, counted := bounded(4)
			cfg.Conns = conns
			addr, _ := start(t, cfg)
			var callers sync.WaitGroup
			for range 8 {
				callers.Go(func() {
					for range 100 {
						c, err := net.Dial("tcp", addr)
						if err != nil {
							continue
						}
						c.SetDeadline(time.Now().Add(20 * time.Second))
						br := bufio.NewReader(c)
						for range 5 {
							if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+testService+"\r\n\r\n"); err != nil {
								break
							}
							res, err := http.ReadResponse(br, nil)
							if err != nil || res.StatusCode != 200 {
								break
							}
							if text, err := io.ReadAll(res.Body); err == nil && string(text) == "ok" {
								answered.Add(1)
							}
						}
						c.Close()
					}
				})
			}
			callers.Wait()
			require.Equal(t, served.Load(), answered.Load())
			require.Positive(t, counted(idleClosed))
			require.Eventually(t, func() bool { return conns.total() == 0 }, 10*time.Second, time.Millisecond)
		})
	}
}

func TestConns_CountThePlainListenerToo(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	conns, counted := bounded(1)
	srv := NewPlainServer(PlainConfig{Conns: conns, Log: quiet})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	defer func() { srv.Close(); <-served }()
	first, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer first.Close()
	conns.dialled(t, 1)
	second, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	first.SetDeadline(time.Now().Add(20 * time.Second))
	caller{first, bufio.NewReader(first)}.closed(t)
	require.EqualValues(t, 1, counted(idleClosed))
	second.Close()
	require.Eventually(t, func() bool { return conns.total() == 0 }, 10*time.Second, time.Millisecond)
}

// The second of two requests that come together is under way like the first.
func TestConns_CountAPipelinedRequestOfThePlainListener(t *testing.T) {
	conns, _ := bounded(1)
	began, release := make(chan struct{}, 2), make(chan struct{})
	addr := startPlain(t, PlainConfig{Conns: conns, Standing: func(context.Context, string) Standing {
		began <- struct{}{}
		<-release
		return Certain
	}})
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer c.Close()
	const get = "GET / HTTP/1.1\r\nHost: berth.test\r\n\r\n"
	_, err = io.WriteString(c, get+get)
	require.NoError(t, err)
	defer close(release)
	br := bufio.NewReader(c)
	for range 2 {
		<-began
		time.Sleep(50 * time.Millisecond) // for the look at what comes meanwhile
		conns.idleSeats(t, 0)
		release <- struct{}{}
		res, err := http.ReadResponse(br, nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusPermanentRedirect, res.StatusCode)
		require.NoError(t, res.Body.Close())
	}
	conns.idleSeats(t, 1)
}

// Bytes that have come keep a connection from being closed to make room, from the kernel to the
// request that they begin; when nothing has come of them it makes room again.
func TestSeat_IsNotTakenFromWhatHasCome(t *testing.T) {
	near, far := tcpPair(t)
	s := newSeat(nil, near, "")
	since := s.state.Load()
	_, err := io.WriteString(far, "G")
	require.NoError(t, err)
	require.Eventually(t, s.unread, 10*time.Second, time.Millisecond)
	require.False(t, s.take(since), "with bytes in the kernel")
	require.Equal(t, since, s.state.Load())
	b := make([]byte, 1)
	n, err := s.receive(near, b)
	require.NoError(t, err)
	require.Equal(t, "G", string(b[:n]))
	require.Nil(t, takeLongestIdle([]*seat{s}), "with bytes that were read and not looked at")

	read := make(chan error, 1)
	go func() { _, err := s.receive(near, b); read <- err }()
	require.Eventually(t, func() bool { return s.state.Load() == since }, 10*time.Second, time.Millisecond, "nothing came of them")
	_, err = io.WriteString(far, "G")
	require.NoError(t, err)
	require.NoError(t, <-read)
	require.True(t, s.use())
	require.Nil(t, takeLongestIdle([]*seat{s}), "in use")

	now := since + 1
	s.idle(time.Unix(0, now))
	require.Nil(t, takeLongestIdle([]*seat{s}), "with bytes behind the request")
	s.quiet()
	require.Same(t, s, takeLongestIdle([]*seat{s}))
	require.False(t, s.use())
	require.False(t, s.come())
	_, err = s.receive(near, b)
	require.ErrorIs(t, err, net.ErrClosed)
}

// Nobody reads while it is looked whether a connection can be closed.
func TestSeat_IsReadOnlyAfterALook(t *testing.T) {
	for name, after := range map[string]int64{"stays": 7, "is taken off": takenOff} {
		t.Run(name, func(t *testing.T) {
			s := &seat{}
			s.state.Store(lookedAt)
			came := make(chan bool)
			go func() { came <- s.come() }()
			select {
			case <-came:
				t.Error("it did not wait")
			case <-time.After(20 * time.Millisecond):
			}
			s.state.Store(after)
			require.Equal(t, after != takenOff, <-came)
		})
	}
}

// A lane that has read a request keeps its connection, before it has looked at it.
func TestLane_KeepsItsSeatWithWhatItHasRead(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS %v", secure), func(t *testing.T) {
			near, far := tcpPair(t)
			cfg := testConfig(who("api"))
			cfg.FastLane = true
			srv := NewServer(cfg)
			place := newSeat(nil, near, "")
			c := newConn(near, srv, place)
			var nc, caller net.Conn = c, far
			if secure {
				server := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{certificate(t)}})
				done := make(chan error, 1)
				go func() { done <- server.Handshake() }()
				client := tls.Client(far, &tls.Config{InsecureSkipVerify: true})
				require.NoError(t, client.Handshake())
				require.NoError(t, <-done)
				nc, caller = server, client
			}
			l := srv.newLane(c, nc)
			came := make(chan bool)
			go func() { came <- l.await() }()
			require.Eventually(t, func() bool { return place.state.Load() > 0 }, 10*time.Second, time.Millisecond, "it waits")
			_, err := io.WriteString(caller, "GET / HTTP/1.1\r\n")
			require.NoError(t, err)
			require.True(t, <-came)
			require.Nil(t, takeLongestIdle([]*seat{place}))
			require.True(t, place.use())
		})
	}
}
