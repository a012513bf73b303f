package edge

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-host/berth/internal/socket"
)

// The ways in which Conns keeps its bound, as ConnsConfig.Observe gets them.
const (
	idleClosed = "idle_closed" // the connection that was idle for longest made room
	refusedNew = "refused"     // none was idle, so the new connection was refused
)

// ConnsConfig configures a Conns.
type ConnsConfig struct {
	Limit   int                         // connections of one client network
	Trusted []netip.Prefix              // proxies, which are not counted
	Network func(address string) string // the client network of an address
	Observe func(outcome string)        // called for each connection above the limit; may be nil
}

// Conns bounds how many connections a client network has at the listeners that share it.
// It counts them when they are accepted, before TLS. Loopback and trusted proxies are not
// counted, since they stand for many clients.
type Conns struct {
	cfg      ConnsConfig
	exempt   func(netip.Addr) bool
	refusing chan struct{} // has room for each refusal that is being told

	mu       sync.Mutex
	networks map[string][]*seat
}

const (
	refusalsAtOnce = 64          // more connections are refused without a word
	refusalLimit   = time.Second // for a client to take the refusal
	refusalBytes   = 64 << 10    // of its request that are read, so that it sees the answer
)

// NewConns returns a Conns configured by cfg.
func NewConns(cfg ConnsConfig) *Conns {
	exempt := func(ip netip.Addr) bool { return ip.IsLoopback() || anyContains(cfg.Trusted, ip) }
	return &Conns{cfg: cfg, exempt: exempt, refusing: make(chan struct{}, refusalsAtOnce), networks: map[string][]*seat{}}
}

// seat is the place of one connection among those of its client network. A connection that
// is not counted has none: the methods of nil do nothing.
type seat struct {
	conns   *Conns
	tcp     *net.TCPConn
	network string
	index   int // in networks; -1 once it is out; with mu of conns
	// state is since when no request has been under way, in Unix nanoseconds; the negative of that
	// if bytes have been read since, of which nobody knows yet what they are; or one of the
	// constants.
	state atomic.Int64
	raw   syscall.RawConn
	in    input
}

const (
	inUse     = 0
	takenOff  = -1 // it is being closed to make room
	lookedAt  = -2 // for a moment, by whoever would close it
	inUseMore = -3 // in use, and bytes have been read that may be of a next request
)

// input is what a read of a connection does.
type input struct {
	p    []byte
	n    int
	err  error
	step func(fd uintptr) bool // kept to spare a closure a read
}

// newSeat returns the seat of a connection, which is idle.
func newSeat(c *Conns, tcp *net.TCPConn, network string) *seat {
	s := &seat{conns: c, tcp: tcp, network: network}
	s.raw, _ = tcp.SyscallConn() // fails for nil only
	s.in.step = s.readNow
	s.idle(time.Now())
	return s
}

// admit counts a new connection, and closes another one of its network if it must make room.
// It reports false if there is no room; the caller refuses the connection then.
func (c *Conns) admit(tcp *net.TCPConn) (*seat, bool) {
	if c == nil {
		return nil, true
	}
	from := peerOf(tcp.RemoteAddr().String())
	if c.exempt(from.ip) {
		return nil, true
	}
	s := newSeat(c, tcp, c.cfg.Network(from.text))
	former, ok := c.seat(s)
	if former != nil {
		c.observe(idleClosed) // first: whoever sees the end may look at what was counted
		former.tcp.Close()
	}
	return s, ok
}

// seat gives s a place, and returns whose place that was; nil if one was free.
func (c *Conns) seat(s *seat) (former *seat, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.networks[s.network]) >= c.cfg.Limit {
		if former = takeLongestIdle(c.networks[s.network]); former == nil {
			return nil, false
		}
		c.remove(former)
	}
	s.index = len(c.networks[s.network])
	c.networks[s.network] = append(c.networks[s.network], s)
	return former, true
}

// takeLongestIdle takes the seat off that has been idle for longest; nil if none is idle. It
// looks at all of them, which only a network at its limit costs anything.
func takeLongestIdle(seats []*seat) *seat {
	const tries = 8 // a request may arrive at the one that was found
	for after, try := int64(inUse), 0; try < tries; try++ {
		var found *seat
		var since int64
		for _, s := range seats {
			if at := s.state.Load(); at > after && (found == nil || at < since) {
				found, since = s, at
			}
		}
		if found == nil || found.take(since) {
			return found
		}
		after = since
	}
	return nil
}

// take takes s off unless it is in use by now, or something to read has arrived. Nothing is read
// while it looks: bytes are seen here, or whoever has begun to read them has changed the state.
func (s *seat) take(since int64) bool {
	if !s.state.CompareAndSwap(since, lookedAt) {
		return false
	}
	if s.unread() {
		s.state.Store(since)
		return false
	}
	s.state.Store(takenOff)
	return true
}

// unread reports whether the kernel has bytes of the connection that nobody has read.
func (s *seat) unread() bool {
	n := 0
	err := s.raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ) })
	return err == nil && n > 0
}

// use records that a request has begun, and reports false if the connection is being closed to
// make room: its request is then not begun.
func (s *seat) use() bool {
	return s.turn(func(state int64) int64 {
		switch {
		case state > 0:
			return inUse
		case state < inUseMore:
			return inUseMore
		}
		return state
	})
}

// idle records that no request is under way.
func (s *seat) idle(now time.Time) {
	s.turn(func(state int64) int64 {
		switch state {
		case inUse:
			return now.UnixNano()
		case inUseMore:
			return -now.UnixNano()
		}
		return state
	})
}

// come is called before something that has come is read. It reports false if the connection is
// being closed to make room.
func (s *seat) come() bool {
	return s.turn(func(state int64) int64 {
		switch {
		case state == inUse:
			return inUseMore
		case state > 0:
			return -state
		}
		return state
	})
}

// quiet is called when there is nothing to read, which is once all that was read before has been
// looked at. A part of a TLS record or of a frame of HTTP/2 is nothing to look at yet: a connection
// may be closed that waits for the rest.
func (s *seat) quiet() {
	s.turn(func(state int64) int64 {
		switch {
		case state == inUseMore:
			return inUse
		case state < inUseMore:
			return -state
		}
		return state
	})
}

// turn gives s its next state, and reports false if it has been taken off.
func (s *seat) turn(next func(state int64) int64) bool {
	if s == nil {
		return true
	}
	for {
		switch state := s.state.Load(); {
		case state == takenOff:
			return false
		case state == lookedAt:
			runtime.Gosched()
		case s.state.CompareAndSwap(state, next(state)):
			return true
		}
	}
}

// read is called with the result of a read of HTTP/1, and returns what the reader gets.
func (s *seat) read(n int, err error) (int, error) {
	if n > 0 && !s.use() {
		return 0, net.ErrClosed
	}
	return n, err
}

// receive reads from the connection tcp, which has the seat s or none. From before it has the
// bytes until a read waits for more, the connection does not make room for others.
func (s *seat) receive(tcp *net.TCPConn, p []byte) (int, error) {
	if s == nil || len(p) == 0 {
		return tcp.Read(p)
	}
	s.in.p = p
	err := s.raw.Read(s.in.step)
	s.in.p = nil
	if failed, ok := err.(*net.OpError); ok { // as it is: errors.As would cost an allocation a read
		failed.Op = "read" // net/http knows that
	}
	switch {
	case err != nil:
		return 0, err
	case s.in.err != nil:
		return 0, &net.OpError{Op: "read", Net: "tcp", Source: tcp.LocalAddr(), Addr: tcp.RemoteAddr(), Err: s.in.err}
	case s.in.n == 0:
		return 0, io.EOF
	}
	return s.in.n, nil
}

// readNow reads what is there, and returns false if it has to wait.
func (s *seat) readNow(fd uintptr) bool {
	if !s.come() {
		s.in.err = net.ErrClosed
		return true
	}
	n, err := socket.Read(fd, s.in.p)
	if err == syscall.EAGAIN {
		s.quiet()
		return false
	}
	s.in.n, s.in.err = n, os.NewSyscallError("read", err)
	return true
}

// leave gives the place of a closed connection back. It may be called again.
func (s *seat) leave() {
	if s == nil {
		return
	}
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	s.conns.remove(s)
}

// remove removes s if it is still there. The caller holds mu.
func (c *Conns) remove(s *seat) {
	if s.index < 0 {
		return
	}
	seats := c.networks[s.network]
	end := len(seats) - 1
	seats[s.index] = seats[end]
	seats[s.index].index = s.index
	seats[end], s.index = nil, -1
	if end == 0 {
		delete(c.networks, s.network)
		return
	}
	c.networks[s.network] = seats[:end]
}

func (c *Conns) observe(outcome string) {
	if c.cfg.Observe != nil {
		c.cfg.Observe(outcome)
	}
}

// refuse closes a connection that has no place. It says why if the connection is plain: over
// TLS that would take a handshake, which is what a refusal is to save.
func (c *Conns) refuse(tcp *net.TCPConn, plain bool) {
	c.observe(refusedNew)
	if !plain {
		tcp.Close()
		return
	}
	select {
	case c.refusing <- struct{}{}:
		go func() {
			defer func() { <-c.refusing }()
			c.tellRefusal(tcp)
		}()
	default:
		tcp.Close()
	}
}

// tellRefusal answers 503, reads what the client sends meanwhile, and closes.
func (c *Conns) tellRefusal(tcp *net.TCPConn) {
	defer tcp.Close()
	tcp.SetDeadline(time.Now().Add(refusalLimit))
	body := detailJSON(fmt.Sprintf("your network has %d connections to this server, the most it may have, and all are in use; close some, or send more requests over each", c.cfg.Limit))
	_, err := fmt.Fprintf(tcp, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 5\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
	if err == nil && tcp.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, tcp, refusalBytes)
	}
}

// countedListener counts the connections of a server of net/http alone.
type countedListener struct {
	net.Listener
	conns *Conns
}

// Accept waits for the next connection that has a place.
func (l countedListener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp := nc.(*net.TCPConn)
		if s, ok := l.conns.admit(tcp); ok {
			return &countedConn{tcp, s}, nil
		}
		l.conns.refuse(tcp, true)
	}
}

// countedConn is a connection with its seat.
type countedConn struct {
	*net.TCPConn
	seat *seat
}

// Read reads, and records that a request has begun.
func (c *countedConn) Read(p []byte) (int, error) {
	return c.seat.read(c.seat.receive(c.TCPConn, p))
}

// Close closes the connection and gives its place back.
func (c *countedConn) Close() error {
	c.seat.leave()
	return c.TCPConn.Close()
}

type seatKey struct{}

// withSeat is http.Server's ConnContext for connections of a countedListener.
func withSeat(ctx context.Context, nc net.Conn) context.Context {
	return context.WithValue(ctx, seatKey{}, nc.(*countedConn).seat)
}

// seatOf returns the seat of the connection of r; nil if it is not counted.
func seatOf(r *http.Request) *seat {
	s, _ := r.Context().Value(seatKey{}).(*seat)
	return s
}

// countedState is http.Server's ConnState for connections of a countedListener.
func countedState(nc net.Conn, state http.ConnState) {
	if c, ok := nc.(*countedConn); ok && state == http.StateIdle {
		c.seat.idle(time.Now())
	}
}
