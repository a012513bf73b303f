package exchange

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

// Kind is what an upstream is.
type Kind int

const (
	Service Kind = iota // a tenant's process
	Inner               // a server in this process: one request a connection
	Node                // another node of the cluster, which does what is left to do
)

// Options are the limits of an upstream. Zero values mean the defaults of docs/api.md,
// "Timeouts".
type Options struct {
	ConnectTimeout time.Duration // 0: 5 s
	HeaderTimeout  time.Duration // from the request's last byte to the answer's headers; 0: 60 s, negative: none
	Log            *slog.Logger  // nil: slog.Default
	// Protocol returns the version of what nodes say to each other, after Dial; of a Node only.
	Protocol func() int
}

const (
	defaultConnectTimeout = 5 * time.Second
	defaultHeaderTimeout  = 60 * time.Second
)

// Upstream is a process that answers HTTP/1.1, and the connections to it.
type Upstream struct {
	dial    func(context.Context) (net.Conn, error)
	kind    Kind
	log     *slog.Logger
	connect time.Duration // limit of a dial
	header  time.Duration // Options.HeaderTimeout, 0 for none

	// Of a node, nil for others: places of those who connect, a value for each connection that
	// has become idle, and Options.Protocol.
	turns    chan struct{}
	freed    chan struct{}
	protocol func() int

	mu       sync.Mutex
	unpooled bool    // idle connections are not kept
	closed   bool    // nor any others
	idle     []*conn // the last one was used last
	open     map[*conn]struct{}
	tunnels  map[*tunnel]struct{}
	reaper   *time.Timer // runs while idle is not empty
}

const (
	maxIdle     = 256              // connections kept for one target
	idleTimeout = 60 * time.Second // after which an unused one is closed
	// NodeDials is how many connections to a node are made at once. Many handshakes at a time
	// would all be late, and few are needed: requests take what is idle meanwhile.
	NodeDials = 8
)

// NewUpstream returns an upstream to which dial connects.
func NewUpstream(dial func(context.Context) (net.Conn, error), k Kind, o Options) *Upstream {
	u := &Upstream{
		dial:     dial,
		kind:     k,
		log:      cmp.Or(o.Log, slog.Default()),
		connect:  cmp.Or(o.ConnectTimeout, defaultConnectTimeout),
		header:   max(cmp.Or(o.HeaderTimeout, defaultHeaderTimeout), 0),
		protocol: o.Protocol,
		open:     map[*conn]struct{}{},
		tunnels:  map[*tunnel]struct{}{},
	}
	if k == Node {
		u.turns, u.freed = make(chan struct{}, NodeDials), make(chan struct{}, maxIdle)
	}
	return u
}

// get returns an idle connection that is open and silent; if the request has no body, that may be
// left to sendWhole. If there is none, or fresh is set, it returns a new one, or one that has
// become idle before it could begin to connect.
func (u *Upstream) get(ctx context.Context, hasBody, fresh bool) (*conn, error) {
	if c := u.takeIdle(hasBody, fresh); c != nil {
		return c, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, u.connect, os.ErrDeadlineExceeded)
	defer cancel()
	if u.turns == nil {
		return u.connectNow(ctx)
	}
	freed := u.freed
	if fresh {
		freed = nil
	}
	for {
		select {
		case u.turns <- struct{}{}:
			defer func() { <-u.turns }()
			return u.connectNow(ctx)
		case <-freed:
			if c := u.takeIdle(hasBody, fresh); c != nil {
				return c, nil
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// takeIdle returns an idle connection as get does; nil if there is none, or fresh is set.
func (u *Upstream) takeIdle(hasBody, fresh bool) *conn {
	for !fresh {
		c := u.pop()
		if c == nil {
			break
		}
		old := time.Now().After(c.until)
		if !old && !hasBody && c.looksLate() {
			return c
		}
		switch sight := c.look(); {
		case sight == speaking && u.kind != Node: // a node's TLS may speak by itself
			u.distrust()
		case sight == silent && !old:
			return c
		}
		u.discard(c)
	}
	return nil
}

// connectNow returns a new connection.
func (u *Upstream) connectNow(ctx context.Context) (*conn, error) {
	nc, err := u.dial(ctx)
	if err != nil {
		return nil, err
	}
	c := newConn(nc)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		nc.Close()
		return nil, net.ErrClosed
	}
	u.open[c] = struct{}{}
	return c, nil
}

func (u *Upstream) pop() *conn {
	u.mu.Lock()
	defer u.mu.Unlock()
	last := len(u.idle) - 1
	if last < 0 {
		return nil
	}
	c := u.idle[last]
	u.idle[last] = nil
	u.idle = u.idle[:last]
	return c
}

// put keeps a connection for the next exchange.
func (u *Upstream) put(c *conn) {
	c.used = true
	keep := idleTimeout
	if hint := c.head.KeepAlive; hint > 0 {
		keep = min(keep, hint)
	}
	c.until = time.Now().Add(keep)
	clear(c.head.Fields) // they hold on to the whole head
	clear(c.passed)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.unpooled || u.kind == Inner || len(u.idle) >= maxIdle {
		delete(u.open, c)
		c.Close()
		return
	}
	u.idle = append(u.idle, c)
	select {
	case u.freed <- struct{}{}:
	default: // more wait to be taken than there is room for; services have none
	}
	if u.reaper == nil {
		u.reaper = time.AfterFunc(idleTimeout, u.reap)
	}
}

// reap closes connections that have been idle for too long, as long as there are any.
func (u *Upstream) reap() {
	if u.closeExpired() && u.kind != Node {
		u.distrust()
	}
}

// closeExpired closes the connections for reap, and reports whether bytes had arrived
// on any of them.
func (u *Upstream) closeExpired() (spoken bool) {
	now := time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	kept := u.idle[:0]
	for _, c := range u.idle {
		if now.Before(c.until) {
			kept = append(kept, c)
			continue
		}
		spoken = spoken || c.look() == speaking
		delete(u.open, c)
		c.Close()
	}
	clear(u.idle[len(kept):])
	u.idle = kept
	if len(kept) == 0 {
		u.reaper = nil
		return spoken
	}
	u.reaper.Reset(idleTimeout)
	return spoken
}

func (u *Upstream) discard(c *conn) {
	c.Close()
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.open, c)
}

// distrust ends the pooling for a process that sent bytes without a request: the next
// ones may arrive just after a look.
func (u *Upstream) distrust() {
	if u.CloseIdle() {
		u.log.Info("a service sent bytes that no request asked for; its connections are not used again")
	}
}

// CloseIdle closes the connections that no exchange uses, now and from now on, and
// reports whether such connections were kept until now.
func (u *Upstream) CloseIdle() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	kept := !u.unpooled
	u.unpooled = true
	for _, c := range u.idle {
		delete(u.open, c)
		c.Close()
	}
	u.idle = nil
	if u.reaper != nil {
		u.reaper.Stop()
		u.reaper = nil
	}
	return kept
}

// CloseAll ends every exchange: it tells both sides of upgraded connections and closes
// the others.
func (u *Upstream) CloseAll() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for t := range u.tunnels {
		delete(u.open, t.conn)
		go t.goAway()
	}
	for c := range u.open {
		c.Close()
	}
}
