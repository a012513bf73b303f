package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-host/berth/internal/cluster"
	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// StackView is a stack as berthd stacks shows it.
type StackView struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Status string `json:"status"`
	Node   string `json:"node"` // id of the owner
	Epoch  int64  `json:"epoch"`

	Owner string      `json:"-"` // its name
	Left  []Leftovers `json:"data_left"`
}

// Leftovers are volumes with data of a stack on a node that does not own it.
type Leftovers struct {
	Stack   string   `json:"stack"`
	Node    string   `json:"node"`
	Volumes []string `json:"volumes"`

	OnName string `json:"-"` // name of the node
}

// Stack returns where a stack is.
func (n Nodes) Stack(ctx context.Context, id string) (StackView, error) {
	st, err := n.standing(ctx, id)
	if err != nil {
		return StackView{}, err
	}
	nodes, err := n.List(ctx)
	if err != nil {
		return StackView{}, err
	}
	left, err := n.leftovers(ctx, nodes, id)
	return StackView{st.ID, st.Name, string(st.Status), st.Node, st.Epoch, nameOf(nodes, st.Node), left}, err
}

// standing returns the row of a stack.
func (n Nodes) standing(ctx context.Context, id string) (store.Standing, error) {
	st, err := n.store.Standing(ctx, id)
	if stack.KindOf(err) == stack.NotFound {
		return st, fmt.Errorf("there is no stack %q; write the id of one, such as stk_0123456789ab", id)
	}
	return st, err
}

// Left returns the data of stacks that is on nodes that do not own them.
func (n Nodes) Left(ctx context.Context) ([]Leftovers, error) {
	nodes, err := n.List(ctx)
	if err != nil {
		return nil, err
	}
	return n.leftovers(ctx, nodes, "")
}

// StuckStack is a stack that did not leave a node which is being drained.
type StuckStack struct{ Stack, OnName, Why string }

// Stuck returns the stacks that did not leave nodes that are being drained, so far.
func (n Nodes) Stuck(ctx context.Context) (all []StuckStack, err error) {
	nodes, err := n.List(ctx)
	for _, v := range nodes {
		if v.Availability != "drain" {
			continue
		}
		moves, readErr := n.store.Stuck(ctx, v.ID)
		err = errors.Join(err, readErr)
		for _, m := range moves {
			all = append(all, StuckStack{m.StackID, v.Name, m.Error})
		}
	}
	return all, err
}

// leftovers returns those of a stack, or of all for "".
func (n Nodes) leftovers(ctx context.Context, nodes []NodeView, id string) ([]Leftovers, error) {
	remains, err := n.store.DataLeft(ctx, id)
	all := make([]Leftovers, 0, len(remains))
	for _, r := range remains {
		all = append(all, Leftovers{r.StackID, r.Node, r.Volumes, nameOf(nodes, r.Node)})
	}
	return all, err
}

// nameOf returns the name of a node, its id if it is not known.
func nameOf(nodes []NodeView, id string) string {
	for _, v := range nodes {
		if v.ID == id {
			return v.Name
		}
	}
	return id
}

// moveLook is how often Move looks what has become of a move.
const moveLook = 250 * time.Millisecond

// Move makes the owner of a stack move it to another node, and returns once that one owns it.
// If ctx ends first, the move goes on.
func (n Nodes) Move(ctx context.Context, id, asked string) error {
	st, err := n.standing(ctx, id)
	if err != nil {
		return err
	}
	target, err := n.find(ctx, asked)
	if err != nil {
		return err
	}
	if st.Node == target.ID {
		return nil
	}
	if err := canTake(target); err != nil {
		return err
	}
	owner, err := n.owner(ctx, st)
	if err != nil {
		return err
	}
	if owner.State != string(cluster.Ready) {
		return cannotMove(owner)
	}
	move, err := n.store.AskMove(ctx, id, target.ID)
	if err != nil {
		return err
	}
	return n.awaitMove(ctx, move, target)
}

// canTake returns why no stack can move to a node.
func canTake(target NodeView) error {
	switch {
	case target.State != string(cluster.Ready):
		return fmt.Errorf("node %s is %s, so no stack can move there; start its berthd, or choose another node", target.Name, target.State)
	case target.Availability == "drain":
		return fmt.Errorf("node %s is being drained, so the stack would move away again; run berthd nodes activate %s first, or choose another node", target.Name, target.Name)
	}
	return nil
}

// owner returns the node that has a stack.
func (n Nodes) owner(ctx context.Context, st store.Standing) (NodeView, error) {
	all, err := n.List(ctx)
	for _, v := range all {
		if v.ID == st.Node {
			return v, nil
		}
	}
	return NodeView{ID: st.Node, Name: st.Node, State: string(cluster.Lost)}, err
}

// cannotMove is why the owner of a stack does not move it.
func cannotMove(owner NodeView) error {
	if owner.State == string(cluster.Lost) {
		return fmt.Errorf("node %s, which has the stack, is lost, so it cannot move it; start its berthd, which takes it back, or leave the stack to what BERTH_NODE_LOST says", owner.Name)
	}
	return fmt.Errorf("node %s, which has the stack, is %s, so it cannot move it; start its berthd, or give it up with: berthd nodes lost %s", owner.Name, owner.State, owner.Name)
}

// awaitMove waits until a stack has moved or has failed to.
func (n Nodes) awaitMove(ctx context.Context, move store.Move, target NodeView) error {
	for {
		ended, err := n.moveEnded(ctx, move, target)
		if ended || err != nil && !errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil {
			return err
		}
		if !pause.For(ctx, moveLook) {
			return fmt.Errorf("stopped waiting; the move of %s to %s goes on", move.StackID, target.Name)
		}
	}
}

// moveEnded reports whether a move is over; the error is why it was not done, or not known.
func (n Nodes) moveEnded(ctx context.Context, move store.Move, target NodeView) (bool, error) {
	now, asked, err := n.store.MoveOf(ctx, move.StackID) // before the row, which changes first
	if err != nil {
		return false, err
	}
	st, err := n.standing(ctx, move.StackID)
	switch {
	case err != nil:
		return false, err
	case st.Node == target.ID:
		return true, nil
	case asked && !now.AskedAt.Equal(move.AskedAt):
		return true, fmt.Errorf("the stack %s did not move to %s, since another move was asked for", st.ID, target.Name)
	case asked && now.Error != "":
		return true, errors.Join(fmt.Errorf("the stack %s did not move to %s: %s", st.ID, target.Name, now.Error), n.store.EndMove(ctx, now))
	case !asked:
		return true, fmt.Errorf("the stack %s did not move to %s, and is at %s now; try again", st.ID, target.Name, st.Node)
	}
	owner, err := n.owner(ctx, st)
	if err == nil && owner.State == string(cluster.Lost) { // a node that is away may be about to start again
		return true, errors.Join(cannotMove(owner), n.store.EndMove(ctx, move))
	}
	return false, err
}
