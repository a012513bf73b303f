package api

import (
	"errors"
	"net"
	"time"

	"github.com/valyala/fasthttp"
)

// listener wraps every connection so that a waiting handler can watch it.
type listener struct{ net.Listener }

// Accept waits for the next connection.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err // fasthttp compares it
	}
	return &conn{Conn: c}, nil
}

// conn can read one byte ahead, which is the only way to notice that the other side has
// hung up. The read stays pending when nobody watches any more; the next Read takes
// over its result.
type conn struct {
	net.Conn
	ahead *lookahead // nil when nothing was read ahead
}

// lookahead is one read of one byte.
type lookahead struct {
	done chan struct{} // closed when the fields below are set
	gone chan struct{} // closed when the other side hung up
	b    [1]byte
	n    int
	err  error
}

// watch returns a channel that is closed when the other side hangs up. The request's
// body must have been read to its end.
func (c *conn) watch() <-chan struct{} {
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return nil
	}
	if c.ahead == nil {
		c.ahead = &lookahead{done: make(chan struct{}), gone: make(chan struct{})}
		go c.ahead.read(c.Conn)
	}
	return c.ahead.gone
}

func (l *lookahead) read(c net.Conn) {
	l.n, l.err = c.Read(l.b[:])
	var network net.Error
	if l.err != nil && !(errors.As(l.err, &network) && network.Timeout()) {
		close(l.gone)
	}
	close(l.done)
}

// Read returns what was read ahead before what follows it.
func (c *conn) Read(p []byte) (int, error) {
	if c.ahead == nil || len(p) == 0 {
		return c.Conn.Read(p)
	}
	<-c.ahead.done
	n, err := copy(p, c.ahead.b[:c.ahead.n]), c.ahead.err
	c.ahead = nil
	return n, err
}

// hangup returns a channel that is closed when the caller of the request hangs up; nil
// if this cannot be seen because some of the body is still unread.
func hangup(ctx *fasthttp.RequestCtx) <-chan struct{} {
	c, ok := ctx.Conn().(*conn)
	if !ok || !bodyOf(ctx).discard() {
		return nil
	}
	return c.watch()
}
