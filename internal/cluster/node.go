package cluster

import (
	"context"
	"maps"
	"time"

	"github.com/berth-host/berth/internal/store"
)

// State is what is known of a node.
type State string

// The states of a node.
const (
	Ready State = "ready" // it has its lease
	Away  State = "away"  // its lease is over; what it runs may go on
	Lost  State = "lost"  // others may take some of its stacks
)

// placeLabel is the label of a node in Swarm that keeps new stacks away from it when it is
// "no".
const placeLabel = "berth.place"

// drain is the availability in Swarm of a node that is to be left.
const drain = "drain"

// Node is a node as it was when the nodes were last read.
type Node struct {
	ID, Name, Address, Version string

	State State

	// Of Swarm's word; none if that is old.
	Availability string // active, pause or drain; "" for no word
	Labels       map[string]string
	Manager      bool

	Gone     bool // it is not in the swarm any more; that stays so until a manager knows it again
	Draining bool // an operator wants its stacks moved, here or in Swarm
	drains   bool // in Swarm
	closed   bool // to new stacks, by Swarm's word

	Stacks, Builds int
	Room           int64         // free bytes of its fullest disk; NoRoom while it takes no new stacks
	Empty          []string      // stacks that had no data when it last renewed its lease
	Until          time.Time     // the end of its lease, by the clock of the database
	Over           time.Duration // how long its lease has been over; 0 while it has it
	Silent         time.Duration // since a manager's server was last in contact with it
	Heard          time.Duration // since Swarm's word about it was last written
}

// Read returns all nodes, by name, for a command that is not a node itself.
func Read(ctx context.Context, from interface {
	Nodes(ctx context.Context) ([]store.Node, error)
	CountByNode(ctx context.Context) (map[string]int, error)
}, grace time.Duration,
) ([]Node, error) {
	rows, err := from.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	counts, err := from.CountByNode(ctx)
	nodes := make([]Node, 0, len(rows))
	for _, row := range rows {
		n := nodeOf(row, grace)
		n.Stacks = counts[n.ID]
		nodes = append(nodes, n)
	}
	return nodes, err
}

// nodeOf returns the node of a row.
func nodeOf(row store.Node, grace time.Duration) Node {
	word := wordOf(row)
	return Node{
		ID: row.ID, Name: row.Name, Address: row.Address, Version: row.Version,
		State:        stateOf(row, grace),
		Availability: word.Availability,
		Labels:       word.Labels,
		Manager:      word.Manager,
		Gone:         row.Word.State == store.Gone,
		Draining:     row.Draining || word.Availability == drain,
		drains:       word.Availability == drain,
		closed:       word.Availability != "" && word.Availability != "active" || word.Labels[placeLabel] == "no",
		Stacks:       row.Load.Stacks, Builds: row.Load.Builds, Room: row.Load.Room, Empty: row.Load.Empty,
		Until:  row.LeaseUntil,
		Over:   max(0, row.Now.Sub(row.LeaseUntil)),
		Silent: row.Now.Sub(row.SeenAt),
		Heard:  row.Now.Sub(row.WordAt),
	}
}

// Unplaced reports whether the node's label in Swarm keeps new stacks away from it.
func (n Node) Unplaced() bool { return n.Labels[placeLabel] == "no" }

// wordOf returns Swarm's word about a node: none if it is old.
func wordOf(row store.Node) store.Word {
	if row.Now.Sub(row.WordAt) > wordLife {
		return store.Word{}
	}
	return row.Word
}

// after returns the node as it is once old was read. While Swarm says nothing of it, a drain
// that has begun goes on, and it does not begin to take new stacks.
func (n Node) after(old Node) Node {
	if n.Availability == "" {
		n.drains, n.closed, n.Manager = old.drains, old.closed, old.Manager
	}
	n.Draining = n.Draining || n.drains
	return n
}

// stateOf returns the state of a node. It is lost if an operator has said so, or if its lease
// has been over for grace and Swarm says that it is down.
func stateOf(row store.Node, grace time.Duration) State {
	over := row.Now.Sub(row.LeaseUntil)
	said := wordOf(row).State
	switch {
	case over < 0:
		return Ready
	case !row.LostAt.IsZero(), over >= grace && (said == "down" || said == store.Gone):
		return Lost
	}
	return Away
}

// differs reports whether anything has changed but what changes all the time.
func (n Node) differs(old Node) bool {
	return n.ID != old.ID || n.Name != old.Name || n.Address != old.Address || n.Version != old.Version ||
		n.State != old.State || n.Availability != old.Availability || n.Manager != old.Manager ||
		n.Gone != old.Gone || n.Draining != old.Draining || !maps.Equal(n.Labels, old.Labels)
}

// takesNew reports whether a node may be given new stacks, by itself or by another node. Without
// Swarm's word others do not know whether they may.
func (n Node) takesNew(byItself bool) bool {
	return n.State == Ready && (n.Availability != "" || byItself) && !n.closed && !n.Draining && !n.Gone && n.Room != NoRoom
}
