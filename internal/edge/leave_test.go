package edge

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/berth-host/berth/internal/edge/lanetest"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
)

// leavers are the ways in which callers leave.
var leavers = map[string]func(c net.Conn) error{
	"ends its sending side": func(c net.Conn) error { return c.(interface{ CloseWrite() error }).CloseWrite() },
	"closes":                net.Conn.Close,
	"resets": func(c net.Conn) error {
		tcp := carrierOf(c)
		if err := tcp.SetLinger(0); err != nil {
			return err
		}
		return tcp.Close()
	},
}

// carrierOf returns the TCP connection of a caller.
func carrierOf(c net.Conn) *net.TCPConn {
	if s, ok := c.(*tls.Conn); ok {
		return s.NetConn().(*net.TCPConn)
	}
	return c.(*net.TCPConn)
}

// begunBytes are what a service has sent when it goes on in its own way: more than what is copied
// instead of spliced.
var begunBytes = make([]byte, 48<<10)

// begunAnswers are services in the middle of an answer, until its caller leaves.
var begunAnswers = map[string]struct {
	length string // "" for chunks
	goOn   func(w http.ResponseWriter, r *http.Request)
}{
	"chunks, then silence":            {"", waitForEnd},
	"chunks, more now and then":       {"", moreNowAndThen},
	"chunks, more than is taken":      {"", asMuchAsItCan},
	"a length, then silence":          {"10000000", waitForEnd},
	"a length, more now and then":     {"10000000", moreNowAndThen},
	"a length, more than is taken":    {"1000000000000", asMuchAsItCan},
	"a head alone that has a length":  {"10000000 without a byte", waitForEnd},
	"a head alone that has no length": {" without a byte", waitForEnd},
}

func waitForEnd(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func moreNowAndThen(w http.ResponseWriter, r *http.Request) {
	for r.Context().Err() == nil {
		_, _ = io.WriteString(w, "more\n") // the caller may have left
		w.(http.Flusher).Flush()
		wait(r.Context(), time.Millisecond)
	}
}

func asMuchAsItCan(w http.ResponseWriter, _ *http.Request) {
	for err := error(nil); err == nil; {
		_, err = w.Write(begunBytes)
	}
}

// A service learns that its caller has left also while it answers: with chunks, or with a length,
// which the kernel moves on a plain connection, whether something moves or not. The caller does not
// take what it got for the whole.
func TestLane_SeesThatACallerHasLeftInTheMiddleOfAnAnswer(t *testing.T) {
	if lanetest.Fast() {
		t.Skip("it was run with both lanes already")
	}
	own := certificate(t)
	for _, lane := range []string{fast, standard} {
		for _, secure := range []bool{false, true} {
			began, left := make(chan struct{}, 1), make(chan time.Time, 1)
			backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				kind := begunAnswers[r.Header.Get("X-Kind")]
				length, silent := strings.CutSuffix(kind.length, " without a byte")
				if length != "" {
					w.Header().Set("Content-Length", length)
				}
				if !silent {
					_, _ = w.Write(begunBytes)
				}
				w.(http.Flusher).Flush()
				began <- struct{}{}
				kind.goOn(w, r)
				left <- time.Now()
			}))
			t.Cleanup(func() { backend.CloseClientConnections(); backend.Close() })
			cfg := testConfig(who("api"))
			drained(t, cfg.Routes)
			cfg.FastLane = lane == fast
			cfg.Routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: hosts(proxy.NewUpstream(backend.Listener.Addr().String(), proxy.Options{Log: quiet}))})
			if secure {
				cfg.TLS = &tls.Config{Certificates: []tls.Certificate{own}}
			}
			addr, _ := start(t, cfg)
			for kind := range begunAnswers {
				for way, leave := range leavers {
					t.Run(fmt.Sprintf("%s, TLS %v, %s, it %s", lane, secure, kind, way), func(t *testing.T) {
						fastest := time.Hour
						for tries := 0; fastest > 100*time.Millisecond && tries < 50; tries++ { // a busy machine may be late now and then
							c := dialLane(t, addr, secure)
							_, err := io.WriteString(c, soakHead("GET /a")+"X-Kind: "+kind+"\r\n\r\n")
							require.NoError(t, err)
							br := bufio.NewReader(c)
							res, err := http.ReadResponse(br, nil)
							require.NoError(t, err)
							if !strings.Contains(begunAnswers[kind].length, "without") {
								_, err = io.CopyN(io.Discard, res.Body, int64(len(begunBytes)))
								require.NoError(t, err)
							}
							within(t, "the request", began)
							at := time.Now()
							require.NoError(t, leave(c))
							fastest = min(fastest, within(t, "the end", left).Sub(at))
							_, err = io.Copy(io.Discard, res.Body)
							require.Error(t, err, "a part is taken for the whole")
							c.Close()
						}
						require.LessOrEqual(t, fastest, 100*time.Millisecond)
					})
				}
			}
		}
	}
}

// within returns what comes, and fails the test if nothing does.
func within[T any](t *testing.T, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(20 * time.Second):
		t.Fatal("not in time: " + what)
		panic("unreachable")
	}
}

// unwilling is a service that reads the heads of requests and nothing of their bodies, until a
// request is told of the end of its connection.
type unwilling struct {
	net.Listener
	began chan struct{}
	left  chan time.Time // when it was told
	rest  chan int64     // of a body, read once it was told
}

func newUnwilling(t *testing.T) *unwilling {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	u := &unwilling{l, make(chan struct{}, 1), make(chan time.Time, 1), make(chan int64, 1)}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go u.serve(c.(*net.TCPConn))
		}
	}()
	return u
}

func (u *unwilling) serve(c *net.TCPConn) {
	defer c.Close()
	_ = c.SetReadBuffer(4 << 10)
	br := bufio.NewReaderSize(c, 16)
	for line := "."; line != "\r\n"; {
		var err error
		if line, err = br.ReadString('\n'); err != nil {
			return
		}
	}
	u.began <- struct{}{}
	raw, _ := c.SyscallConn()
	for told := false; !told; time.Sleep(time.Millisecond) {
		err := raw.Control(func(fd uintptr) {
			seen := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
			n, _ := unix.Poll(seen, 0)
			told = n > 0
		})
		if err != nil {
			return // the test has ended
		}
	}
	u.left <- time.Now()
	n, _ := io.Copy(io.Discard, br)
	u.rest <- n
}

// A caller may leave while its upload waits for a service that reads nothing of it: in the middle of
// what has come, with as much behind as there is room for, or with all of it in the kernel. Where
// the lane still has to read the body, the kernel says so, which knows the end of the connection but
// no farewell in TLS.
func TestLane_SeesThatACallerHasLeftWhoseUploadNobodyReads(t *testing.T) {
	if lanetest.Fast() {
		t.Skip("it has lane one already")
	}
	const large, whole = 64 << 20, 1 << 20
	for _, secure := range []bool{false, true} {
		for way, leave := range map[string]func(net.Conn) error{
			"ends its sending side": func(c net.Conn) error { return carrierOf(c).CloseWrite() },
			"resets":                leavers["resets"],
			"says farewell":         leavers["ends its sending side"],
		} {
			for sent, send := range map[string]func(t *testing.T, c net.Conn, srv *Server) int{
				"a part": func(t *testing.T, c net.Conn, _ *Server) int { return sendBody(t, c, large, len(soakBlock)) },
				"what there is room for": func(t *testing.T, c net.Conn, srv *Server) int {
					return sendBody(t, c, large, 0) + fill(t, c, srv, large)
				},
				"all": func(t *testing.T, c net.Conn, _ *Server) int { return sendBody(t, c, whole, whole) },
			} {
				if secure && way == "says farewell" && sent != "all" {
					continue // it lies behind what nobody has read
				}
				t.Run(fmt.Sprintf("TLS %v, behind %s it %s", secure, sent, way), func(t *testing.T) {
					service := newUnwilling(t)
					cfg := testConfig(who("api"))
					drained(t, cfg.Routes)
					cfg.FastLane = true
					if secure {
						cfg.TLS = &tls.Config{Certificates: []tls.Certificate{certificate(t)}}
					}
					cfg.Routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: hosts(proxy.NewUpstream(service.Addr().String(), proxy.Options{Log: quiet}))})
					addr, srv := start(t, cfg)
					fastest := time.Hour
					for tries := 0; fastest > 100*time.Millisecond && tries < 50; tries++ { // a busy machine may be late now and then
						c := dialLane(t, addr, secure)
						n := send(t, c, srv)
						within(t, "the request", service.began)
						at := time.Now()
						require.NoError(t, leave(c))
						fastest = min(fastest, within(t, "the end", service.left).Sub(at))
						require.LessOrEqual(t, within(t, "the rest", service.rest), int64(n))
						require.Eventually(t, func() bool { return srv.lanes.count() == 0 }, 10*time.Second, time.Millisecond)
						c.Close()
					}
					require.LessOrEqual(t, fastest, 100*time.Millisecond)
				})
			}
		}
	}
}

// sendBody sends a request with a body of a length, and as many bytes of that.
func sendBody(t *testing.T, c net.Conn, length, sent int) int {
	t.Helper()
	_, err := fmt.Fprintf(c, soakHead("POST /a")+"Content-Length: %d\r\n\r\n", length)
	require.NoError(t, err)
	_, err = c.Write(make([]byte, sent))
	require.NoError(t, err)
	return sent
}

// fill sends more bytes of a body until the only lane of a server has not read some for a while,
// and returns how many.
func fill(t *testing.T, c net.Conn, srv *Server, most int) (sent int) {
	t.Helper()
	var near *net.TCPConn
	require.Eventually(t, func() bool {
		srv.lanes.mu.Lock()
		defer srv.lanes.mu.Unlock()
		for l := range srv.lanes.all {
			near = l.c.TCPConn
		}
		return near != nil
	}, 10*time.Second, time.Millisecond)
	for still := 0; still < 20; {
		if pending(t, near) > 0 {
			still++
			time.Sleep(time.Millisecond)
			continue
		}
		still = 0
		n, err := c.Write(soakBlock[:16<<10])
		require.NoError(t, err)
		sent += n
		require.Less(t, sent, most, "somebody reads all of it")
	}
	return sent
}
