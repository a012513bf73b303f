package edge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-host/berth/internal/streams"
)

// peer is the other end of a connection, determined once for all its requests.
type peer struct {
	ip   netip.Addr
	text string
}

// conn is a caller's connection. It knows whether net/http is about to close it on an
// unread upload, and rewrites what net/http answers without a handler.
type conn struct {
	*net.TCPConn // nil for a stream
	srv          *Server
	peer         peer
	framing      *framing      // of an HTTP/1 connection; nil for HTTP/2, and until the protocol is known
	tls          bool          // framing follows the decrypted bytes, not those of this connection
	busy         atomic.Bool   // a handler has the request
	unread       atomic.Bool   // the last request's body was not read to its end
	linger       sync.Once     // starts readRest
	stream       *streams.Conn // instead of TCPConn; see overStream
	arrived      func()        // tells that a handler has the first request of a stream, or that it has ended
	watch        *watch        // over its exchanges with services; nil before the first
	cutting      func()        // tells a lane that cutOff has closed the connection; nil for none
	now          bool          // reads do not wait, if they are those of TLS
	whole        time.Time     // until when the head that a lane has begun to read must be whole; zero for none
	seat         *seat         // among the connections of its client network; nil if it is not counted
}

const (
	lingerTotal = 30 * time.Second // for the rest of an upload
	lingerIdle  = 5 * time.Second  // for its next bytes
	// lingerBytes is how much of an unwanted upload is read after its answer, so that
	// callers that write first and read later see the answer.
	lingerBytes = 64 << 20
)

func newConn(tcp *net.TCPConn, srv *Server, s *seat) *conn {
	return &conn{TCPConn: tcp, srv: srv, seat: s, peer: peerOf(tcp.RemoteAddr().String())}
}

func peerOf(address string) peer {
	ip, ok := parseIP(address)
	if !ok {
		return peer{text: address}
	}
	return peer{ip: ip, text: ip.String()}
}

type connKey struct{}

// withConn is http.Server's ConnContext: it lets requests find their connection.
func withConn(ctx context.Context, nc net.Conn) context.Context {
	if c := unwrap(nc); c != nil {
		return context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}

// unwrap returns our connection inside the one that net/http holds, or nil.
func unwrap(nc net.Conn) *conn {
	switch nc := nc.(type) {
	case *conn:
		return nc
	case overStream:
		return nc.state
	case interface{ NetConn() net.Conn }: // behind TLS
		c, _ := nc.NetConn().(*conn)
		return c
	}
	return nil
}

// connOf returns the connection of r; nil if a Server of this package does not serve
// it.
func connOf(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c
}

func (c *conn) peerOf(r *http.Request) peer {
	if c == nil {
		return peerOf(r.RemoteAddr)
	}
	return c.peer
}

// beginRequest is called when a handler starts on r. It returns what framing.begin
// does.
func (c *conn) beginRequest(r *http.Request) (trusted, last bool) {
	if c == nil {
		return true, false
	}
	c.busy.Store(true)
	c.unread.Store(false)
	if c.stream != nil {
		c.arrived()
	}
	if c.framing == nil {
		return true, false
	}
	trusted, last = c.framing.begin(r)
	if !trusted {
		c.unread.Store(true) // nobody knows where its body ends
		c.stopReads()        // so net/http does not wait for that before it closes
	}
	return trusted, last
}

// stopReads makes reads fail.
func (c *conn) stopReads() {
	if c.stream != nil {
		c.stream.SetReadDeadline(time.Unix(1, 0))
		return
	}
	c.SetReadDeadline(time.Unix(1, 0))
}

// Read reads up to the end of a request's head or body if the bytes arrive as plain
// HTTP/1; see framing.
func (c *conn) Read(b []byte) (int, error) {
	switch {
	case c.now:
		return c.readNow(b)
	case c.framing == nil || c.tls:
		return c.seat.receive(c.TCPConn, b)
	}
	return c.seat.read(c.framing.read((*arrivals)(c), b))
}

// arrivals reads what arrives on a connection, whatever it is.
type arrivals conn

func (a *arrivals) Read(b []byte) (int, error) { return a.seat.receive(a.TCPConn, b) }

// SetReadDeadline is that of net.Conn. The deadline of a head that a lane has begun to read stays
// until net/http has the head, and sets another one.
func (c *conn) SetReadDeadline(t time.Time) error {
	if !c.whole.IsZero() {
		if t.IsZero() {
			c.whole = time.Time{}
		} else if t.After(c.whole) {
			t = c.whole
		}
	}
	return c.TCPConn.SetReadDeadline(t)
}

// CloseWrite ends the answers; from then on what the caller still uploads is read.
func (c *conn) CloseWrite() error {
	err := c.TCPConn.CloseWrite()
	if c.unread.Load() {
		c.startLinger()
	}
	return err
}

// Close closes the connection after reading the rest of an unread upload: closing at
// once would reset the connection, and the caller might never see its answer.
func (c *conn) Close() error {
	if !c.unread.Load() {
		return c.closeNow()
	}
	c.startLinger()
	return nil
}

// closeNow closes the connection and gives its place among those of its network back.
func (c *conn) closeNow() error {
	c.seat.leave()
	return c.TCPConn.Close()
}

func (c *conn) startLinger() {
	c.linger.Do(func() { c.srv.lingering.Go(c.readRest) })
}

// readRest reads, within limits, what the caller still sends, and closes.
func (c *conn) readRest() {
	defer c.closeNow()
	if err := c.TCPConn.CloseWrite(); err != nil && !errors.Is(err, net.ErrClosed) {
		return
	}
	end := time.Now().Add(lingerTotal)
	buf := make([]byte, 16<<10)
	for left := int64(lingerBytes); left > 0 && time.Now().Before(end); {
		c.TCPConn.SetReadDeadline(time.Now().Add(lingerIdle))
		n, err := c.TCPConn.Read(buf)
		if left -= int64(n); err != nil {
			return
		}
	}
}

// Write passes on what handlers write, and turns net/http's own errors about requests
// that it cannot parse into JSON.
func (c *conn) Write(p []byte) (int, error) {
	if !c.busy.Load() {
		if answer := rewritten(p); answer != nil {
			if _, err := c.TCPConn.Write(answer); err != nil {
				return 0, err
			}
			c.unread.Store(true) // it may still be sending
			return len(p), nil
		}
	}
	return c.TCPConn.Write(p)
}

var (
	plainHead = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")
	statusOne = []byte("HTTP/1.1 ")
	expecting = []byte("HTTP/1.1 417 ")
)

// rewritten returns net/http's own error p with a JSON body; nil if p is something
// else.
func rewritten(p []byte) []byte {
	line, _, ok := bytes.Cut(p, []byte("\r\n"))
	if !ok || !bytes.HasPrefix(line, statusOne) {
		return nil
	}
	var detail string
	if bytes.HasPrefix(line, expecting) {
		detail = "the only supported expectation is Expect: 100-continue; send the request without that header"
	} else if text, ok := bytes.CutPrefix(p[len(line):], plainHead); ok {
		detail = parseFault(line[len(statusOne):], text)
	} else {
		return nil
	}
	body := detailJSON(detail)
	return fmt.Appendf(nil, "%s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", line, len(body), body)
}

// parseFault translates net/http's text about a request into our words.
func parseFault(status, text []byte) string {
	switch {
	case bytes.HasPrefix(status, []byte("431")):
		return "the request's headers are too large; send fewer or shorter ones"
	case bytes.HasPrefix(status, []byte("501")):
		return "the only supported transfer encoding is chunked"
	case bytes.HasPrefix(status, []byte("505")):
		return "the supported protocol versions are HTTP/1.0 and HTTP/1.1"
	}
	if _, reason, ok := bytes.Cut(text, []byte(": ")); ok {
		return "the request is not valid HTTP/1.1: " + string(reason)
	}
	return "the request is not valid HTTP/1.1; check its request line, where % stands only before two hexadecimal digits, its headers and its body length"
}

// body marks its connection as having unread bytes until the body is read to its end.
type body struct {
	io.ReadCloser
	outer, inner *http.Request
	conn         *conn
}

// trackBody makes the body of inner, a copy of outer, record when it has been read.
func trackBody(outer, inner *http.Request, c *conn) *http.Request {
	if outer.ContentLength == 0 || outer.Body == http.NoBody {
		return inner
	}
	if c != nil && outer.ProtoMajor == 1 {
		c.unread.Store(true)
	}
	inner.Body = &body{ReadCloser: outer.Body, outer: outer, inner: inner, conn: c}
	return inner
}

// Read reads the body. net/http sets unannounced trailers on the request it made
// itself, so Read copies them.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.inner.Trailer = b.outer.Trailer
		if b.conn != nil {
			b.conn.unread.Store(false)
		}
	}
	return n, err
}
