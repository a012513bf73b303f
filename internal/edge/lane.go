package edge

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/berth-host/berth/internal/exchange"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/socket"
	"github.com/berth-host/berth/internal/wire"
)

// lane serves the plain requests of a connection for services, on one goroutine. The first
// request that is anything else hands the connection over to net/http, with all bytes that
// were read and not answered. It keeps nothing of an exchange while it is idle.
type lane struct {
	srv    *Server
	c      *conn
	nc     net.Conn     // what carries HTTP: the TCP connection of c, or TLS over it
	socket *socket.Conn // nc, if that is a plain connection; nil with TLS
	ahead  *ahead       // with TLS; nil for a plain connection
	number uint64       // in hangups

	scanner wire.Scanner
	req     wire.Request
	buf     *[]byte // holds have; nil while there is nothing
	have    []byte  // bytes that were read and not used
	saved   []byte  // the beginning of a head, while the lane waits for more of it
	got     int     // by the last read of receive
	gotErr  error
	receive func(uintptr) bool
	limited time.Time // when the deadline for reads is
	whole   time.Time // until when the head that comes next, or has begun, must be whole
	posted  bool      // the last one was a POST
	first   [256]byte // what a read over TLS begins with

	ctx    context.Context // ends once the caller has left
	cancel context.CancelFunc
	mu     sync.Mutex
	left   bool
	abort  func() // ends the exchange under way; nil for none
	stop   func() bool

	busy bool // between a request and the end of its answer; with mu
	used bool // a request has come; with mu

	// Of the exchange.
	who  exchange.Caller
	way  proxy.Way
	id   string
	body uploadBody

	// Of its answer.
	last     bool    // the connection ends with it
	begun    bool    // its head is written, if only to out
	chunked  bool    // its body goes in chunks
	broken   bool    // it cannot be written to its end
	out      []byte  // not sent yet
	outBuf   *[]byte // that out began in
	trailers []wire.Field
}

// idleSlack is by how much an idle connection may end early, so that the deadline need not
// be set for each request.
const idleSlack = 10 * time.Second

func (s *Server) newLane(c *conn, nc net.Conn) *lane {
	l := &lane{srv: s, c: c, nc: nc}
	c.cutting = l.hangUp
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.receive, l.stop = l.receiveNow, l.stopWatch
	if nc == net.Conn(c) {
		l.socket = socket.New(c.TCPConn)
		l.nc = l.socket
	} else {
		l.ahead = &ahead{lane: l}
	}
	return l
}

// serve serves the connection until it ends or is handed over. A panic ends it alone, as in
// net/http.
func (l *lane) serve() {
	defer l.cancel()
	defer func() {
		if fault := recover(); fault != nil {
			l.srv.stalls.log.Error("a connection ended by a panic", "panic", fault, "stack", string(debug.Stack()))
			l.close()
		}
	}()
	if !l.srv.lanes.add(l) {
		l.close()
		return
	}
	defer l.srv.lanes.remove(l)
	if err := l.srv.lanes.hangups.add(l, l.c.TCPConn); err != nil {
		l.handOver()
		return
	}
	defer l.srv.lanes.hangups.remove(l)
	for {
		switch l.next() {
		case handOver:
			l.handOver()
			return
		case end:
			l.close()
			return
		}
		l.setBusy(true)
		again := l.exchange()
		l.setBusy(false)
		if !again {
			l.close()
			return
		}
	}
}

func (l *lane) setBusy(busy bool) {
	l.mu.Lock()
	l.busy, l.used = busy, true
	l.mu.Unlock()
}

// step is what a lane does next.
type step int

const (
	serveIt step = iota
	handOver
	end
)

// next reads the next request and returns where it goes.
func (l *lane) next() step {
	if len(l.have) == 0 {
		if l.rest(); !l.await() || !l.c.seat.use() {
			return end
		}
	}
	if l.used { // the time for the first one has begun with the connection
		if !l.awaitLeast() {
			return end
		}
		l.whole = time.Now().Add(l.srv.lanes.headTimeout)
	}
	for {
		n, verdict := l.scanner.Scan(&l.req, l.have)
		switch {
		case verdict == wire.Partial && len(l.have) < maxPlainHead:
			l.limit(l.whole)
			if !l.awaitMore() {
				return end
			}
			continue
		case verdict != wire.Plain:
			return handOver
		}
		host, valid := parseHost(l.req.Host)
		if !valid || l.srv.edge.next.Load() != nil || l.srv.edge.split(host) != toService || l.isBanned() {
			return handOver
		}
		var ok bool
		if l.way, ok = l.srv.edge.cfg.Routes.Way(host, &l.req, 0); !ok {
			return handOver
		}
		l.use(n)
		return serveIt
	}
}

// leastHead is how many bytes net/http waits for before it looks at a request that is not the
// first one. Until then the connection is idle.
const leastHead = 4

// awaitLeast waits for what net/http waits for before a request begins that is not the first one,
// and drops what it drops after a POST: an end of line that a caller sent behind the body
// (RFC 9112, 2.2).
func (l *lane) awaitLeast() bool {
	for len(l.have) < leastHead {
		if l.limitIdle(); !l.awaitMore() || !l.c.seat.use() {
			return false
		}
	}
	if !l.posted {
		return true
	}
	l.posted = false
	n := 0
	for n < leastHead && (l.have[n] == '\r' || l.have[n] == '\n') {
		n++
	}
	l.use(n)
	return true
}

// maxPlainHead is from which size on a head is not for a lane, in bytes.
const maxPlainHead = 16 << 10

// use takes n bytes off what was read, and gives the buffer back once it is empty.
func (l *lane) use(n int) {
	if l.have = l.have[n:]; len(l.have) == 0 {
		l.dropBuffer()
	}
}

func (l *lane) dropBuffer() {
	if l.buf != nil {
		wire.Large.Put(l.buf)
	}
	l.buf, l.have = nil, nil
}

// await waits for bytes of a request without a buffer, and puts them behind what is saved.
// It returns false at the end of the connection, or when the time is over.
func (l *lane) await() bool {
	if l.socket == nil {
		return l.awaitTLS()
	}
	err := l.socket.Await(l.receive)
	if err != nil || l.gotErr != nil || l.got <= 0 {
		return false
	}
	l.take(l.got)
	return true
}

// take makes what is saved, and n bytes behind it in the buffer, what the lane has.
func (l *lane) take(n int) {
	l.have = (*l.buf)[:len(l.saved)+n]
	l.saved = nil
}

// receiveNow reads what is there into a buffer, for Await.
func (l *lane) receiveNow(fd uintptr) bool {
	if !l.c.seat.come() {
		l.gotErr = net.ErrClosed
		return true
	}
	buf := wire.Large.Get()
	free := (*buf)[copy(*buf, l.saved):]
	if l.got, l.gotErr = socket.Read(fd, free); l.got > 0 {
		l.buf = buf
		return true
	}
	wire.Large.Put(buf)
	if l.gotErr == syscall.EAGAIN {
		l.c.seat.quiet()
		return false
	}
	return true
}

// awaitTLS is await over TLS. What came with the first bytes has been decrypted by then, and is
// read without waiting for more.
func (l *lane) awaitTLS() bool {
	n, _ := l.nc.Read(l.first[:]) // an error is that of the next read, too
	if n == 0 {
		return false
	}
	l.buf = wire.Large.Get()
	kept := copy(*l.buf, l.saved)
	copy((*l.buf)[kept:], l.first[:n])
	if n == len(l.first) {
		l.nc.SetReadDeadline(time.Unix(1, 0))
		more, _ := l.nc.Read((*l.buf)[kept+n:])
		l.nc.SetReadDeadline(l.limited)
		n += more
	}
	l.take(n)
	return true
}

// rest puts the lane to rest until the next request.
func (l *lane) rest() {
	l.dropBuffer()
	l.scanner.Rest(&l.req)
	l.limitIdle()
}

// limitIdle limits the wait for a request: for the first one as net/http does for its head.
func (l *lane) limitIdle() {
	now := time.Now()
	l.c.seat.idle(now)
	switch {
	case !l.used: // only this goroutine sets it
		l.whole = now.Add(l.srv.lanes.headTimeout)
		l.limit(l.whole)
	case l.limited.Before(now.Add(idleTimeout - idleSlack)):
		l.limit(now.Add(idleTimeout))
	}
	if l.srv.lanes.closing.Load() {
		l.limit(l.srv.lanes.patience(l, now))
	}
}

func (l *lane) limit(t time.Time) {
	l.limited = t
	l.nc.SetReadDeadline(t)
}

// awaitMore waits for more, until the limit and without the buffer.
func (l *lane) awaitMore() bool {
	l.saved = bytes.Clone(l.have)
	l.dropBuffer()
	return l.await()
}

// handOver gives the connection to net/http, with what was read. The time that has passed
// counts for the head that net/http reads.
func (l *lane) handOver() {
	l.setBusy(true) // a stop leaves it alone: net/http sees to it
	l.nc.SetDeadline(time.Time{})
	l.c.whole = l.whole
	l.c.framing = &framing{rest: bytes.Clone(l.have)}
	l.dropBuffer()
	l.srv.count(handedOver)
	if !l.srv.lanes.deliver(l) {
		l.c.Close()
	}
}

// close ends the connection.
func (l *lane) close() {
	l.dropBuffer()
	if l.c.watch != nil {
		l.c.watch.follow(http.StateClosed)
	}
	if l.socket != nil {
		l.c.Close()
		return
	}
	l.nc.Close()
}

// hangUp is called when the caller has ended its sending side.
func (l *lane) hangUp() {
	l.cancel() // first: whoever sees that the caller has left looks there why an exchange failed
	l.mu.Lock()
	l.left = true
	abort := l.abort
	l.mu.Unlock()
	if abort != nil {
		abort()
	}
}

// address returns the address of the sender of the request, and reports whether it is another
// than that of the connection, which a trusted proxy has made.
func (l *lane) address() (netip.Addr, bool) {
	e := l.srv.edge
	if e.trusts(l.c.peer.ip) {
		if ip, ok := forwardedFor(l.req.Values("X-Forwarded-For"), e.cfg.TrustedProxies); ok {
			return ip, true
		}
	}
	return l.c.peer.ip, false
}

// isBanned reports whether the sender of the request gets no answer but a refusal.
func (l *lane) isBanned() bool {
	isBanned := l.srv.edge.cfg.Banned
	if isBanned == nil {
		return false
	}
	ip, _ := l.address()
	return isBanned(ip)
}

// identify returns the sender of the request.
func (l *lane) identify() exchange.Caller {
	who := exchange.Caller{IP: l.c.peer.text, Proto: "http"}
	if l.socket == nil {
		who.Proto = "https"
	}
	if !l.srv.edge.trusts(l.c.peer.ip) {
		return who
	}
	if ip, forwarded := l.address(); forwarded {
		who.IP = ip.String()
	}
	if proto := l.req.Values("X-Forwarded-Proto"); len(proto) == 1 && (proto[0] == "http" || proto[0] == "https") {
		who.Proto = proto[0]
	}
	return who
}

// identifyRequest gives the request an id, unless it has a usable one.
func (l *lane) identifyRequest() string {
	i := slices.IndexFunc(l.req.Fields, func(f wire.Field) bool { return f.Key == wire.HeaderRequestID })
	if i >= 0 && saneID(l.req.Fields[i].Value) {
		return l.req.Fields[i].Value
	}
	id := newID()
	if i >= 0 {
		l.req.Fields[i].Value = id
	} else {
		l.req.Fields = append(l.req.Fields, wire.Field{Key: wire.HeaderRequestID, Value: id})
	}
	return id
}

// exchange has the request answered, and reports whether the connection may carry another.
func (l *lane) exchange() bool {
	l.who = l.identify()
	l.who.Watch = l.srv.stalls.watchConn(l.c)
	defer l.c.watch.endExchange()
	defer l.ahead.end()
	if arrived := l.srv.edge.cfg.Arrived; arrived != nil {
		arrived(names[toService])
	}
	l.posted = l.req.Method == http.MethodPost
	l.begin(l.identifyRequest())
	if ready := l.way.Ready(); ready != nil {
		l.sendReady(ready)
		return l.finish()
	}
	if failure := l.way.Serve(l); failure != nil {
		l.last = l.last || failure.Unread
		l.way.Refuse(&pageWriter{l: l, header: http.Header{}}, l.pageRequest(), failure)
	}
	return l.finish()
}
