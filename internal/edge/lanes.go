package edge

import (
	"context"
	"crypto/tls"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// The kinds of connections that Config.Connected counts.
const (
	fast       = "fast"        // in the first lane
	standard   = "standard"    // with net/http from the beginning
	handedOver = "handed_over" // from the first lane to net/http
)

// lanes are the connections in the first lane.
type lanes struct {
	srv         *Server
	headTimeout time.Duration // for a request's head
	hangups     *hangups
	over        *acceptor // gives connections to net/http
	closing     atomic.Bool

	mu   sync.Mutex
	all  map[*lane]struct{}
	none chan struct{} // closed once closing and empty
}

// open makes the lanes ready, which give net/http connections through over.
func (s *lanes) open(over *acceptor) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		return http.ErrServerClosed
	}
	s.over = over
	s.hangups, err = newHangups()
	return err
}

// count counts a connection.
func (s *Server) count(kind string) {
	if s.edge.cfg.Connected != nil {
		s.edge.cfg.Connected(kind)
	}
}

// add adds a lane, and returns false if the lanes end.
func (s *lanes) add(l *lane) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		return false
	}
	s.all[l] = struct{}{}
	return true
}

// count returns how many lanes there are. The lanes may be nil.
func (s *lanes) count() int {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

func (s *lanes) remove(l *lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, l)
	s.noteNone()
}

// noteNone closes none if it is time. The caller holds mu.
func (s *lanes) noteNone() {
	if s.closing.Load() && len(s.all) == 0 && s.none != nil {
		close(s.none)
		s.none = nil
	}
}

// deliver gives a lane's connection to net/http.
func (s *lanes) deliver(l *lane) bool {
	if l.socket != nil {
		return s.over.deliver(accepted{conn: l.c})
	}
	l.c.tls = true
	return s.over.deliver(accepted{conn: secure{l.nc.(*tls.Conn), l.c.framing, l.c.seat}})
}

// newcomer is how long a connection without a request is kept open once lanes end: its first
// one may be on the way.
const newcomer = time.Second

// patience returns until when an idle lane is kept open once lanes end. The caller has locked
// mu of the lane, or is the lane.
func (s *lanes) patience(l *lane, now time.Time) time.Time {
	if !l.used {
		return now.Add(newcomer)
	}
	return time.Unix(1, 0)
}

// shutdown ends idle connections, and waits for the others, or for ctx.
func (s *lanes) shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.closing.Store(true)
	now, none := time.Now(), s.none
	for l := range s.all {
		l.endIdle(now)
	}
	s.noteNone()
	s.mu.Unlock()
	if none == nil {
		return nil
	}
	select {
	case <-none:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// endIdle makes a wait for a request end soon.
func (l *lane) endIdle(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.busy {
		l.nc.SetReadDeadline(l.srv.lanes.patience(l, now))
	}
}

// close ends all connections at once.
func (s *lanes) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing.Store(true)
	for l := range s.all {
		l.c.closeNow()
		l.hangUp()
	}
	if s.hangups != nil {
		s.hangups.close()
	}
}
