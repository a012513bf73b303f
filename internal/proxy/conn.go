package proxy

import (
	"bufio"
	"errors"
	"net"
	"syscall"
	"time"
)

// connBuffer is the size of each of a connection's buffers, in bytes.
const connBuffer = 4 << 10

// conn is one connection to an upstream. One exchange uses it at a time.
type conn struct {
	net.Conn
	br    *bufio.Reader
	bw    *bufio.Writer
	head  head
	raw   syscall.RawConn // nil when it is not a socket
	abort func()          // closes the connection; kept to spare a closure a request
	until time.Time       // when it has been idle for too long
	used  bool            // it has carried an exchange before

	peeked struct { // result of the last peek
		n   int
		err error
	}
	peekAt func(fd uintptr)
}

func newConn(nc net.Conn) *conn {
	c := &conn{Conn: nc, br: bufio.NewReaderSize(nc, connBuffer), bw: bufio.NewWriterSize(nc, connBuffer)}
	carrier := nc
	if t, ok := nc.(interface{ NetConn() net.Conn }); ok {
		carrier = t.NetConn() // of TLS, whose farewell could wait for a peer that does not read
	}
	c.abort = func() { carrier.Close() }
	if sc, ok := carrier.(syscall.Conn); ok {
		c.raw, _ = sc.SyscallConn()
	}
	c.peekAt = func(fd uintptr) {
		var b [1]byte
		c.peeked.n, _, c.peeked.err = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	}
	return c
}

// peek looks at the socket's next byte, without waiting and without consuming it: n is
// 1 if there is one, and 0 without an error at the end of the stream. Deadlines do not
// apply.
func (c *conn) peek() (n int, err error) {
	if c.raw == nil {
		return 0, errors.ErrUnsupported // it is not a socket
	}
	if err := c.raw.Control(c.peekAt); err != nil {
		return 0, err
	}
	return c.peeked.n, c.peeked.err
}

// readable reports whether a read would return at once.
func (c *conn) readable() bool {
	if c.br.Buffered() > 0 {
		return true
	}
	_, err := c.peek()
	return err == nil
}

// sight is the state of a kept connection when looked at.
type sight int

const (
	silent   sight = iota // nothing to read: it may carry another exchange
	gone                  // its peer has closed it, or it is broken
	speaking              // bytes lie on it that no request asked for
)

// look returns the state of a connection that no exchange uses. It neither waits nor
// reads.
func (c *conn) look() sight {
	n, err := c.peek()
	switch {
	case n > 0:
		return speaking
	case errors.Is(err, syscall.EAGAIN):
		return silent
	}
	return gone
}
