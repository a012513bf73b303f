package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/cluster"
	"github.com/berth-host/berth/internal/metrics"
	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/store"
)

// NodeView is a node as berthd nodes shows it.
type NodeView struct {
	ID           string `json:"id"`
	Name         string `json:"name"`
	Address      string `json:"address"`
	State        string `json:"state"`        // ready, away or lost
	Availability string `json:"availability"` // active, pause or drain; active, too, while Swarm says nothing
	Version      string `json:"version"`
	Stacks       int    `json:"stacks"`

	unplaced bool // its label in Swarm keeps new stacks away
}

// Nodes are the nodes of a cluster, for commands on any of them.
type Nodes struct {
	cfg   Config
	store *store.Store
}

// WithNodes opens the cluster's database, whether or not a server runs on this machine, and
// calls do.
func WithNodes(ctx context.Context, cfg Config, log *slog.Logger, do func(Nodes) error) (err error) {
	if !cfg.InCluster() {
		return errors.New("this server is not in a cluster; set BERTH_CLUSTER=swarm and the other settings of its nodes")
	}
	s := &Server{cfg: cfg, log: log, metrics: metrics.New()}
	if s.databaseFile, err = s.cfg.databasePath(); err != nil {
		return err
	}
	if s.store, err = store.Open(ctx, s.storeOptions()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.store.Close()) }()
	found, known, err := s.store.Installation(ctx)
	if err != nil {
		return err
	}
	if !known {
		return fmt.Errorf("the database %s has no nodes yet; start berthd on one first", s.store.Name())
	}
	if err := s.checkMode(found); err != nil {
		return err
	}
	return do(Nodes{cfg: cfg, store: s.store})
}

// List returns all nodes, by name.
func (n Nodes) List(ctx context.Context) ([]NodeView, error) {
	nodes, err := cluster.Read(ctx, n.store, n.cfg.NodeGrace)
	views := make([]NodeView, 0, len(nodes))
	for _, node := range nodes {
		views = append(views, viewNode(node))
	}
	return views, err
}

func viewNode(n cluster.Node) NodeView {
	v := NodeView{n.ID, n.Name, n.Address, string(n.State), cmp.Or(n.Availability, "active"), n.Version, n.Stacks, n.Unplaced()}
	if n.Draining {
		v.Availability = "drain"
	}
	return v
}

// find returns the node with an id or a name.
func (n Nodes) find(ctx context.Context, asked string) (NodeView, error) {
	all, err := n.List(ctx)
	if err != nil {
		return NodeView{}, err
	}
	var found []NodeView
	var names, ids []string
	for _, v := range all {
		if v.ID == asked {
			return v, nil
		}
		names = append(names, v.Name)
		if v.Name == asked {
			found, ids = append(found, v), append(ids, v.ID)
		}
	}
	switch len(found) {
	case 0:
		return NodeView{}, fmt.Errorf("there is no node %q; the nodes are %s", asked, strings.Join(names, ", "))
	case 1:
		return found[0], nil
	}
	return NodeView{}, fmt.Errorf("%d nodes are called %s; use the id of one: %s", len(found), asked, strings.Join(ids, ", "))
}

// drainLook is how often Drain looks how many stacks are left.
const drainLook = time.Second

// drainSettle is how long a node must have no stacks: until then another node may not know that
// it takes no new ones, and so may the node itself.
const drainSettle = 4 * time.Second

// Drain makes a node move its stacks to others, and returns when it has none and has removed what
// it had of them, or an error when it is lost or activated before. If ctx ends first the node
// goes on.
func (n Nodes) Drain(ctx context.Context, asked string) error {
	node, err := n.find(ctx, asked)
	if err != nil {
		return err
	}
	switch node.State {
	case string(cluster.Away):
		return fmt.Errorf("node %s is away, so it cannot move its stacks; start its berthd, or give it up with: berthd nodes lost %s", node.Name, asked)
	case string(cluster.Lost):
		return fmt.Errorf("node %s is lost, so it cannot move its stacks; start its berthd, which takes it back, or leave its stacks to what BERTH_NODE_LOST says", node.Name)
	}
	if err := n.store.DrainNode(ctx, node.ID, true); err != nil {
		return err
	}
	empty := time.Time{} // since when it has none
	for left := node.Stacks; ; {
		now, err := n.find(ctx, node.ID)
		if err == nil && now.Stacks > 0 {
			empty = time.Time{}
		}
		switch {
		case err != nil: // the next look may work
		case now.Stacks == 0:
			if empty.IsZero() {
				empty = time.Now()
			}
			if time.Since(empty) >= drainSettle && !n.isLeaving(ctx, now) {
				return nil
			}
		case now.State == string(cluster.Lost):
			return fmt.Errorf("node %s is lost by now, and has %d stacks left that need it back; start its berthd, which goes on moving them", node.Name, now.Stacks)
		case now.Availability != "drain":
			return fmt.Errorf("node %s was activated meanwhile, and keeps its %d stacks; drain it again if it is to be empty", node.Name, now.Stacks)
		default:
			left = now.Stacks
		}
		switch {
		case pause.For(ctx, drainLook):
		case !empty.IsZero():
			return fmt.Errorf("stopped waiting; node %s has no stacks left, but perhaps something of those that moved away, which its berthd removes", node.Name)
		default:
			return fmt.Errorf("stopped waiting; node %s has %d stacks left and goes on moving them, until: berthd nodes activate %s", node.Name, left, asked)
		}
	}
}

// isLeaving reports whether a node that is being drained may still have to remove what it had of
// stacks that moved away. If it is lost, nobody waits for that.
func (n Nodes) isLeaving(ctx context.Context, node NodeView) bool {
	leaving, err := countLeaving(ctx, n.store, node.ID)
	return (err != nil || leaving > 0) && node.Availability == "drain" && node.State != string(cluster.Lost)
}

// Activate takes back what Drain asked for. It returns an error if Swarm still keeps new stacks
// away from the node.
func (n Nodes) Activate(ctx context.Context, asked string) error {
	node, err := n.find(ctx, asked)
	if err != nil {
		return err
	}
	if err := n.store.DrainNode(ctx, node.ID, false); err != nil {
		return err
	}
	node, err = n.find(ctx, node.ID)
	switch {
	case err != nil:
		return err
	case node.Availability != "active":
		return fmt.Errorf("node %s gets no new stacks yet, since its availability in Swarm is %s; change that with: docker node update --availability active %s", node.Name, node.Availability, node.ID)
	case node.unplaced:
		return fmt.Errorf("node %s gets no new stacks yet, since it has the label berth.place=no in Swarm; change that with: docker node update --label-rm berth.place %s", node.Name, node.ID)
	}
	return nil
}

// Lose gives a node up, as if Swarm said that it is down. It refuses a ready node.
func (n Nodes) Lose(ctx context.Context, asked string) error {
	node, err := n.find(ctx, asked)
	if err != nil {
		return err
	}
	err = n.store.LoseNode(ctx, node.ID)
	if errors.Is(err, store.ErrNodeReady) {
		return fmt.Errorf("node %s is ready, so it is not lost; stop its berthd first, or move its stacks with: berthd nodes drain %s", node.Name, asked)
	}
	return err
}
