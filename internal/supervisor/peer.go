package supervisor

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/stack"
)

// Peers returns the other nodes of a cluster.
type Peers interface {
	// Peer returns the node with an id. The error says why it cannot be reached.
	Peer(node string) (Peer, error)
}

// Peer is another node, to which the owner of a stack moves it: Prepare, then Fill or Fetch for
// each service with data, Start, and Take once the row names the new owner. Receiver is the other
// end. Drop ends a move that does not come to Take; so does a while without a call.
type Peer interface {
	// Prepare fetches the images of a stack and unpacks its files, without the logs. The node
	// expects the stack from then on.
	Prepare(ctx context.Context, offer Offer, files io.Reader) error
	// Fill makes the data volume of a service from what engine.Driver.ReadData wrote.
	Fill(ctx context.Context, id, service string, data io.Reader) error
	// Fetch makes the data volume of a service of an expired stack from the archive.
	Fetch(ctx context.Context, id, service string) error
	// Start unpacks the logs, starts what the stack serves and waits until it is healthy.
	Start(ctx context.Context, id string, logs io.Reader) error
	// Take makes the node serve the stack, which it owns by now.
	Take(ctx context.Context, id string) error
	// Drop removes what the node has of a stack that it does not own.
	Drop(ctx context.Context, id string) error
}

// Offer is a stack that its owner offers to another node.
type Offer struct {
	ID      string `json:"id"`
	Epoch   int64  `json:"epoch"`   // of the owner
	Attempt int    `json:"attempt"` // whose result is served
}

// Registry is where nodes get the images of stacks from; package registry has it.
type Registry interface {
	// StackImage returns the reference there of an image of a stack.
	StackImage(stackID, tag string) string
	// Login returns what the engine needs to push and pull.
	Login() engine.Login
}

// stackImages returns the references of the images that a stack's row names: those of its
// services except databases, without which it does not serve, and those that its next builds
// begin with.
func stackImages(st *stack.Stack) (served, layers []string) {
	for i := range st.Generation.Services {
		if s := &st.Generation.Services[i]; !s.Spec.IsStatic() && s.Spec.Database() == nil && s.Image != "" {
			served = append(served, s.Image)
		}
	}
	for _, layer := range st.Layers {
		for _, ref := range []string{layer.Image, layer.Source.Image} {
			if ref != "" {
				layers = append(layers, ref)
			}
		}
	}
	return served, layers
}

// imageTag returns the tag of an image in its stack's repository of the registry, as in
// web-g3 for berth/3f2a9c1b7d4e-web:g3.
func imageTag(st *stack.Stack, ref string) string {
	service, tag, _ := strings.Cut(strings.TrimPrefix(ref, "berth/"+st.Hex()+"-"), ":")
	return service + "-" + tag
}

// eachImage calls do with every image of a stack, and its reference in the registry. A layer
// that is not there is left out: the next build makes it again.
func (s *Supervisor) eachImage(st *stack.Stack, do func(ref, remote string) error) error {
	served, layers := stackImages(st)
	if len(served)+len(layers) == 0 {
		return nil
	}
	if s.cfg.Registry == nil {
		return stack.NewError(stack.Conflict, "without a registry no image gets to another node; set BERTH_REGISTRY on all nodes")
	}
	for _, ref := range served {
		if err := do(ref, s.cfg.Registry.StackImage(st.ID, imageTag(st, ref))); err != nil {
			return err
		}
	}
	for _, ref := range layers {
		err := do(ref, s.cfg.Registry.StackImage(st.ID, imageTag(st, ref)))
		if err != nil && !errors.Is(err, engine.ErrNotFound) {
			return err
		}
	}
	return nil
}

// pushImages puts the images of a stack into the registry. What the engine does not have, as on a
// node that was restored from a backup, may be there already, and the engine gets it.
func (s *Supervisor) pushImages(ctx context.Context, st *stack.Stack) error {
	return s.eachImage(st, func(ref, remote string) error {
		if s.cfg.Archive != nil {
			if _, err := s.cfg.Archive.Begin(ctx, st); err != nil { // each time, since one may take long
				return err
			}
		}
		err := s.cfg.Engine.Push(ctx, ref, remote, s.cfg.Registry.Login())
		if errors.Is(err, engine.ErrNotFound) {
			err = s.cfg.Engine.Fetch(ctx, remote, ref, s.cfg.Registry.Login())
		}
		return err
	})
}

// fetchImages gets those images of a stack from the registry that the engine does not have.
func (s *Supervisor) fetchImages(ctx context.Context, st *stack.Stack) error {
	return s.eachImage(st, func(ref, remote string) error {
		return s.cfg.Engine.Fetch(ctx, remote, ref, s.cfg.Registry.Login())
	})
}
