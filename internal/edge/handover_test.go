package edge

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/edge/lanetest"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/wire"
)

// What lane one hands over reaches net/http byte for byte, wherever what came before was cut.
func TestLane_HandsOverEveryByte(t *testing.T) {
	if lanetest.Fast() {
		t.Skip("it has lane one already")
	}
	var all []string
	for _, seed := range seeds() {
		if len(handedOf(seed)) > 0 {
			all = append(all, seed)
		}
	}
	require.Greater(t, len(all), 300)
	const workers = 8
	for worker := range workers {
		t.Run(strconv.Itoa(worker), func(t *testing.T) {
			t.Parallel()
			plain, secure := newHandOvers(t, false), newHandOvers(t, true)
			for i := worker; i < len(all); i += workers {
				seed := all[i]
				plain.check(t, seed, len(seed))
				for _, cut := range cuts(seed) {
					plain.check(t, seed, cut)
				}
				secure.check(t, seed, 1+i%len(seed))
			}
			for cut := range len(all[worker]) {
				secure.check(t, all[worker], cut+1)
			}
		})
	}
}

// A request that is handed over may come behind one that is not, wherever what came of it by then
// was cut: while the first one is served, or once it has been answered.
func TestLane_HandsOverEveryByteOfASecondRequest(t *testing.T) {
	if lanetest.Fast() {
		t.Skip("it has lane one already")
	}
	firsts := []string{
		soakHead("GET /a") + "\r\n",
		soakHead("POST /a") + "Content-Length: 3\r\n\r\nabc", // behind which an end of line is nothing
	}
	var all []string
	for i, seed := range seeds() {
		if text := firsts[i%2] + seed; len(handedOf(seed)) == len(seed) && handedOf(text) != "" {
			all = append(all, text)
		}
	}
	require.Greater(t, len(all), 300)
	const workers, share = 8, 20 // of how many one is cut everywhere
	for worker := range workers {
		t.Run(strconv.Itoa(worker), func(t *testing.T) {
			t.Parallel()
			plain, secure := newHandOvers(t, false), newHandOvers(t, true)
			for i := worker; i < len(all); i += workers {
				text, first := all[i], len(firsts[0])
				if !strings.HasPrefix(text, firsts[0]) {
					first = len(firsts[1])
				}
				at := cuts(text[first:])
				if i/workers%share != 0 {
					at = at[i%len(at):][:1]
				}
				for _, cut := range at {
					plain.checkSecond(t, text, first+cut, false)
					plain.checkSecond(t, text, first+cut, true)
					if cut == at[0] || i == worker {
						secure.checkSecond(t, text, first+cut, cut%2 == 0)
					}
				}
			}
		})
	}
}

// cuts returns where to cut a text: at every place of its first head, and at some behind it.
func cuts(text string) (at []int) {
	head := wire.BlockEnd([]byte(text))
	if head < 20 { // it has none, or begins with an empty line
		head = len(text)
	}
	for i := 1; i < len(text); i++ {
		if i <= head || i%16 == 0 {
			at = append(at, i)
		}
	}
	return at
}

// handedOf returns what of the bytes of a connection is not for lane one.
func handedOf(text string) string {
	rest := []byte(text)
	e := newEdge(testConfig(nil))
	var s wire.Scanner
	for posted := false; len(rest) > 0; {
		if posted { // net/http skips the same (RFC 9112, 2.2)
			rest = append(bytes.TrimLeft(rest[:min(4, len(rest))], "\r\n"), rest[min(4, len(rest)):]...)
		}
		var r wire.Request
		n, verdict := s.Scan(&r, rest)
		host, valid := parseHost(r.Host)
		switch {
		case verdict == wire.Partial, len(rest) < leastHead && len(rest) < len(text):
			return "" // the lane waits
		case verdict != wire.Plain || !valid || e.split(host) != toService:
			return string(rest)
		case r.Close || int64(len(rest)-n) < r.Length:
			return ""
		}
		rest, posted = rest[n+int(r.Length):], r.Method == http.MethodPost
	}
	return ""
}

// handOvers is a server whose connections with net/http a test takes in its place.
type handOvers struct {
	srv      *Server
	over     *acceptor
	listener net.Listener
	client   *tls.Config // nil for plain connections
}

func newHandOvers(t *testing.T, secure bool) *handOvers {
	backend := httptest.NewServer(who("web"))
	t.Cleanup(backend.Close)
	cfg := testConfig(who("api"))
	cfg.FastLane = true
	cfg.Routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: hosts(proxy.NewUpstream(backend.Listener.Addr().String(), proxy.Options{Log: quiet}))})
	drained(t, cfg.Routes)
	h := &handOvers{}
	if secure {
		cfg.TLS = &tls.Config{Certificates: []tls.Certificate{certificate(t)}}
		h.client = &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}, ServerName: "test", ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	}
	var err error
	h.listener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h.srv = NewServer(cfg)
	h.over = newAcceptor(h.listener, h.srv)
	require.NoError(t, h.srv.lanes.open(h.over))
	t.Cleanup(func() { h.over.Close(); h.srv.Close() })
	return h
}

// check sends a text in two parts, the second one once the first has been read, and compares what
// is handed over.
func (h *handOvers) check(t *testing.T, text string, cut int) {
	t.Helper()
	h.checkSecond(t, text, cut, false)
}

// checkSecond is check for a text that begins with a request for lane one, if answered is set: the
// second part is sent once that has been answered.
func (h *handOvers) checkSecond(t *testing.T, text string, cut int, answered bool) {
	t.Helper()
	far, err := net.Dial("tcp", h.listener.Addr().String())
	require.NoError(t, err)
	defer far.Close()
	require.NoError(t, far.(*net.TCPConn).SetLinger(0)) // ends without waiting for late segments: there are many
	require.NoError(t, far.SetDeadline(time.Now().Add(20*time.Second)))
	nc, err := h.listener.Accept()
	require.NoError(t, err)
	near := nc.(*net.TCPConn)
	defer near.Close()
	go h.over.begin(newConn(near, h.srv, nil))
	if h.client != nil {
		s := tls.Client(far, h.client)
		require.NoError(t, s.Handshake())
		far = s
	}
	_, err = io.WriteString(far, text[:cut])
	require.NoError(t, err)
	if answered {
		res, err := http.ReadResponse(bufio.NewReader(far), nil)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, res.Body)
		require.NoError(t, err, "of %q, cut at %d", text, cut)
	}
	if cut < len(text) {
		awaitRead(t, near)
		_, err = io.WriteString(far, text[cut:])
		require.NoError(t, err)
	}
	c, err := h.over.Accept()
	require.NoError(t, err)
	if w := unwrap(c).watch; w != nil { // as net/http has it done at the end of a connection
		defer w.follow(http.StateClosed)
	}
	want := handedOf(text)
	got := make([]byte, len(want))
	require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
	n, err := io.ReadFull(c, got)
	require.NoError(t, err, "%q of %q, cut at %d", got[:n], text, cut)
	require.Equal(t, want, string(got), "cut at %d", cut)
	require.NoError(t, far.(interface{ CloseWrite() error }).CloseWrite())
	more, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Empty(t, more, "of %q, cut at %d", text, cut)
}

// awaitRead waits until something has been read of what has come to a connection.
func awaitRead(t *testing.T, tcp *net.TCPConn) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); pending(t, tcp) > 0; runtime.Gosched() {
		require.True(t, time.Now().Before(end), "nothing is read")
	}
}
