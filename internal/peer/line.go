package peer

import (
	"context"
	"net"
	"sync"

	"github.com/berth-host/berth/internal/streams"
)

// line is the connection that carries the streams to one node.
type line struct {
	connecting chan struct{} // has a place for the one who connects

	mu      sync.Mutex
	session *streams.Session // the last one; nil before the first
}

func newLine() *line { return &line{connecting: make(chan struct{}, 1)} }

// open opens a stream; nil if there is no connection for it.
func (l *line) open() net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session == nil {
		return nil
	}
	stream, err := l.session.Open()
	if err != nil {
		l.session = nil
		return nil
	}
	return stream
}

// close closes the connection, and reports whether there was one on which streams can be opened:
// one that only ends what is under way is left to a server that stops. The next stream gets a new
// connection.
func (l *line) close() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session == nil {
		return false
	}
	select {
	case <-l.session.Done():
		return false
	default:
	}
	l.session.Close()
	l.session = nil
	return true
}

// use makes a connection that of the line, and opens its first stream.
func (l *line) use(c net.Conn) (net.Conn, error) {
	session := streams.Client(c)
	stream, err := session.Open()
	if err != nil {
		return nil, streams.ErrLeft // at once, as by a server that stops
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session = session
	return stream, nil
}

// dialOn opens a stream to a node, on a new connection if need be. A node that carries no
// streams gets a connection for each.
func (p *Pool) dialOn(ctx context.Context, l *line, node string) (net.Conn, error) {
	if stream := l.open(); stream != nil {
		return stream, nil
	}
	select {
	case l.connecting <- struct{}{}:
		defer func() { <-l.connecting }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if stream := l.open(); stream != nil {
		return stream, nil
	}
	conn, protocol, err := p.connect(ctx, node)
	if err != nil || protocol < streaming {
		return conn, err
	}
	return l.use(conn)
}
