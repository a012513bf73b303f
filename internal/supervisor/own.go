package supervisor

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// In a cluster each stack is owned by one node, which its row names with an epoch that counts
// the owners. A runner has the epoch in which its node took the stack, and passes it with
// every change. If the row has another one, the change is refused, and the runner lets the
// stack go: it touches neither the row nor the routes any more, and its containers end.

// disown ends the loop of a stack that another node owns.
func (r *runner) disown() {
	if !r.lost.Swap(true) && !r.moving.Load() {
		r.log.Warn("another node owns the stack by now; it is let go")
	}
	r.cancel()
}

// owns reports whether a row has the owner that the runner works for.
func (r *runner) owns(st *stack.Stack) bool {
	return st.Node == r.cfg.Node && st.Epoch == r.epoch
}

// leave removes what this node has of a stack that another one owns. What cannot be removed
// now is left to watchLeftovers.
func (r *runner) leave() {
	r.sup.finishOnEngine(r.sup.ctx, r.log, "stack of another node not removed; trying again later", func() error {
		there, err := r.sup.takeInventory(r.sup.ctx, r.id)
		if err != nil {
			return err
		}
		st, err := r.get(r.sup.ctx)
		if err != nil {
			return err
		}
		return r.sup.removeForeign(r.sup.ctx, st, &orphan{}, there[r.id])
	})
	r.forget()
}

// leaveWait is how long a node that offers a stack waits for one that still removes what it had
// of it.
const leaveWait = 30 * time.Second

// errLeaving is why a stack cannot come back to a node yet.
var errLeaving = &stack.Error{
	Kind: stack.Unavailable, RetryAfter: 5 * time.Second,
	Detail: "the node still removes what it had of the stack; look whether its engine works, and move the stack then",
}

// awaitLeft waits until this node has removed what it had of a stack that another node owns.
func (s *Supervisor) awaitLeft(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, leaveWait)
	defer cancel()
	if r := s.lookup(id); r != nil {
		select {
		case <-r.ended:
		case <-ctx.Done():
			return errLeaving
		}
	}
	for s.isGoing(id) {
		if !pause.For(ctx, moveLook) {
			return errLeaving
		}
	}
	return nil
}

// removeForeign removes what this node has of a stack that another one owns, its containers
// first. Data stays, marked, unless the database says that all of it goes: the other node may
// have begun without it.
func (s *Supervisor) removeForeign(ctx context.Context, st *stack.Stack, o *orphan, there engine.Objects) error {
	known, _, err := s.cfg.Store.Remains(ctx, st.ID, s.cfg.Node)
	if err != nil {
		return err
	}
	if known.Expected { // by an owner that might give the stack to this node meanwhile
		if err := s.cfg.Store.Renounce(ctx, st.ID, s.cfg.Node); err != nil {
			return err
		}
	}
	if st, err = s.cfg.Store.Get(ctx, st.ID); err != nil || st.Node == s.cfg.Node {
		return err // it was given before
	}
	var kept []string
	if !known.AllGo {
		data, rest := there.Data()
		if err := s.cfg.Engine.Discard(ctx, engine.Objects{Containers: rest.Containers}); err != nil {
			return err
		}
		there = rest
		kept = s.sortData(ctx, st, data, &there)
	}
	if len(kept) > 0 { // before anything can fail that is removed
		if err := s.noteRemains(ctx, st.ID, o, known, kept); err != nil {
			return err
		}
	}
	err = s.removeOrphan(ctx, st.ID, there)
	if err == nil && len(kept) == 0 {
		err = s.cfg.Store.ForgetRemains(ctx, st.ID, s.cfg.Node)
	}
	return err
}

// StopForeign ends the containers of stacks that other nodes own, as after they were taken from
// this one. It comes before all else that a server does with stacks; Start removes the rest.
func (s *Supervisor) StopForeign(ctx context.Context) error {
	there, err := s.awaitInventory(ctx)
	if err != nil {
		return err
	}
	own, err := s.cfg.Store.Kept(ctx, s.cfg.Node)
	if err != nil {
		return err
	}
	ours := idsOf(own)
	var ending sync.WaitGroup
	for id, o := range there {
		if !ours[id] && len(o.Containers) > 0 {
			ending.Go(func() { s.stopIfForeign(ctx, id, o.Containers) })
		}
	}
	ending.Wait()
	return nil
}

// stopIfForeign ends the containers of a stack if another node owns it.
func (s *Supervisor) stopIfForeign(ctx context.Context, id string, containers []engine.Container) {
	owner, err := s.ownerOf(ctx, id)
	if err == nil && (owner == nil || owner.Node == s.cfg.Node) {
		return
	}
	if err == nil {
		err = s.cfg.Engine.Discard(ctx, engine.Objects{Containers: containers})
	}
	if err != nil {
		s.cfg.Log.Warn("containers of a stack that another node may own not ended yet; trying again", "stack", id, "error", err)
	}
}

// sortData adds to rest the part of data that nobody misses, and returns the names of what
// has to stay: snapshots, and volumes that have files or cannot be read.
func (s *Supervisor) sortData(ctx context.Context, st *stack.Stack, data engine.Objects, rest *engine.Objects) (kept []string) {
	for _, v := range data.Volumes {
		number, isData := v.Key.DataNumber(v.Name)
		v.Key.Volume = number
		if isData && s.mayHaveData(ctx, st, v) {
			kept = append(kept, v.Name)
		} else {
			rest.Volumes = append(rest.Volumes, v)
		}
	}
	restored := tagged(data.Images, engine.IsRestored)
	rest.Images = append(rest.Images, restored...)
	data.Images = tagged(data.Images, func(tag string) bool { return !engine.IsRestored(tag) })
	return append(kept, engine.Objects{Images: data.Images}.Names()...)
}

// mayHaveData reports whether a data volume has files, or cannot be read.
func (s *Supervisor) mayHaveData(ctx context.Context, st *stack.Stack, v engine.Volume) bool {
	image, err := s.helperImage(ctx, st)
	has := false
	if err == nil {
		has, err = s.cfg.Engine.HasData(ctx, v.Key, "", image)
	}
	if err != nil {
		s.cfg.Log.Warn("volume of a stack of another node not read, so it stays", "volume", v.Name, "error", err)
	}
	return has || err != nil
}

// noteRemains records what this node keeps of a stack that another one owns, and names it in
// the log again and again.
func (s *Supervisor) noteRemains(ctx context.Context, id string, o *orphan, known store.Remains, kept []string) error {
	if time.Since(o.told) >= tellAgain {
		o.told = time.Now()
		s.cfg.Log.Warn("another node owns this stack, and this one still has data of it, which stays until you remove it", "stack", id, "data", kept)
	}
	if slices.Equal(kept, known.Volumes) {
		return nil
	}
	return s.cfg.Store.MarkRemains(ctx, id, s.cfg.Node, kept)
}

// forgetRemains forgets the stacks of others of which nothing is left on this node.
func (s *Supervisor) forgetRemains(ctx context.Context, there inventory) error {
	if s.cfg.Node == "" {
		return nil
	}
	all, err := s.cfg.Store.RemainsOn(ctx, s.cfg.Node)
	errs := []error{err}
	for _, r := range all {
		if there[r.StackID].IsEmpty() && !s.cfg.Dir.Has(r.StackID) && !s.isComing(r.StackID) {
			errs = append(errs, s.cfg.Store.ForgetRemains(ctx, r.StackID, s.cfg.Node))
		}
	}
	return errors.Join(errs...)
}

// forget makes the supervisor forget the runner, which has ended.
func (r *runner) forget() {
	r.sup.mu.Lock()
	defer r.sup.mu.Unlock()
	if r.sup.runners[r.id] == r {
		delete(r.sup.runners, r.id)
	}
}
