package edge

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Server serves the edge's handler on listeners. It does not limit how long a body or
// an answer takes, since streams live as long as bytes move.
type Server struct {
	http      *http.Server
	edge      *edge
	stalls    *stalls
	lanes     *lanes                   // nil for all connections with net/http
	listening atomic.Pointer[acceptor] // nil before Serve, and without TLS and lanes
	conns     atomic.Int64             // open ones with net/http that are not upgraded
	lingering sync.WaitGroup           // connections that read the rest of an upload
}

const (
	headTimeout = 10 * time.Second // for a request's head, and for a TLS handshake
	idleTimeout = 2 * time.Minute  // of a keep-alive connection
	maxHead     = 64 << 10         // of a request, in bytes
)

// NewServer returns a server configured by cfg.
func NewServer(cfg Config) *Server {
	log := cmp.Or(cfg.Log, slog.Default())
	e := newEdge(cfg)
	s := &Server{
		edge:   e,
		stalls: &stalls{limit: cmp.Or(cfg.StallTimeout, time.Minute), log: log, watches: map[*watch]struct{}{}},
		http: &http.Server{
			Handler:                      e,
			TLSConfig:                    withProtocols(cfg.TLS),
			ReadHeaderTimeout:            headTimeout,
			IdleTimeout:                  idleTimeout,
			MaxHeaderBytes:               headLimit(cfg),
			DisableGeneralOptionsHandler: true, // OPTIONS * is for the API or the service
			ConnContext:                  withConn,
			ErrorLog:                     slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		},
	}
	s.http.ConnState = s.connState
	if cfg.FastLane && cfg.Peers == nil {
		s.lanes = &lanes{srv: s, headTimeout: headTimeout, all: map[*lane]struct{}{}, none: make(chan struct{})}
	}
	return s
}

// headLimit returns the limit of a request's head, in bytes: a node that forwards one
// adds its own headers.
func headLimit(cfg Config) int {
	if cfg.Peers != nil {
		return maxHead + 4<<10
	}
	return maxHead
}

// connState counts connections, resets one for its next request, lets an upgraded connection
// pass unchanged, and ends the watch over exchanges.
func (s *Server) connState(nc net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.conns.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.conns.Add(-1)
	}
	c := unwrap(nc)
	if c == nil {
		return
	}
	if c.stream != nil && state == http.StateClosed {
		c.arrived()
	}
	switch state {
	case http.StateActive:
		c.seat.use() // by HTTP/2; HTTP/1 has said so with its first byte
	case http.StateIdle:
		c.busy.Store(false)
		c.unread.Store(false)
		if c.framing.between() {
			c.seat.idle(time.Now())
		}
	case http.StateHijacked:
		c.framing.release()
	}
	if c.watch != nil {
		c.watch.follow(state)
	}
}

// Serve answers on a TCP listener until Shutdown or Close, and then returns
// http.ErrServerClosed.
func (s *Server) Serve(l net.Listener) error {
	if s.http.TLSConfig == nil && s.lanes == nil {
		return s.http.Serve(listener{Listener: l, srv: s})
	}
	over := newAcceptor(l, s)
	if s.lanes != nil {
		if err := s.lanes.open(over); err != nil {
			return fmt.Errorf("open the public listener: %w", err)
		}
	}
	s.listening.Store(over)
	go over.acceptAll()
	return s.http.Serve(over)
}

// Leave makes each connection end with its next answer, so that hardly any is in use
// when Shutdown closes what is idle.
func (s *Server) Leave() { s.edge.leaving.Store(true) }

// PassOn makes a handler answer every request from now on, each connection of which ends with
// its next answer. It gets the sender as proxy.CallerOf returns it.
func (s *Server) PassOn(to http.Handler) {
	s.edge.next.Store(&to)
	s.Leave()
}

// finishedEvery is how often Finish looks for open connections.
const finishedEvery = 50 * time.Millisecond

// Finish waits until the connections have ended that are not upgraded, or ctx ends. It closes
// none: unlike with Shutdown, one that waits for a request still gets the answer. The
// listener must be closed, and Leave or PassOn have been called.
func (s *Server) Finish(ctx context.Context) {
	for s.conns.Load() > 0 || s.lanes.count() > 0 {
		select {
		case <-time.After(finishedEvery):
		case <-ctx.Done():
			return
		}
	}
}

// Shutdown stops listening and waits for the open requests, or for ctx. It does not
// wait for upgraded connections; see proxy.Routes.Drain.
func (s *Server) Shutdown(ctx context.Context) error {
	if l := s.listening.Load(); l != nil {
		l.leave(ctx)
	}
	s.Leave()
	s.http.SetKeepAlivesEnabled(false)
	var err error
	if s.lanes != nil {
		err = s.lanes.shutdown(ctx) // first, since lanes may still hand connections over
		defer s.lanes.close()
	}
	if err = cmp.Or(s.http.Shutdown(ctx), err); err != nil {
		return fmt.Errorf("shut the public listener down: %w", err)
	}
	done := make(chan struct{})
	go func() { s.lingering.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("shut the public listener down: %w", ctx.Err())
	}
}

// Close closes every listener and connection at once.
func (s *Server) Close() error {
	err := s.http.Close()
	if s.lanes != nil {
		s.lanes.close()
	}
	return err
}

// listener wraps each TCP connection in a conn.
type listener struct {
	net.Listener
	srv *Server
}

func (l listener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.srv.admit(nc); c != nil {
			c.framing = &framing{}
			l.srv.count(standard)
			return c, nil
		}
	}
}

// admit returns the connection nc if its client network may have one more, and refuses it
// otherwise.
func (s *Server) admit(nc net.Conn) *conn {
	tcp := nc.(*net.TCPConn)
	place, ok := s.edge.cfg.Conns.admit(tcp)
	if !ok {
		s.edge.cfg.Conns.refuse(tcp, s.edge.cfg.TLS == nil)
		return nil
	}
	return newConn(tcp, s, place)
}
