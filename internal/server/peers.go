package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/valyala/fasthttp/fasthttputil"

	"github.com/berth-host/berth/internal/account"
	"github.com/berth-host/berth/internal/edge"
	"github.com/berth-host/berth/internal/exchange"
	"github.com/berth-host/berth/internal/peer"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/wire"
)

// leaveTime is how long a node of a cluster says at /healthz that it is about to stop
// before it stops listening, so that a balancer sends it no more requests.
const leaveTime = 5 * time.Second

// peerSilence is how long another node may answer no ping before what it was asked is broken off.
const peerSilence = 30 * time.Second

// others is what a server has for the other nodes of its cluster.
type others struct {
	nodes peer.Nodes
	certs peer.Certificates
	place func(ctx context.Context, without []string) (node string, err error)
	// asked hears of each ping that another node sent.
	asked func(node string, at time.Time)

	pool     *peer.Pool
	calls    peer.Calls // the supervisor's moves are added to it
	table    *peer.Table
	listener net.Listener
	edge     *edge.Server
	tools    *fasthttputil.InmemoryListener // the API of all nodes, for the tools at /mcp
	inner    *http.Server                   // serves tools
	stop     context.CancelFunc             // ends the table's loop
}

// openOthers binds the listener for nodes and reads which node has each stack. It comes
// after the store is open and before the supervisor starts.
func (s *Server) openOthers(ctx context.Context, o *others, listen string) (err error) {
	o.calls = peer.NewCalls()
	o.calls.AnswerPing(o.nodes, version(), o.asked)
	o.pool = peer.NewPool(peer.PoolConfig{Nodes: o.nodes, Certificates: o.certs, Protocol: peer.Protocol, Silence: peerSilence, Log: s.log})
	o.table = peer.NewTable(peer.TableConfig{
		Rows:   s.store,
		Routes: s.routes,
		Self:   o.nodes.Self(),
		Peer:   o.pool.Peer,
		Domain: s.cfg.AppsDomain,
		Log:    s.log,
	})
	if err := s.awaitDatabase(ctx, o.table.Load); err != nil {
		return fmt.Errorf("read which node has each stack: %w", err)
	}
	if o.listener, err = s.listen(filePeers, listen); err != nil {
		return fmt.Errorf("BERTH_PEER_LISTEN: %w", err)
	}
	o.tools = fasthttputil.NewInmemoryListener()
	following, stop := context.WithCancel(context.Background())
	o.stop = stop
	go o.table.Follow(following)
	s.others = o
	return nil
}

// claimHost claims the stacks of all nodes.
func (s *Server) claimHost() account.Host {
	if s.others == nil {
		return s.supervisor
	}
	o := s.others
	return peer.Claims{Here: s.supervisor, Owners: o.table, Self: o.nodes.Self(), Pool: o.pool, Read: s.store.Get}
}

// forwarder returns a handler that passes each request to the node that answers it, or
// here where there are no others.
func (s *Server) forwarder(here http.Handler) http.Handler {
	if s.others == nil {
		return here
	}
	return peer.NewForwarder(peer.ForwarderConfig{
		Here:      here,
		Owners:    s.others.table,
		Nodes:     s.others.nodes,
		Peer:      s.others.pool.Peer,
		Place:     s.others.place,
		AwaitMove: s.supervisor.AwaitMove,
		Log:       s.log,
	})
}

// toolsDial returns how the tools at /mcp reach the API, of all nodes if there are
// others.
func (s *Server) toolsDial(toAPI http.Handler) func() (net.Conn, error) {
	if s.others == nil {
		return s.inner.Dial
	}
	forward := s.forwarder(toAPI)
	s.others.inner = &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			who := exchange.Caller{IP: r.Header.Get(wire.HeaderCallerIP), Proto: s.cfg.BaseURL.Scheme}
			forward.ServeHTTP(w, r.WithContext(proxy.WithCaller(r.Context(), who)))
		}),
	}
	return s.others.tools.Dial
}

// edgeForOthers creates the server of the listener for nodes from the public one's
// configuration.
func (s *Server) edgeForOthers(cfg edge.Config) {
	cfg.Peers = peer.NewGate(s.others.nodes, peer.Protocol, s.others.calls)
	cfg.TLS = peer.ServerTLS(s.others.certs, peer.Protocol)
	cfg.Arrived, cfg.Banned = nil, nil  // the node that was asked has counted it, and refused it
	cfg.Conns, cfg.Connected = nil, nil // nodes are not clients
	s.others.edge = edge.NewServer(cfg)
	s.routes.Refresh = s.others.table.RereadHost
	s.routes.MayServe = s.cluster.MayServe
}

// serve serves the listener for nodes and the tools until they are closed.
func (o *others) serve(failed chan<- error) {
	go func() { failed <- o.edge.Serve(o.listener) }()
	go func() { failed <- o.inner.Serve(o.tools) }()
}

// leave announces that this node stops, and gives balancers and nodes time to notice.
func (s *Server) leave() {
	if s.others == nil {
		return
	}
	s.leaving.Store(true)
	s.edge.Leave()
	s.others.edge.Leave()
	time.Sleep(leaveTime)
}

// shutdown ends the listeners after the open requests.
func (o *others) shutdown(ctx context.Context) error {
	if o == nil {
		return nil
	}
	return errors.Join(o.edge.Shutdown(ctx), o.inner.Shutdown(ctx), o.pool.Drain(ctx))
}

// close closes what is left.
func (o *others) close() {
	if o == nil {
		return
	}
	o.stop()
	if o.edge != nil {
		_ = o.edge.Close()
	}
	if o.inner != nil {
		_ = o.inner.Close()
	}
	_ = o.listener.Close() // again where it was served
}

// staying returns an error while this node is about to stop.
func (s *Server) staying() error {
	if s.leaving.Load() {
		return &stack.Error{Kind: stack.Unavailable, RetryAfter: leaveTime, Detail: "this node is about to stop; ask another one"}
	}
	return nil
}
