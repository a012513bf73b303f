package edge

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/streams"
)

// leaveLimit is how long another node may take to hear that it is to open no more streams.
const leaveLimit = time.Second

// overStream is a connection of HTTP/1 that is a stream from another node.
type overStream struct {
	net.Conn // the stream
	state    *conn
	tls      *tls.Conn // that carries it
}

// Read reads up to the end of a request's head or body; see framing.
func (o overStream) Read(b []byte) (int, error) { return o.state.framing.read(o.Conn, b) }

// CloseWrite ends what is sent.
func (o overStream) CloseWrite() error { return o.state.stream.CloseWrite() }

// ConnectionState makes net/http know whose certificate the requests come with.
func (o overStream) ConnectionState() tls.ConnectionState { return o.tls.ConnectionState() }

// sessions are the connections of a listener that carry streams.
type sessions struct {
	mu      sync.Mutex
	all     map[*streams.Session]struct{}
	leaving bool
}

// serveStreams passes the streams of a connection, whose handshake was done, to Accept.
func (l *acceptor) serveStreams(t *tls.Conn, c *conn) {
	s := streams.Serve(t, func(stream *streams.Conn) {
		state := &conn{srv: l.srv, peer: c.peer, framing: &framing{}, tls: true, stream: stream}
		go func() {
			if !l.deliver(accepted{conn: overStream{stream, state, t}}) {
				stream.Close()
			}
		}()
	})
	if !l.sessions.add(s) {
		go s.Leave(l.open)
	}
	select {
	case <-s.Done():
	case <-l.open.Done():
		s.Leave(l.open)
	}
	l.sessions.remove(s)
}

// add adds a session, and reports false if all are asked to leave.
func (all *sessions) add(s *streams.Session) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.all == nil {
		all.all = map[*streams.Session]struct{}{}
	}
	all.all[s] = struct{}{}
	return !all.leaving
}

func (all *sessions) remove(s *streams.Session) {
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.all, s)
}

// leave asks the other nodes to open no more streams, and returns once Accept has got those
// that were opened.
func (all *sessions) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaveLimit)
	defer cancel()
	var asked sync.WaitGroup
	all.mu.Lock()
	all.leaving = true
	for s := range all.all {
		asked.Go(func() { s.Leave(ctx) })
	}
	all.mu.Unlock()
	asked.Wait()
}
