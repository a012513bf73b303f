package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"sync"
	"time"
)

// secure is a connection whose bytes are HTTP/1 once they are decrypted.
type secure struct {
	*tls.Conn
	framing *framing
	seat    *seat
}

// Read reads up to the end of a request's head or body; see framing.
func (s secure) Read(b []byte) (int, error) { return s.seat.read(s.framing.read(s.Conn, b)) }

// acceptor accepts connections, gives each a goroutine, and gives net/http those that it is
// to serve. With TLS that is after their handshake, because only then is it known whether
// they speak HTTP/1, whose framing is followed, or carry streams that do. All others go to
// net/http as *tls.Conn: it serves HTTP/2 only on that type, and answers connections whose
// handshake failed. Those that speak HTTP/1 begin in the first lane, if there is one.
type acceptor struct {
	net.Listener
	srv      *Server
	sessions sessions
	accepted chan accepted
	left     sync.Once       // closes Listener
	open     context.Context // ends with Close
	end      context.CancelFunc
}

// accepted is a result of Accept.
type accepted struct {
	conn net.Conn
	err  error
}

func newAcceptor(l net.Listener, srv *Server) *acceptor {
	t := &acceptor{Listener: l, srv: srv, accepted: make(chan accepted)}
	t.open, t.end = context.WithCancel(context.Background())
	return t
}

// Accept waits for the next connection for net/http.
func (l *acceptor) Accept() (net.Conn, error) {
	select {
	case a := <-l.accepted:
		return a.conn, a.err
	case <-l.open.Done():
		return nil, net.ErrClosed
	}
}

// leave accepts no more connections, and returns once handlers have the requests on the
// streams that other nodes have opened, or when ctx ends.
func (l *acceptor) leave(ctx context.Context) {
	l.left.Do(func() { l.Listener.Close() })
	l.sessions.leave(ctx)
}

// Close closes the listener, and every connection that Accept has not returned.
func (l *acceptor) Close() (err error) {
	l.end()
	l.left.Do(func() { err = l.Listener.Close() })
	return err
}

// acceptAll accepts until leave or Close. It does not wait for handshakes.
func (l *acceptor) acceptAll() {
	for l.open.Err() == nil {
		nc, err := l.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			l.deliver(accepted{err: err})
			continue
		}
		if c := l.srv.admit(nc); c != nil {
			go l.begin(c)
		}
	}
}

// deliver passes a to Accept, and reports whether Accept was still there to receive it.
func (l *acceptor) deliver(a accepted) bool {
	select {
	case l.accepted <- a:
		return true
	case <-l.open.Done():
		return false
	}
}

// begin serves c in the first lane, after a handshake where there is TLS, or passes it to
// Accept.
func (l *acceptor) begin(c *conn) {
	if l.srv.edge.cfg.TLS == nil {
		l.srv.count(fast)
		l.srv.newLane(c, c).serve()
		return
	}
	l.handshake(c)
}

// handshake does the handshake of c and serves the connection, or passes it to Accept.
func (l *acceptor) handshake(c *conn) {
	t := tls.Server(c, l.srv.http.TLSConfig)
	peers, arrived := l.srv.edge.cfg.Peers, func() {}
	if peers != nil {
		arrived = l.sessions.expect()
	}
	defer arrived()
	c.SetDeadline(time.Now().Add(headTimeout))
	err := t.HandshakeContext(l.open)
	c.SetDeadline(time.Time{})
	a := accepted{conn: t}
	p := t.ConnectionState().NegotiatedProtocol
	if err == nil && peers != nil && peers.Streams(p) {
		l.serveStreams(t, c, arrived)
		return
	}
	if err == nil && p != "h2" && l.srv.lanes != nil {
		l.srv.count(fast)
		l.srv.newLane(c, t).serve()
		return
	}
	l.srv.count(standard)
	if err == nil && p != "h2" {
		c.framing, c.tls = &framing{}, true
		a.conn = secure{t, c.framing, c.seat}
	}
	if !l.deliver(a) {
		c.Close()
	}
}

// withProtocols returns cfg with the protocols of the server; nil stays nil.
func withProtocols(cfg *tls.Config) *tls.Config {
	if cfg == nil {
		return nil
	}
	cfg = cfg.Clone()
	for _, p := range []string{"h2", "http/1.1"} {
		if !slices.Contains(cfg.NextProtos, p) {
			cfg.NextProtos = append(slices.Clip(cfg.NextProtos), p)
		}
	}
	return cfg
}
