package exchange

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-host/berth/internal/socket"
)

// Line is what carries a connection's bytes: a socket, or a stream between nodes.
type Line interface {
	// Traffic returns how many bytes the other side has sent and received so far, and
	// whether bytes wait for it.
	Traffic() (bytes uint64, waiting bool)
	// Peek looks at the next byte, without waiting and without consuming it: n is 1 if
	// there is one, and 0 without an error at the end of the stream. The error is EAGAIN if
	// a read would wait. Deadlines do not apply.
	Peek() (n int, err error)
}

// Socket is the line of a connection over TCP.
type Socket struct {
	raw syscall.RawConn // nil if it is not a socket

	peeked struct { // result of the last peek
		n   int
		err error
	}
	peekAt func(fd uintptr) // kept to spare a closure a look
}

// NewSocket returns the socket of a connection, that below it if it is one of TLS. Of
// others nothing is known.
func NewSocket(nc net.Conn) *Socket {
	s := &Socket{}
	if sc, ok := carrier(nc).(syscall.Conn); ok {
		s.raw, _ = sc.SyscallConn()
	}
	s.peekAt = func(fd uintptr) {
		var b [1]byte
		s.peeked.n, s.peeked.err = socket.Peek(fd, b[:])
	}
	return s
}

// carrier returns the connection below one of TLS, or nc itself.
func carrier(nc net.Conn) net.Conn {
	if t, ok := nc.(interface{ NetConn() net.Conn }); ok {
		return t.NetConn()
	}
	return nc
}

// Peek is that of Line.
func (s *Socket) Peek() (n int, err error) {
	if s.raw == nil {
		return 0, errors.ErrUnsupported
	}
	if err := s.raw.Control(s.peekAt); err != nil {
		return 0, err
	}
	return s.peeked.n, s.peeked.err
}

// Traffic is that of Line. It returns 0 and false for a closed socket.
func (s *Socket) Traffic() (bytes uint64, waiting bool) {
	if s.raw == nil {
		return 0, false
	}
	var info *unix.TCPInfo
	var err error
	ask := func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO) }
	if s.raw.Control(ask) != nil || err != nil {
		return 0, false
	}
	return info.Bytes_acked + info.Bytes_received, info.Unacked > 0 || info.Notsent_bytes > 0
}
