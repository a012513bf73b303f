package edge

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/edge/lanetest"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
)

// leavingServer is a server with lane one, and callers of it.
type leavingServer struct {
	addr   string
	srv    *Server
	secure bool
	began  chan string   // paths, once their handlers have begun
	goOn   chan struct{} // closed for the handlers to go on
}

// wholeAnswer is more than what is copied instead of spliced.
var wholeAnswer = bytes.Repeat([]byte("0123456789abcdef"), 64<<10)

func newLeavingServer(t *testing.T, secure bool) *leavingServer {
	s := &leavingServer{secure: secure, began: make(chan string, 10), goOn: make(chan struct{})}
	backend := httptest.NewServer(s)
	t.Cleanup(func() { backend.CloseClientConnections(); backend.Close() })
	cfg := testConfig(who("api"))
	drained(t, cfg.Routes)
	cfg.FastLane = true
	if secure {
		cfg.TLS = &tls.Config{Certificates: []tls.Certificate{certificate(t)}}
	}
	cfg.Routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: hosts(proxy.NewUpstream(backend.Listener.Addr().String(), proxy.Options{Log: quiet}))})
	s.addr, s.srv = start(t, cfg)
	return s
}

// ServeHTTP is the service.
func (s *leavingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Length", fmt.Sprint(len(wholeAnswer)))
	switch r.URL.Path {
	case "/begun":
		_, _ = w.Write(wholeAnswer[:32<<10])
		w.(http.Flusher).Flush()
		s.began <- r.URL.Path
		s.await(r)
		_, _ = w.Write(wholeAnswer[32<<10:])
	case "/waits":
		s.began <- r.URL.Path
		s.await(r)
		_, _ = w.Write(wholeAnswer)
	case "/upload":
		s.began <- r.URL.Path
		body, _ := io.ReadAll(r.Body) // the test compares it
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		_, _ = w.Write(body)
	default:
		w.Header().Set("Content-Length", "2")
		_, _ = io.WriteString(w, "ok")
	}
}

// await waits until handlers go on, or the caller of one has left.
func (s *leavingServer) await(r *http.Request) {
	select {
	case <-s.goOn:
	case <-r.Context().Done():
	}
}

// leavingCall is a connection of a caller.
type leavingCall struct {
	net.Conn
	br *bufio.Reader
}

// call connects, and sends text.
func (s *leavingServer) call(t *testing.T, text string) leavingCall {
	t.Helper()
	c := dialLane(t, s.addr, s.secure)
	_, err := io.WriteString(c, text)
	require.NoError(t, err)
	return leavingCall{c, bufio.NewReader(c)}
}

// ends returns when nothing came but the end.
func (c leavingCall) ends(t *testing.T, who string) time.Time {
	t.Helper()
	_, err := c.br.ReadByte()
	require.ErrorIs(t, err, io.EOF, who)
	return time.Now()
}

// answer reads an answer, and then the end if it must come.
func (c leavingCall) answer(t *testing.T, want []byte, last, ends bool) {
	t.Helper()
	res, err := http.ReadResponse(c.br, nil)
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, body), "%d bytes", len(body))
	require.Equal(t, last, res.Close)
	if ends {
		c.ends(t, "the end behind an answer")
	}
}

// When a server stops, connections of lane one that carry nothing end, those without a request yet
// with some patience. What is under way ends whole, and its connection with it, which its head says
// unless it has been sent.
func TestShutdown_EndsConnectionsOfLaneOneBehindWhatTheyCarry(t *testing.T) {
	if lanetest.Fast() {
		t.Skip("it has lane one already")
	}
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS %v", secure), func(t *testing.T) {
			s := newLeavingServer(t, secure)
			used := s.call(t, soakHead("GET /small")+"\r\n")
			used.answer(t, []byte("ok"), false, false)
			newcomers := []leavingCall{s.call(t, ""), s.call(t, "GET /sma")}
			begun := s.call(t, soakHead("GET /begun")+"\r\n")
			_, err := begun.br.Peek(1) // its head is sent
			require.NoError(t, err)
			waits := s.call(t, soakHead("GET /waits")+"\r\n")
			half := len(wholeAnswer) / 2
			upload := s.call(t, fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", soakHead("POST /upload"), len(wholeAnswer), wholeAnswer[:half]))
			for range 3 {
				within(t, "a request", s.began)
			}
			require.Eventually(t, func() bool { return s.srv.lanes.count() == 6 }, 10*time.Second, time.Millisecond)

			began, down := time.Now(), make(chan error, 1)
			go func() { down <- s.srv.Shutdown(context.Background()) }()
			used.ends(t, "an idle connection")
			for _, c := range newcomers {
				require.GreaterOrEqual(t, c.ends(t, "a connection without a request").Sub(began), newcomer)
			}
			require.Empty(t, down, "it has not waited for what is under way")

			_, err = upload.Write(wholeAnswer[half:])
			require.NoError(t, err)
			upload.answer(t, wholeAnswer, true, true)
			close(s.goOn)
			begun.answer(t, wholeAnswer, false, true)
			waits.answer(t, wholeAnswer, true, true)
			require.NoError(t, within(t, "the end of the server", down))
		})
	}
}

// A connection that has carried a request ends at once.
func TestShutdown_HasNoPatienceWithConnectionsThatWereUsed(t *testing.T) {
	if lanetest.Fast() {
		t.Skip("it has lane one already")
	}
	for _, secure := range []bool{false, true} {
		fastest := time.Hour
		for tries := 0; fastest > newcomer/2 && tries < 20; tries++ { // a busy machine may be late now and then
			s := newLeavingServer(t, secure)
			used := s.call(t, soakHead("GET /small")+"\r\n")
			used.answer(t, []byte("ok"), false, false)
			began := time.Now()
			require.NoError(t, s.srv.Shutdown(t.Context()))
			fastest = min(fastest, used.ends(t, "an idle connection").Sub(began))
		}
		require.LessOrEqual(t, fastest, newcomer/2, "TLS %v", secure)
	}
}

// A first request that comes soon after a server has begun to stop is answered.
func TestShutdown_AnswersARequestThatWasOnItsWay(t *testing.T) {
	if lanetest.Fast() {
		t.Skip("it has lane one already")
	}
	for _, secure := range []bool{false, true} {
		for _, part := range []int{0, 10} { // what has come before
			t.Run(fmt.Sprintf("TLS %v, behind %d bytes", secure, part), func(t *testing.T) {
				for tries := 1; ; tries++ { // a busy machine may be late now and then
					s := newLeavingServer(t, secure)
					used, request := s.call(t, soakHead("GET /small")+"\r\n"), soakHead("GET /small")+"\r\n"
					used.answer(t, []byte("ok"), false, false)
					late := s.call(t, request[:part])
					require.Eventually(t, func() bool { return s.srv.lanes.count() == 2 }, 10*time.Second, time.Millisecond)
					down := make(chan error, 1)
					go func() { down <- s.srv.Shutdown(context.Background()) }()
					used.ends(t, "an idle connection") // so it has begun
					_, err := io.WriteString(late, request[part:])
					if _, failed := late.br.Peek(1); (err != nil || failed != nil) && tries < 10 {
						continue
					}
					require.NoError(t, err)
					late.answer(t, []byte("ok"), true, true)
					require.NoError(t, within(t, "the end of the server", down))
					return
				}
			})
		}
	}
}
