package edge

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
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
	// state is since when no request has been under way, in Unix nanoseconds, or one of the
	// constants. Only the connection's own goroutine leaves inUse.
	state atomic.Int64
}

const (
	inUse    = 0
	takenOff = -1 // it is being closed to make room
)

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
	s := &seat{conns: c, tcp: tcp, network: c.cfg.Network(from.text)}
	s.idle(time.Now())
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

// take takes s off unless it is in use by now, or something to read has arrived.
func (s *seat) take(since int64) bool {
	return !unread(s.tcp) && s.state.CompareAndSwap(since, takenOff)
}

// unread reports whether the kernel has bytes of tcp that nobody has read.
func unread(tcp *net.TCPConn) bool {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	err = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ) })
	return err == nil && n > 0
}

// idle records that no request is under way.
func (s *seat) idle(now time.Time) {
	if s != nil {
		s.state.CompareAndSwap(inUse, now.UnixNano())
	}
}

// use records that bytes of a request have come, and reports false if the connection is being
// closed to make room: its request is then not begun.
func (s *seat) use() bool {
	if s == nil {
		return true
	}
	for {
		state := s.state.Load()
		switch {
		case state == inUse:
			return true
		case state == takenOff:
			return false
		case s.state.CompareAndSwap(state, inUse):
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
func (c *countedConn) Read(p []byte) (int, error) { return c.seat.read(c.TCPConn.Read(p)) }

// Close closes the connection and gives its place back.
func (c *countedConn) Close() error {
	c.seat.leave()
	return c.TCPConn.Close()
}

// countedState is http.Server's ConnState for connections of a countedListener.
func countedState(nc net.Conn, state http.ConnState) {
	if c, ok := nc.(*countedConn); ok && state == http.StateIdle {
		c.seat.idle(time.Now())
	}
}
