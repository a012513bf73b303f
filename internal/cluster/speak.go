package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/berth-host/berth/internal/store"
)

// speak writes what Swarm says about each node, if this node is a manager, and whom it has
// been in contact with. A node that Swarm does not know any more is gone, and its row goes
// with its last stack.
func (m *Membership) speak(ctx context.Context) {
	begun := time.Now()
	words, err := m.cfg.Swarm.Words(ctx)
	if err != nil {
		return // a worker, or too few managers are left
	}
	m.spoke(begun)
	if err := m.write(ctx, words); err != nil && ctx.Err() == nil {
		m.cfg.Log.Warn("Swarm's word about the nodes not written", "error", err)
	}
}

// spoke says that Swarm has answered a question of a time.
func (m *Membership) spoke(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.noteIsolation()()
	m.speaks = at
}

func (m *Membership) write(ctx context.Context, words []store.Word) error {
	var errs []error
	in := map[string]bool{}
	for _, w := range words {
		in[w.ID] = true
		errs = append(errs, m.cfg.Store.TakeWord(ctx, w, wordEvery))
	}
	for _, n := range m.Nodes() {
		if !in[n.ID] {
			errs = append(errs, m.leave(ctx, n))
		}
	}
	return errors.Join(append(errs, m.writeMet(ctx))...)
}

// leave records that a node is not in the swarm, and removes it once nothing is its own.
func (m *Membership) leave(ctx context.Context, n Node) error {
	err := m.cfg.Store.TakeWord(ctx, store.Word{ID: n.ID, State: store.Gone, Availability: n.Availability, Labels: n.Labels}, wordEvery)
	if err != nil || !n.Gone || n.Over < m.cfg.Grace {
		return err
	}
	if err := m.cfg.Store.RemoveNode(ctx, n.ID); err != nil && !errors.Is(err, store.ErrNodeReady) {
		return err
	}
	return nil
}

// writeMet records the contacts that are new.
func (m *Membership) writeMet(ctx context.Context) error {
	m.mu.Lock()
	met := m.met
	m.met = map[string]time.Time{}
	m.mu.Unlock()
	var errs []error
	for node, at := range met {
		if err := m.cfg.Store.SawNode(ctx, node, time.Since(at)); err != nil {
			errs = append(errs, err)
			m.Contact(node, false, at) // to be written next time
		}
	}
	return errors.Join(errs...)
}
