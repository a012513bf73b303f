package server

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/berth-host/berth/internal/edge"
	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/peer"
)

// relayAddress is where a server takes the requests that the one before it still gets.
type relayAddress struct {
	Address string
	Key     string // the first bytes of each connection, which only the two know
}

// dial connects to the server.
func (a relayAddress) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", a.Address)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, a.Key); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// relayed takes the requests that the server before this one still gets. A nil relayed takes
// none.
type relayed struct {
	listener *keyed
	edge     *edge.Server
	over     chan struct{} // closed once the server before has ended
}

// openRelayed creates what takes the requests of the server before from the public one's
// configuration.
func (s *Server) openRelayed(cfg edge.Config) error {
	if s.place == nil {
		return nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for the process before this one: %w", err)
	}
	cfg.Peers, cfg.TLS = peer.Predecessor{}, nil
	cfg.Connected = nil // that process has counted them
	s.relayed = &relayed{
		listener: newKeyed(l, rand.Text()),
		edge:     edge.NewServer(cfg),
		over:     make(chan struct{}),
	}
	return nil
}

// serveRelayed tells the server before this one that this one serves, and takes its requests until it
// has ended.
func (s *Server) serveRelayed(failed chan<- error) {
	if s.relayed == nil {
		return
	}
	r, place := s.relayed, s.place
	go func() {
		err := r.edge.Serve(r.listener)
		select {
		case <-r.over:
		default:
			failed <- err
		}
	}()
	if err := place.taken(relayAddress{r.listener.Addr().String(), r.listener.key}); err != nil {
		s.log.Warn("the process before this one was not told that this one serves", "error", err)
	}
	go func() {
		place.ended()
		close(r.over)
		r.close()
	}()
}

// awaitEnd returns once the server before has ended. It fails if ctx ends first.
func (r *relayed) awaitEnd(ctx context.Context) error {
	if r == nil {
		return nil
	}
	select {
	case <-r.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close ends what is left.
func (r *relayed) close() {
	if r == nil {
		return
	}
	_ = r.edge.Close() // nobody sends anything any more
	r.listener.Close() // again where it was served
}

// keyed is a listener of connections that begin with a key. It closes all others.
type keyed struct {
	net.Listener
	key      string
	accepted chan net.Conn
	open     context.Context
	end      context.CancelFunc
}

func newKeyed(l net.Listener, key string) *keyed {
	k := &keyed{Listener: l, key: key, accepted: make(chan net.Conn)}
	k.open, k.end = context.WithCancel(context.Background())
	go k.acceptAll()
	return k
}

// Accept returns the next connection, without its key.
func (k *keyed) Accept() (net.Conn, error) {
	select {
	case conn := <-k.accepted:
		return conn, nil
	case <-k.open.Done():
		return nil, net.ErrClosed
	}
}

// Close closes the listener, and the connections that Accept has not returned.
func (k *keyed) Close() error {
	k.end()
	return k.Listener.Close()
}

// acceptRetry is the pause after a connection that could not be accepted, for lack of files.
const acceptRetry = 50 * time.Millisecond

func (k *keyed) acceptAll() {
	for {
		conn, err := k.Listener.Accept()
		if errors.Is(err, net.ErrClosed) || err != nil && !pause.For(k.open, acceptRetry) {
			return
		}
		if err == nil {
			go k.admit(conn)
		}
	}
}

// keyTime is how long a connection may take to send its key.
const keyTime = 5 * time.Second

func (k *keyed) admit(conn net.Conn) {
	got := make([]byte, len(k.key))
	conn.SetReadDeadline(time.Now().Add(keyTime))
	_, err := io.ReadFull(conn, got)
	conn.SetReadDeadline(time.Time{})
	if err == nil && subtle.ConstantTimeCompare(got, []byte(k.key)) == 1 {
		select {
		case k.accepted <- conn:
			return
		case <-k.open.Done():
		}
	}
	conn.Close()
}
