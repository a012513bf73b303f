package exchange

import (
	"bufio"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/berth-host/berth/internal/wire"
)

// connBuffer is the size of each of a connection's buffers, in bytes.
const connBuffer = 4 << 10

// conn is one connection to an upstream. One exchange uses it at a time.
type conn struct {
	net.Conn
	br     *bufio.Reader
	bw     *bufio.Writer
	head   wire.Answer
	line   Line
	passed []wire.Field // of the answer; reused
	abort  func()       // closes the connection; kept to spare a closure a request
	until  time.Time    // when it has been idle for too long
	used   bool         // it has carried an exchange before
}

func newConn(nc net.Conn) *conn {
	c := &conn{Conn: nc, br: bufio.NewReaderSize(nc, connBuffer), bw: bufio.NewWriterSize(nc, connBuffer)}
	below := carrier(nc) // TLS itself says farewell, which could wait for a peer that does not read
	c.abort = func() { below.Close() }
	if line, ok := nc.(Line); ok {
		c.line = line
	} else {
		c.line = NewSocket(nc)
	}
	return c
}

// readable reports whether a read would return at once.
func (c *conn) readable() bool {
	if c.br.Buffered() > 0 {
		return true
	}
	_, err := c.line.Peek()
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
	n, err := c.line.Peek()
	switch {
	case n > 0:
		return speaking
	case errors.Is(err, syscall.EAGAIN):
		return silent
	}
	return gone
}
