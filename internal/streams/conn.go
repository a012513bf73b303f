package streams

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Conn is one end of a stream.
type Conn struct {
	session *Session
	id      uint32

	mu       sync.Mutex
	reads    waiter
	in       buffer
	readErr  error // after what is in
	unpaid   int   // bytes that were read and for which no credit was given yet
	received uint64

	// Guarded by the session's mu.
	writes   waiter
	writeErr error
	credit   int
	queued   bool // it is in the session's full
	ended    bool // the end is sent
	closed   bool
	sent     uint64
}

// errReset is what the other side's break leads to.
var errReset = os.NewSyscallError("stream", syscall.ECONNRESET)

// Read reads what has come, and waits only if there is nothing. What came before a break
// is read before its error.
func (c *Conn) Read(p []byte) (int, error) {
	n, give, err := c.readIn(p)
	if give > 0 {
		c.session.mu.Lock()
		defer c.session.mu.Unlock()
		if c.session.streams[c.id] == c {
			c.session.add(credit, c.id, give)
		}
	}
	return n, err
}

// readIn is Read, and returns the credit to give to the other side.
func (c *Conn) readIn(p []byte) (n, give int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.in.size == 0 || c.reads.passed {
		switch {
		case c.reads.passed:
			return 0, 0, os.ErrDeadlineExceeded
		case c.readErr != nil:
			return 0, 0, c.readErr
		}
		c.reads.wait()
	}
	n = c.in.read(p)
	if c.unpaid += n; c.unpaid >= window/2 && c.readErr == nil {
		give, c.unpaid = c.unpaid, 0
	}
	return n, give, nil
}

// Write writes p. It waits while the other side has 256 KiB that it has not read, or the
// connection takes nothing.
func (c *Conn) Write(p []byte) (written int, err error) {
	s := c.session
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.passRoom()
	for {
		switch {
		case c.writes.passed && !c.closed:
			return written, os.ErrDeadlineExceeded
		case c.writeErr != nil:
			return written, c.writeErr
		case len(p) == 0:
			return written, nil
		case c.credit == 0:
			s.passRoom()
			c.writes.wait()
			continue
		case len(s.out) >= outLimit:
			c.waitForRoom()
			continue
		}
		n := min(len(p), c.credit, maxData)
		s.add(data, c.id, n)
		s.out = append(s.out, p[:n]...)
		c.credit -= n
		c.sent += uint64(n)
		written += n
		p = p[n:]
	}
}

// waitForRoom waits for its turn to write. The caller holds the session's mu.
func (c *Conn) waitForRoom() {
	if !c.queued {
		c.queued = true
		c.session.full = append(c.session.full, c)
	}
	c.writes.wait()
}

// CloseWrite tells the other side that no more bytes follow. It may still be read.
func (c *Conn) CloseWrite() error {
	s := c.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.writeErr != nil {
		return c.writeErr
	}
	c.ended = true
	c.failWrites(os.NewSyscallError("write", syscall.EPIPE))
	s.add(end, c.id, 0)
	return nil
}

// Close closes the stream without waiting. It breaks off what has not ended in both
// directions: the other side can read what was written, and learns that there was no end.
func (c *Conn) Close() error {
	over := c.closeReads()
	s := c.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.closed, c.writeErr = true, net.ErrClosed
	c.writes.stop()
	if s.streams[c.id] == c && !(over && c.ended) {
		s.add(reset, c.id, 0)
	}
	s.forget(c)
	return nil
}

// closeReads drops what has come, and reports whether the other side had ended.
func (c *Conn) closeReads() (over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	over = c.readErr == io.EOF
	c.in.clear()
	c.readErr = net.ErrClosed
	c.reads.stop()
	return over
}

// take receives data, and reports whether they were within the window.
func (c *Conn) take(p []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.in.size+len(p) > window {
		return false
	}
	if c.readErr == nil {
		c.in.write(p)
		c.received += uint64(len(p))
		c.reads.wake()
	}
	return true
}

// hearEnd receives the end of what the other side writes.
func (c *Conn) hearEnd() { c.failReads(io.EOF) }

// hearReset receives the break of the other side. If that has ended what it writes, it only
// reads no more.
func (c *Conn) hearReset() {
	c.failReads(errReset)
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	c.failWrites(errReset)
	c.session.forget(c)
}

// hearCredit receives credit for more data.
func (c *Conn) hearCredit(size int) error {
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	if c.credit += size; c.credit > window {
		return badFrame("more credit than the window has")
	}
	c.writes.wake()
	return nil
}

// failReads makes reads fail after what has come, unless they do so already.
func (c *Conn) failReads(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.readErr == nil {
		c.readErr = err
		c.reads.wake()
	}
}

// failWrites makes writes fail, unless they do so already. The caller holds the session's
// mu.
func (c *Conn) failWrites(err error) {
	if c.writeErr == nil {
		c.writeErr = err
		c.writes.wake()
	}
}

// Peek looks for the next byte, without waiting and without reading it, as recv does on a
// socket: n is 1 if there is one, and 0 without an error at the end of the stream or after
// a break. The error is EAGAIN if a read would wait.
func (c *Conn) Peek() (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.in.size > 0:
		return 1, nil
	case c.readErr == nil:
		return 0, syscall.EAGAIN
	}
	return 0, nil
}

// Traffic returns how many bytes have moved either way, and whether a write waits for the
// other side.
func (c *Conn) Traffic() (bytes uint64, waiting bool) {
	c.mu.Lock()
	bytes = c.received
	c.mu.Unlock()
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	return bytes + c.sent, c.writes.waiting > 0
}

// LocalAddr returns the address of the connection.
func (c *Conn) LocalAddr() net.Addr { return c.session.conn.LocalAddr() }

// RemoteAddr returns the address of the connection's other end.
func (c *Conn) RemoteAddr() net.Addr { return c.session.conn.RemoteAddr() }

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline sets the time from which on reads fail instead of waiting.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads.setDeadline(t)
	return nil
}

// SetWriteDeadline sets the time from which on writes fail instead of waiting.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	c.writes.setDeadline(t)
	return nil
}
