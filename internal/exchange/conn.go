package exchange

import (
	"bufio"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/berth-host/berth/internal/socket"
	"github.com/berth-host/berth/internal/wire"
)

// connBuffer is the size of each of a connection's buffers, in bytes.
const connBuffer = 4 << 10

// conn is one connection to an upstream. One exchange uses it at a time.
type conn struct {
	net.Conn
	socket *socket.Conn // Conn, if it is one
	br     *bufio.Reader
	bw     *bufio.Writer
	head   wire.Answer
	passed []wire.Field // of the answer; reused
	line   Line
	abort  func()    // closes the connection; kept to spare a closure a request
	until  time.Time // when it has been idle for too long
	used   bool      // it has carried an exchange before
	broken error     // that a look met: the kernel gives it once

	limited time.Time // when both deadlines are, if limit has set them
}

func newConn(nc net.Conn) *conn {
	c := &conn{}
	if tcp, ok := nc.(*net.TCPConn); ok {
		c.socket = socket.New(tcp)
		nc = c.socket
	}
	c.Conn, c.br, c.bw = nc, bufio.NewReaderSize(c, connBuffer), bufio.NewWriterSize(nc, connBuffer)
	below := carrier(nc) // TLS itself says farewell, which could wait for a peer that does not read
	if line, ok := nc.(Line); ok {
		c.line = line
	} else {
		c.line = NewSocket(nc)
	}
	c.abort = func() { breakOff(below, c.line) }
	return c
}

// breakOff closes a connection in the middle of an exchange. If the upstream has not taken all that
// was sent, that is dropped: the end would wait behind it, for as long as the upstream reads nothing.
func breakOff(nc net.Conn, line Line) {
	tcp, ok := nc.(interface{ SetLinger(seconds int) error })
	if _, waiting := line.Traffic(); ok && waiting {
		_ = tcp.SetLinger(0) // an error says that it is closed
	}
	nc.Close()
}

// readable reports whether a read would return at once.
func (c *conn) readable() bool {
	if c.br.Buffered() > 0 {
		return true
	}
	_, err := c.line.Peek()
	if errno, ok := err.(syscall.Errno); ok && errno != syscall.EAGAIN {
		c.broken = err
	}
	return err == nil
}

// Read implements io.Reader. A reset is no end of the stream, even if a look met it first.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == io.EOF && c.broken != nil {
		err = c.broken
	}
	return n, err
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

// slack is by which part of a limit an exchange may be later, so that the deadlines need not
// be set for each.
const slack = 20

// limit sets both deadlines to a time from now, and at most a slack more; 0 for none.
func (c *conn) limit(d time.Duration) {
	if d <= 0 {
		return
	}
	if until := time.Now().Add(d); c.limited.Before(until) || c.limited.After(until.Add(d/slack)) {
		c.limited = until.Add(d / slack)
		c.Conn.SetDeadline(c.limited)
	}
}

// SetDeadline is that of net.Conn, as are those below.
func (c *conn) SetDeadline(t time.Time) error {
	c.limited = time.Time{}
	return c.Conn.SetDeadline(t)
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.limited = time.Time{}
	return c.Conn.SetReadDeadline(t)
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.limited = time.Time{}
	return c.Conn.SetWriteDeadline(t)
}

// send writes a head and a body, which may be nil, in one piece where the connection is a socket.
func (c *conn) send(head, body []byte) error {
	if c.socket != nil {
		_, err := c.socket.WriteParts(head, body)
		return err
	}
	if len(head)+len(body) <= cap(head) {
		head, body = append(head, body...), nil
	}
	_, err := c.Conn.Write(head)
	if err == nil && len(body) > 0 {
		_, err = c.Conn.Write(body)
	}
	return err
}

// sendWhole writes a whole request, at the latest before its answer is read. An error may come
// with that, as fault. If the connection was kept and looksLate, that looks at it, too.
func (c *conn) sendWhole(head, body []byte) error {
	switch {
	case c.socket == nil:
		return c.send(head, body)
	case c.used && len(body) == 0:
		c.socket.WriteFirstIfSilent(head)
	default:
		c.socket.WriteFirst(head, body)
	}
	return nil
}

// looksLate reports whether sendWhole looks at the connection when it writes a request without a
// body, which is as late as can be.
func (c *conn) looksLate() bool { return c.socket != nil }

// fault returns why the request that sendWhole was given could not be written.
func (c *conn) fault() error {
	if c.socket == nil {
		return nil // sendWhole has returned it
	}
	return c.socket.Fault()
}
