package streams

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"runtime"
	"sync"
)

const (
	// outLimit is from how many bytes on writes wait until the connection has taken what
	// there is.
	outLimit = 64 << 10
	readSize = 32 << 10
)

// ErrLeft is the failure of Open on a session that opens no more streams.
var ErrLeft = errors.New("the connection opens no more streams")

// Session is a connection that carries streams. It ends with its last stream, once there
// has been one on the client's side, and on that of a server that leaves.
type Session struct {
	conn    net.Conn
	handle  func(*Conn) // of a server, nil for a client
	settled chan struct{}

	mu      sync.Mutex
	work    *sync.Cond       // wakes the writer
	streams map[uint32]*Conn // that are open here and were not broken off
	last    uint32           // the highest id so far
	out     []byte           // frames that are not written yet
	full    []*Conn          // whose writes wait for room in out
	left    bool             // no more streams are opened
	err     error            // why the connection ended; nil while it lasts
}

// Client returns the session of a connection to a server.
func Client(c net.Conn) *Session { return start(c, nil) }

// Serve returns the session of a connection from a client. It calls handle for each
// stream; handle must not wait.
func Serve(c net.Conn, handle func(*Conn)) *Session { return start(c, handle) }

func start(c net.Conn, handle func(*Conn)) *Session {
	s := &Session{conn: c, handle: handle, settled: make(chan struct{}), streams: map[uint32]*Conn{}}
	s.work = sync.NewCond(&s.mu)
	go s.readAll()
	go s.writeAll()
	return s
}

// Open opens a stream; it does not wait. It fails if the connection has ended, and with
// ErrLeft if it is about to.
func (s *Session) Open() (*Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return nil, s.err
	case s.left || s.last == math.MaxUint32:
		return nil, ErrLeft
	}
	s.last++
	s.add(open, s.last, 0)
	return s.newConn(s.last), nil
}

// Leave asks the client to open no more streams. It returns when every stream that the
// client has opened was handled, or when ctx ends: those that come later are broken off.
// The streams that there are go on.
func (s *Session) Leave(ctx context.Context) {
	s.mu.Lock()
	if !s.left {
		s.add(leave, 0, 0)
	}
	s.mu.Unlock()
	select {
	case <-s.settled:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setLeft()
}

// Close closes the connection at once, which breaks off its streams.
func (s *Session) Close() { s.fail(net.ErrClosed) }

// Done is closed when no more streams come: the connection has ended, or Leave has.
func (s *Session) Done() <-chan struct{} { return s.settled }

// newConn adds a stream. The caller holds mu.
func (s *Session) newConn(id uint32) *Conn {
	c := &Conn{session: s, id: id, credit: window}
	c.reads.cond.L = &c.mu
	c.writes.cond.L = &s.mu
	s.streams[id] = c
	return c
}

// forget removes a stream. The caller holds mu.
func (s *Session) forget(c *Conn) {
	if s.streams[c.id] != c {
		return
	}
	delete(s.streams, c.id)
	if len(s.streams) == 0 && s.handle == nil {
		s.setLeft()
	}
	s.work.Signal()
}

// setLeft records that no more streams are opened. The caller holds mu.
func (s *Session) setLeft() {
	if !s.left {
		s.left = true
		close(s.settled)
		s.work.Signal()
	}
}

// accept handles a stream that the client has opened.
func (s *Session) accept(id uint32) error {
	s.mu.Lock()
	if s.handle == nil || id <= s.last {
		s.mu.Unlock()
		return badFrame(fmt.Sprintf("stream %d cannot be opened", id))
	}
	s.last = id
	if s.left {
		s.add(reset, id, 0)
		s.mu.Unlock()
		return nil
	}
	c := s.newConn(id)
	s.mu.Unlock()
	s.handle(c)
	return nil
}

// hearLeave does what Leave of the other side asks for, or hears that it was done.
func (s *Session) hearLeave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handle == nil {
		s.add(leave, 0, 0)
	}
	s.setLeft()
}

// find returns an open stream; nil if it has been closed.
func (s *Session) find(id uint32) (*Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id > s.last {
		return nil, badFrame(fmt.Sprintf("frame of stream %d, which was not opened", id))
	}
	return s.streams[id], nil
}

// add appends a frame without its data. The caller holds mu.
func (s *Session) add(k kind, id uint32, size int) {
	if len(s.out) == 0 {
		s.work.Signal()
	}
	s.out = appendHead(s.out, k, id, size)
}

// readAll reads until the connection ends.
func (s *Session) readAll() {
	var f frames
	buf := make([]byte, readSize)
	for {
		n, err := s.conn.Read(buf)
		if fault := f.parse(s, buf[:n]); fault != nil {
			err = fault
		}
		if err != nil {
			s.fail(err)
			return
		}
	}
}

// writeAll writes until the session ends, and closes the connection.
func (s *Session) writeAll() {
	for p := s.take(nil); p != nil; p = s.take(p) {
		if _, err := s.conn.Write(p); err != nil {
			s.fail(err)
		}
	}
	s.conn.Close()
}

// take waits for frames and returns them, nil at the end. The next ones are collected in
// spare.
func (s *Session) take(spare []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.out) == 0 && s.err == nil && !(s.left && len(s.streams) == 0) {
		s.work.Wait()
	}
	// Who is about to run may have something to write, too. Nobody waits for it: if there
	// is none, this returns at once.
	s.mu.Unlock()
	runtime.Gosched()
	s.mu.Lock()
	if len(s.out) == 0 || s.err != nil {
		return nil
	}
	p := s.out
	s.out = spare[:0]
	s.passRoom()
	return p
}

// passRoom lets the next write that waits for room in out go on, if there is room. Whoever
// has waited calls it, too, so that room is never left while writes wait. The caller holds
// mu.
func (s *Session) passRoom() {
	for len(s.full) > 0 && len(s.out) < outLimit {
		c := s.full[0]
		s.full[0] = nil
		s.full = s.full[1:]
		c.queued = false
		if c.writes.waiting > 0 {
			c.writes.wake()
			return
		}
	}
}

// fail ends the session and breaks off its streams.
func (s *Session) fail(err error) {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // for streams it is no end
	}
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.err = err
	s.setLeft()
	all := s.streams
	s.streams, s.full = map[uint32]*Conn{}, nil
	for _, c := range all {
		c.failWrites(err)
	}
	s.work.Signal()
	s.mu.Unlock()
	for _, c := range all {
		c.failReads(err)
	}
	s.conn.Close()
}
