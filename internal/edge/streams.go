package edge

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/streams"
)

const (
	// leaveLimit is how long another node may take to hear that it is to open no more streams,
	// and to send the requests on those that it has opened.
	leaveLimit = time.Second
	// arrivedEvery is how often leave looks whether they have arrived.
	arrivedEvery = time.Millisecond
)

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

	coming atomic.Int64 // handshakes, and streams whose first request no handler has yet
}

// expect counts something that is coming until the function that it returns is called.
func (all *sessions) expect() (arrived func()) {
	all.coming.Add(1)
	return sync.OnceFunc(func() { all.coming.Add(-1) })
}

// serveStreams passes the streams of a connection, whose handshake was done, to Accept. It
// calls arrived once leave knows of them.
func (l *acceptor) serveStreams(t *tls.Conn, c *conn, arrived func()) {
	s := streams.Serve(t, func(stream *streams.Conn) {
		state := &conn{srv: l.srv, peer: c.peer, framing: &framing{}, tls: true, stream: stream, arrived: l.sessions.expect()}
		go func() {
			if !l.deliver(accepted{conn: overStream{stream, state, t}}) {
				state.arrived()
				stream.Close()
			}
		}()
	})
	if !l.sessions.add(s) {
		s.Leave(l.open)
	}
	arrived()
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

// leave asks the other nodes to open no more streams, and returns once handlers have the
// requests on those that were opened: after its Shutdown, net/http answers none.
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
	for all.coming.Load() > 0 && pause.For(ctx, arrivedEvery) {
	}
}
