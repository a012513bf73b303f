package supervisor

import (
	"context"
	"errors"
	"time"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/stack"
)

// inventory is what the engine has of this installation, by the stack's id.
type inventory map[string]engine.Objects

// takeInventory asks the engine for what it has of a stack, or with "" for everything
// that belongs to this installation.
func (s *Supervisor) takeInventory(ctx context.Context, id string) (inventory, error) {
	ctx, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	return s.cfg.Engine.Inventory(ctx, id)
}

// awaitInventory takes an inventory, again and again until the engine answers or ctx
// ends.
func (s *Supervisor) awaitInventory(ctx context.Context) (inventory, error) {
	for {
		there, err := s.takeInventory(ctx, "")
		if err == nil {
			return there, nil
		}
		if ctx.Err() == nil {
			s.cfg.Log.Warn("could not list the engine's objects; trying again", "error", err)
		}
		if !pause.For(ctx, hostRetry) {
			return nil, ctx.Err()
		}
	}
}

// inventory returns what the engine has of the stack.
func (r *runner) inventory(ctx context.Context) (engine.Objects, error) {
	there, err := r.sup.takeInventory(ctx, r.id)
	return there[r.id], err
}

// sweep removes what an earlier server left of deleted stacks, and its unfinished
// uploads, and returns the orphans that there are. What cannot be removed now is left
// to watchLeftovers.
func (s *Supervisor) sweep(ctx context.Context, stacks []*stack.Stack, there inventory) orphans {
	if err := s.cfg.Dir.RemoveUploads(); err != nil {
		s.cfg.Log.Warn("unfinished uploads not removed; the next start tries again", "error", err)
	}
	found, err := s.findOrphans(stacks, there, nil)
	if err = errors.Join(err, s.removeOrphans(ctx, found, there), s.forgetRemains(ctx, there)); err != nil {
		s.cfg.Log.Warn("leftovers not removed; trying again later", "error", err)
	}
	return found
}

// leftoverGrace is how long something of a deleted stack must be there before it is
// removed here, since whoever deletes a stack removes it. After a start it is shorter
// at first: the engine may still carry out the last requests of a server that was
// killed.
const (
	leftoverGrace      = time.Minute
	leftoverGraceFirst = 5 * time.Second
)

// watchLeftovers removes, now and then, the orphans that are to go and were there the
// last time as well, and what stacks at rest do not need, and has what they take measured.
func (s *Supervisor) watchLeftovers(seen orphans) {
	for grace := leftoverGraceFirst; pause.For(s.ctx, grace); grace = min(2*grace, leftoverGrace) {
		var err error
		if seen, err = s.removeLasting(s.ctx, seen); err != nil && s.ctx.Err() == nil {
			s.cfg.Log.Warn("leftovers not removed; trying again", "error", err)
		}
	}
}

// removeLasting removes the leftovers of stacks, and what is to go of the orphans that
// were there before, and returns the orphans that there are.
func (s *Supervisor) removeLasting(ctx context.Context, before orphans) (orphans, error) {
	there, err := s.takeInventory(ctx, "")
	if err != nil {
		return before, err
	}
	stacks, err := s.cfg.Store.Kept(ctx, s.cfg.Node) // after the inventory, so that the row of everything in it is known
	if err != nil {
		return before, err
	}
	for _, st := range stacks {
		s.tidy(st, there[st.ID])
		if r := s.lookup(st.ID); r != nil {
			r.measureDue(st, there[st.ID].Volumes)
		}
	}
	found, err := s.findOrphans(stacks, there, before)
	return found, errors.Join(err, s.removeOrphans(ctx, found.lasting(before), there), s.forgetRemains(ctx, there))
}

// tidy removes the leftovers of a stack that nothing is being done with, and keeps the
// data of an expired one or trims build caches if that failed before.
func (s *Supervisor) tidy(st *stack.Stack, there engine.Objects) {
	r := s.lookup(st.ID)
	if r == nil {
		s.takeLate(st)
		return
	}
	if r.copying.Load() {
		return // its helpers are no leftovers
	}
	r.keepApartLater()
	there = r.exceptReady(there)
	if s.leftovers(st, there).none() && (st.Status != stack.Expired || len(there.Volumes) == 0) {
		r.startTrim()
		return
	}
	r.startIdle(func(ctx context.Context) { r.tidy(ctx, there) })
}

// tidy is the job that removes the leftovers of the stack if an inventory had any.
func (r *runner) tidy(ctx context.Context, there engine.Objects) {
	st, err := r.get(ctx) // it may have changed before this job began
	if err != nil || st.Deploying != 0 || st.Restoring() {
		return
	}
	r.removeLeftovers(ctx, st, there)
	r.keepData(ctx)
}

// takeLate takes a stack without a runner, which has become this node's while nobody here heard
// of it: in a cluster it came from another node, or its creation was not known to have taken
// effect. Most have just been deleted.
func (s *Supervisor) takeLate(st *stack.Stack) {
	if s.isComing(st.ID) {
		return
	}
	if err := s.Take(s.ctx, st.ID); err != nil && stack.KindOf(err) == 0 && s.ctx.Err() == nil {
		s.cfg.Log.Warn("stack that this node did not know as its own not taken; trying again", "stack", st.ID, "error", err)
	}
}
