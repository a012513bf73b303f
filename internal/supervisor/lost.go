package supervisor

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// A node that is lost may still run, cut off from the others. So the others take only stacks
// that need no data of it: sites, expired stacks, and those whose data folders were empty when
// it was last heard of; and only if all else that they need is kept in the registry. With
// Config.RestoreLost they also take those that have a snapshot, and what was written since is
// missing then. An isolated node stops all these stacks before that. The rest wait until it is
// back.

// Lost is a node whose stacks others may take.
type Lost struct {
	Node  string
	Empty []string  // the stacks that EmptyStacks returned there last
	Until time.Time // when its lease ended
}

// mayTake reports whether a stack can begin on another node, and with which snapshot: the zero
// one if it needs no data of its own.
func (s *Supervisor) mayTake(st *stack.Stack, lost Lost) (from stack.Snapshot, may bool) {
	switch {
	case !st.Generation.Built():
		return from, false
	case st.Status == stack.Expired || isSite(st):
		return from, true
	case st.Status != stack.Live:
		return from, false
	case slices.Contains(lost.Empty, st.ID):
		return from, true
	}
	return st.Snapshot, s.cfg.RestoreLost && st.HasSnapshot()
}

// isSite reports whether a stack serves, or is being brought back to serve, without a process
// and so without data.
func isSite(st *stack.Stack) bool {
	return st.Generation.Built() && (st.Status == stack.Live || st.Restoring()) && len(processServices(st)) == 0
}

// takers is how many stacks of a lost node are taken at once.
const takers = 8

// TakeOver makes this node the owner of those stacks of a lost node that can begin without it.
// They are restored in the background. Other nodes may do the same at the same time: each
// stack gets one owner. The error names what failed; the rest is taken all the same.
func (s *Supervisor) TakeOver(ctx context.Context, lost Lost) error {
	stacks, err := s.cfg.Store.Kept(ctx, lost.Node)
	if err != nil || s.cfg.Archive == nil {
		return err
	}
	errs := make([]error, len(stacks))
	var group errgroup.Group
	group.SetLimit(takers)
	for i, st := range stacks {
		if from, may := s.mayTake(st, lost); may {
			group.Go(func() error {
				errs[i] = s.takeFrom(ctx, st, from, lost.Until)
				return nil
			})
		}
	}
	_ = group.Wait() // its errors are in errs
	return errors.Join(errs...)
}

// takeFrom takes a stack of a node that has been lost since its lease ended, unless a part of
// it is not kept, another node is first, or the node is back. It begins with the data of the
// snapshot, unless that is zero.
func (s *Supervisor) takeFrom(ctx context.Context, st *stack.Stack, from stack.Snapshot, ended time.Time) error {
	if !s.beginPassage(st.ID, coming) {
		return nil
	}
	defer s.endPassage(st.ID)
	had, known, err := s.cfg.Store.Remains(ctx, st.ID, s.cfg.Node)
	switch {
	case err != nil:
		return err
	case known && had.MayHaveData():
		s.cfg.Log.Info("a stack of a lost node waits for it", "stack", st.ID, "reason", errHasData)
		return nil
	}
	err = s.bring(ctx, st, from)
	if err == nil {
		failpoint.Here("lost-brought")
		_, err = s.cfg.Store.Update(ctx, st.ID, func(now *stack.Stack) ([]stack.Event, error) {
			if now.Status != st.Status || now.Generation.Attempt != st.Generation.Attempt || !now.Snapshot.At.Equal(st.Snapshot.At) {
				return nil, store.ErrNotOwner
			}
			if !from.At.IsZero() {
				now.Regained = from
			}
			now.Node, now.Epoch = s.cfg.Node, st.Epoch+1
			return nil, nil
		}, store.ByOwner(st.Node, st.Epoch), store.LeaseEnded(ended))
	}
	switch {
	case errors.Is(err, errNotKept):
		s.cfg.Log.Info("a stack of a lost node waits for it", "stack", st.ID, "reason", err)
		return s.unbring(ctx, st.ID)
	case err != nil && stack.KindOf(err) != 0: // deleted, another node's by now, or its node is back
		return s.unbring(ctx, st.ID)
	case err != nil:
		return err // watchLeftovers removes what is here, unless it has become this node's
	}
	failpoint.Here("lost-taken")
	return s.Take(ctx, st.ID)
}

// bring brings to this node what is kept of a stack, after what an earlier attempt left.
func (s *Supervisor) bring(ctx context.Context, st *stack.Stack, from stack.Snapshot) error {
	err := s.cfg.Store.Expect(ctx, st.ID, s.cfg.Node)
	if err == nil {
		err = s.checkStill(ctx, st) // an earlier attempt may have taken effect without an answer
	}
	if err == nil {
		err = s.removeGuest(ctx, st.ID)
	}
	if err == nil {
		err = s.fetchApart(ctx, st, from)
	}
	return err
}

// checkStill returns ErrNotOwner if a stack has got another owner since its row was read.
func (s *Supervisor) checkStill(ctx context.Context, st *stack.Stack) error {
	now, err := s.cfg.Store.Get(ctx, st.ID)
	if err == nil && (now.Node != st.Node || now.Epoch != st.Epoch) {
		err = store.ErrNotOwner
	}
	return err
}

// unbring removes what bring brought, unless the stack is this node's own by now.
func (s *Supervisor) unbring(ctx context.Context, id string) error {
	if err := s.cfg.Store.Renounce(ctx, id, s.cfg.Node); err != nil {
		return err
	}
	now, err := s.cfg.Store.Get(ctx, id)
	switch {
	case err == nil && now.Node == s.cfg.Node:
		return errors.Join(s.cfg.Store.ForgetRemains(ctx, id, s.cfg.Node), s.Take(ctx, id))
	case err != nil && !isDeleted(err):
		return err
	}
	if err := s.removeGuest(ctx, id); err != nil {
		return err
	}
	return s.cfg.Store.ForgetRemains(ctx, id, s.cfg.Node)
}

// passage is why a stack that is not this node's, or not yet, is left alone by whatever else comes
// upon it.
type passage int

const (
	coming passage = iota + 1 // it is about to be made, or taken from a lost node
	going                     // what is here of it is being removed: what comes has the same names
)

// beginPassage notes the passage of a stack. It returns false if something of the stack is under way here.
func (s *Supervisor) beginPassage(id string, what passage) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.passing[id] != 0 || s.guests[id] != nil || what == coming && s.runners[id] != nil {
		return false
	}
	s.passing[id] = what
	return true
}

func (s *Supervisor) endPassage(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.passing, id)
}

func (s *Supervisor) isGoing(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.passing[id] == going
}

// isComing reports whether a stack that is new, or another node's, is about to become this
// node's.
func (s *Supervisor) isComing(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.passing[id] == coming || s.guests[id] != nil
}

// Take puts a stack under supervision that has become this node's while the server runs: it
// adopts what is there and brings back the rest. It does nothing for a stack that it has.
func (s *Supervisor) Take(ctx context.Context, id string) error {
	cuts := s.countCuts()
	st, err := s.cfg.Store.Get(ctx, id)
	if err != nil {
		return err
	}
	if st.Node != s.cfg.Node {
		return store.ErrNotOwner
	}
	there, err := s.takeInventory(ctx, id)
	if err != nil {
		return err
	}
	if s.lookup(id) == nil {
		s.take(ctx, st, there[id], cuts)()
		s.cfg.Admission.Poke()
	}
	return nil
}

// emptyLife is for how long it counts that a stack had no data.
const emptyLife = 10 * time.Second

// EmptyStacks returns the stacks of this node that serve and have no data, or that had none
// just before they were stopped to expire or to be moved, and when that was seen: others may
// take them if the node is lost soon. It is to be called again and again.
func (s *Supervisor) EmptyStacks(ctx context.Context) (map[string]time.Time, error) {
	volumes, err := s.cfg.Engine.Volumes(ctx, engine.Key{})
	if err != nil {
		return nil, err
	}
	by := map[string][]engine.Volume{}
	for _, v := range volumes {
		if _, isData := v.Key.DataNumber(v.Name); isData {
			by[v.Key.Stack] = append(by[v.Key.Stack], v)
		}
	}
	s.mu.Lock()
	before := s.empty
	s.mu.Unlock()
	empty := map[string]time.Time{}
	for _, r := range s.everyRunner() {
		if g := r.serving(); g != nil {
			if g.hasNoData(ctx, by[r.id]) {
				empty[r.id] = time.Now()
			}
		} else if seen, ok := before[r.id]; ok && (r.expiring.Load() || r.moving.Load()) && time.Since(seen) < emptyLife {
			empty[r.id] = seen
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.empty = empty
	return empty, nil
}

// hasNoData reports whether all data volumes of the stack are empty. Those of a service that
// does not run count as ones with data, and so does one that was made since they were listed.
func (g *generation) hasNoData(ctx context.Context, volumes []engine.Volume) bool {
	for _, p := range g.allProcesses() {
		if !slices.ContainsFunc(volumes, func(v engine.Volume) bool { return v.Key.Service == p.service.Spec.Name }) {
			return false
		}
	}
	for _, v := range volumes {
		p := g.process(v.Key.Service)
		if p == nil {
			return false
		}
		if has, err := g.cfg.Engine.HasData(ctx, v.Key, p.id, ""); has || err != nil {
			return false
		}
	}
	return true
}

// deleteLost deletes a stack of another node, if that is lost. This node becomes the owner of
// the row, so that it delivers the last event. An error of reading the row is returned as it
// is.
func (s *Supervisor) deleteLost(ctx context.Context, st *stack.Stack, err error) error {
	if err != nil {
		return err
	}
	if s.cfg.Lost == nil || !s.cfg.Lost(st.Node) {
		return store.ErrNotOwner
	}
	_, err = s.cfg.Store.Update(context.WithoutCancel(ctx), st.ID, func(now *stack.Stack) ([]stack.Event, error) {
		now.Node, now.Epoch = s.cfg.Node, st.Epoch+1
		return now.Delete(stack.Now())
	}, store.ByOwner(st.Node, st.Epoch))
	failpoint.Here("lost-deleted")
	return err
}
