package server

import (
	"cmp"
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/cluster"
	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/peer"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/supervisor"
)

// members is the cluster as package peer asks for it.
type members struct{ cluster *cluster.Membership }

// Self implements peer.Nodes, as do the others.
func (m members) Self() string { return m.cluster.Self() }

func (m members) Member(node string) bool { return m.cluster.Member(node) }

func (m members) Name(node string) string { return m.cluster.Name(node) }

func (m members) Manager() bool { return m.cluster.Manager() }

func (m members) Address(node string) (string, peer.State) {
	addr, state := m.cluster.Address(node)
	switch state {
	case cluster.Ready:
		return addr, peer.Ready
	case cluster.Away:
		return addr, peer.Away
	default:
		return addr, peer.Lost
	}
}

// node returns the id of the node that this server is; "" on one machine.
func (s *Server) node() string {
	if s.cluster == nil {
		return ""
	}
	return s.cluster.Self()
}

// nodeName returns what names a node; nil on one machine.
func (s *Server) nodeName() func(id string) string {
	if s.cluster == nil {
		return nil
	}
	return s.cluster.Name
}

// nodeByID returns what tells the name and the state of a node; nil on one machine.
func (s *Server) nodeByID() func(id string) (name, state string) {
	if s.cluster == nil {
		return nil
	}
	return func(id string) (name, state string) {
		_, is := s.cluster.Address(id)
		return s.cluster.Name(id), string(is)
	}
}

// openPeers makes this server answer the other nodes, and ask them.
func (s *Server) openPeers(ctx context.Context) error {
	if s.cluster == nil {
		return nil
	}
	err := s.openOthers(ctx, &others{
		nodes: members{s.cluster}, certs: s.peerCerts, place: s.cluster.Place,
		asked: func(node string, at time.Time) { s.cluster.Contact(node, false, at) },
	}, s.cfg.PeerListen)
	if err == nil && s.acme != nil {
		s.acme.Share(s.store)
	}
	return err
}

// shutHosts returns the hosts, as host:port, that no stack may reach, those of the other nodes
// included.
func (s *Server) shutHosts() []string {
	hosts := s.cfg.shutHosts()
	if s.cluster == nil {
		return hosts
	}
	for _, n := range s.cluster.Nodes() {
		if n.Address != "" {
			hosts = append(hosts, n.Address)
		}
	}
	return hosts
}

// nodeHosts returns the addresses of all nodes; none on one machine.
func (s *Server) nodeHosts() []string {
	if s.cluster == nil {
		return nil
	}
	var hosts []string
	for _, n := range s.cluster.Nodes() {
		if host, _, err := net.SplitHostPort(n.Address); err == nil {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// withOthers adds what a supervisor needs of the other nodes.
func (s *Server) withOthers(cfg supervisor.Config) supervisor.Config {
	if s.cluster == nil {
		return cfg
	}
	cfg.Node = s.node()
	cfg.Peers = targets{s.others.pool}
	cfg.Hold = s.routes.Hold
	cfg.Closed = s.closed
	cfg.Elsewhere = s.others.table.Elsewhere
	cfg.Lost = s.lost
	cfg.SnapshotEvery, cfg.RestoreLost = s.cfg.SnapshotEvery, s.cfg.NodeLost == lostRestore
	if s.depot != nil {
		cfg.Registry, cfg.Archive = s.depot, s.depot
	}
	return cfg
}

// closedFor is how long other nodes may take to notice that this one takes no new stacks.
const closedFor = 5 * time.Second

// closed returns why this node takes no new stacks although another node has sent one: it has
// not noticed yet. The build of a node that stops would be cut off.
func (s *Server) closed() error {
	why := "is about to restart"
	switch {
	case s.draining():
		why = "is being drained"
	case s.cluster != nil && s.cluster.ClockWrong():
		why = "has a clock that is wrong"
	case !s.leaving.Load():
		return nil
	}
	return &stack.Error{
		Kind: stack.Unavailable, RetryAfter: closedFor,
		Detail: "the node that was chosen for the stack " + why + ", so nothing was created; send the request again, and another one takes it",
	}
}

// lost reports whether a node is lost; never on one machine.
func (s *Server) lost(node string) bool {
	if s.cluster == nil {
		return false
	}
	_, state := s.cluster.Address(node)
	return state == cluster.Lost
}

// heirs is account.Config.Heirs of a server; nil on one machine.
func (s *Server) heirs() func(context.Context) (func(string) (string, error), error) {
	if s.cluster == nil {
		return nil
	}
	return func(context.Context) (func(string) (string, error), error) {
		return heirOf(s.cluster.Nodes(), s.node()), nil
	}
}

// heirsForCommand is heirs for a command, which runs on no node: the first one that is ready is the heir.
func (s *Server) heirsForCommand() func(context.Context) (func(string) (string, error), error) {
	if !s.cfg.InCluster() {
		return nil
	}
	return func(ctx context.Context) (func(string) (string, error), error) {
		nodes, err := cluster.Read(ctx, s.store, s.cfg.NodeGrace)
		first := slices.IndexFunc(nodes, func(n cluster.Node) bool { return n.State == cluster.Ready })
		if first < 0 {
			return heirOf(nodes, ""), err
		}
		return heirOf(nodes, nodes[first].ID), err
	}
}

// heirOf returns what tells which node is to own a stack once it is deleted, by the rules of
// DELETE: if its node is lost, self is, which delivers the last event then. While the node is
// only away the stack is not deleted.
func heirOf(nodes []cluster.Node, self string) func(node string) (string, error) {
	return func(node string) (string, error) {
		at := slices.IndexFunc(nodes, func(n cluster.Node) bool { return n.ID == node })
		switch {
		case node == self || at >= 0 && nodes[at].State == cluster.Ready:
			return node, nil
		case at >= 0 && nodes[at].State == cluster.Away:
			return "", &stack.Error{
				Kind: stack.Unavailable, RetryAfter: awayRetry,
				Detail: "nothing was deleted: the node " + nodes[at].Name + ", which has a stack of the account, does not answer; try again when it is back",
			}
		}
		return cmp.Or(self, node), nil
	}
}

// awayRetry is how long to wait for a node that is away.
const awayRetry = 10 * time.Second

// startCluster begins to renew the lease and to greet the other nodes, since the rest of the
// start may take longer than a lease lasts, and to stop what others may take if the node is cut
// off. Once started is closed, when the supervisor has started, it also acts on what becomes of
// them.
func (s *Server) startCluster(started <-chan struct{}) {
	if s.cluster == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background()) // a server that shuts down keeps its lease until it has
	var running sync.WaitGroup
	running.Go(func() { s.cluster.Run(ctx) })
	running.Go(func() { s.greet(ctx) })
	running.Go(func() { s.stopIsolated(ctx) })
	running.Go(func() {
		select {
		case <-started:
		case <-ctx.Done():
			return
		}
		running.Go(func() { s.lookForEmpty(ctx) })
		running.Go(func() { s.followLost(ctx) })
		s.followNodes(ctx)
	})
	s.endCluster = func() { cancel(); running.Wait(); s.moving.running.Wait() }
}

// greet keeps this node in contact with the others.
func (s *Server) greet(ctx context.Context) {
	for pause.For(ctx, s.cluster.Interval()) {
		var asked sync.WaitGroup
		for _, n := range s.cluster.Nodes() {
			if n.ID != s.cluster.Self() && n.Address != "" {
				asked.Go(func() { s.ping(ctx, n.ID) })
			}
		}
		asked.Wait()
	}
}

// ping asks a node who it is, which is contact for both if it answers. A manager has noted that
// by then, so no other node takes the stacks of this one before it counts as isolated.
func (s *Server) ping(ctx context.Context, node string) {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, max(s.cluster.Interval(), time.Second))
	defer cancel()
	if pong, err := s.others.pool.Ping(ctx, node); err == nil && pong.Node == node {
		s.cluster.Contact(node, pong.Manager, begun)
	}
}

// lookForEmpty notes which stacks have no data, for the lease to say so.
func (s *Server) lookForEmpty(ctx context.Context) {
	for {
		limited, cancel := context.WithTimeout(ctx, max(s.cluster.Interval(), time.Second))
		empty, err := s.supervisor.EmptyStacks(limited)
		cancel()
		if err != nil {
			empty = nil // what was seen before may not be so any more
		}
		s.cluster.SetEmpty(empty)
		if !pause.For(ctx, s.cluster.Interval()) {
			return
		}
	}
}

// stopIsolated stops what others may take while this node is isolated. Nothing else that may
// wait for the database or another node delays it: others count the time, too.
func (s *Server) stopIsolated(ctx context.Context) {
	changed, stop := s.cluster.Watch()
	defer stop()
	isolated := false
	for {
		if now := s.cluster.Isolated(); now != isolated {
			if isolated = now; now {
				s.supervisor.Isolated(ctx, s.cluster.SaidEmpty(), s.cfg.isolatedStop())
				s.cluster.Stopped()
			} else {
				s.supervisor.Rejoined()
			}
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// followNodes moves stacks away as operators want it.
func (s *Server) followNodes(ctx context.Context) {
	s.atChanges(ctx, func() {
		s.moveAsked(ctx)
		s.moveAway(ctx)
	})
}

// followLost takes over from lost nodes. It is apart from followNodes because data may take
// long to come.
func (s *Server) followLost(ctx context.Context) {
	s.atChanges(ctx, func() { s.takeOverLost(ctx) })
}

// atChanges calls do now, after each change of the nodes, and now and then, until ctx ends.
func (s *Server) atChanges(ctx context.Context, do func()) {
	changed, stop := s.cluster.Watch()
	defer stop()
	tick := time.NewTicker(s.cluster.Interval())
	defer tick.Stop()
	for {
		do()
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// takeOverLost takes the stacks of lost nodes that this one may take.
func (s *Server) takeOverLost(ctx context.Context) {
	if !s.cluster.TakesLost() {
		return
	}
	for _, n := range s.cluster.Nodes() {
		if !s.cluster.MayTakeOver(n.ID) {
			continue
		}
		if err := s.supervisor.TakeOver(ctx, supervisor.Lost{Node: n.ID, Empty: n.Empty, Until: n.Until}); err != nil && ctx.Err() == nil {
			s.log.Warn("stacks of a lost node not taken; trying again", "node", n.Name, "error", err)
		}
	}
}
