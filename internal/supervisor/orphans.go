package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// An orphan is a stack that has something in the engine or on the disk, but no row in the
// store. If the store knows it as deleted, all of it goes. If the store has never
// known it, it may be in another database, which somebody will put back: its volumes
// and snapshots stay for good, and the rest for Config.OrphanGrace. The same holds for
// the generations of a known stack that are newer than its row explains. Of a stack that
// another node owns everything goes at once but data that only this node may have.

// orphans maps the ids of stacks to orphans.
type orphans map[string]*orphan

// orphan is what this server remembers of one from one look to the next.
type orphan struct {
	seen time.Time // at the first look; each server counts anew
	told time.Time // when the log last named it; zero if it never did
}

// lasting returns the orphans that were there at the look before as well.
func (o orphans) lasting(before orphans) orphans {
	both := maps.Clone(o)
	maps.DeleteFunc(both, func(id string, _ *orphan) bool { return before[id] == nil })
	return both
}

// survey is the stacks that a node has, and what its engine has.
type survey struct {
	stacks []*stack.Stack
	there  inventory
}

// survey reads the stacks and the inventory, unless that was done before the start.
func (s *Supervisor) survey(ctx context.Context) ([]*stack.Stack, inventory, error) {
	if found := s.surveyed; found != nil {
		s.surveyed = nil
		return found.stacks, found.there, nil
	}
	var stacks []*stack.Stack
	group, limited := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		stacks, err = s.cfg.Store.Kept(limited, s.cfg.Node)
		return err
	})
	there, err := s.awaitInventory(limited)
	return stacks, there, cmp.Or(group.Wait(), err)
}

// ForeignData returns the ids of the stacks that the engine has volumes or snapshots of,
// if the store knows none of these stacks, not even as deleted: then the database is
// empty, old or another server's. Otherwise it returns nil.
func (s *Supervisor) ForeignData(ctx context.Context) ([]string, error) {
	stacks, there, err := s.survey(ctx)
	if err != nil {
		return nil, err
	}
	if s.cfg.Node == "" { // nobody else changes anything before Start
		s.surveyed = &survey{stacks, there}
	}
	var ids []string
	for id, o := range there {
		if data, _ := o.Data(); data.IsEmpty() {
			continue
		}
		if known, err := s.knows(ctx, id); known || err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// knows reports whether the store knows a stack, of any node, perhaps as deleted.
func (s *Supervisor) knows(ctx context.Context, id string) (bool, error) {
	_, err := s.cfg.Store.Get(ctx, id)
	if stack.KindOf(err) == stack.NotFound {
		return s.cfg.Store.Deleted(ctx, id)
	}
	return err == nil, err
}

func idsOf(stacks []*stack.Stack) map[string]bool {
	ids := map[string]bool{}
	for _, st := range stacks {
		ids[st.ID] = true
	}
	return ids
}

// reserveUsers ensures that no new stack runs as the user of an orphan: a database that
// does not know the orphan might give out its number again. The images of builds show
// the users of all stacks that run, or have volumes or snapshots. The error is
// store.ErrUnavailable; others are logged.
func (s *Supervisor) reserveUsers(ctx context.Context, stacks []*stack.Stack, there inventory) error {
	known, last := idsOf(stacks), int64(0)
	var errs []error
	for id, o := range there {
		if known[id] {
			continue
		}
		for _, image := range o.Images {
			uid, err := s.cfg.Engine.ImageUser(ctx, image.ID) // a snapshot's is root
			errs = append(errs, err)
			last = max(last, stack.SeqOf(uid))
		}
	}
	if last > 0 {
		errs = append(errs, s.cfg.Store.Reserve(ctx, last))
	}
	err := errors.Join(errs...)
	if errors.Is(err, store.ErrUnavailable) {
		return err
	}
	if err != nil {
		s.cfg.Log.Warn("a new stack may get the user of one that the database does not know; the next start tries again", "error", err)
	}
	return nil
}

// findOrphans looks for orphans in an inventory of the engine and on the disk. Those
// found before keep their times.
func (s *Supervisor) findOrphans(stacks []*stack.Stack, there inventory, before orphans) (orphans, error) {
	ids, err := s.cfg.Dir.Stacks()
	if err != nil {
		return before, err
	}
	ids = slices.AppendSeq(ids, maps.Keys(there))
	known, found, now := idsOf(stacks), orphans{}, time.Now()
	for _, id := range ids {
		if !known[id] && !s.isComing(id) {
			found[id] = cmp.Or(before[id], &orphan{seen: now})
		}
	}
	return found, nil
}

// removeOrphans removes the orphans, or parts of them, that are to go, and names in the
// log what is left to the operator.
func (s *Supervisor) removeOrphans(ctx context.Context, found orphans, there inventory) error {
	var errs []error
	for id, o := range found {
		errs = append(errs, s.removePart(ctx, id, o, there[id]))
	}
	return errors.Join(errs...)
}

// removePart removes what is to go of one orphan.
func (s *Supervisor) removePart(ctx context.Context, id string, o *orphan, there engine.Objects) error {
	if !s.beginPassage(id, going) {
		return nil // it has begun to come here meanwhile
	}
	defer s.endPassage(id)
	deleted, err := s.cfg.Store.Deleted(ctx, id)
	if err != nil {
		return err
	}
	if deleted {
		if s.cfg.Archive != nil { // a push may have ended since the stack was deleted
			if err := s.cfg.Archive.ForgetDeleted(ctx, id); err != nil {
				return err
			}
		}
		return s.removeOrphan(ctx, id, there)
	}
	owner, err := s.ownerOf(ctx, id)
	switch {
	case err != nil:
		return err
	case owner != nil && owner.Node == s.cfg.Node:
		return nil // it has come to this node meanwhile
	case owner != nil:
		return s.removeForeign(ctx, owner, o, there)
	}
	data, rest := there.Data()
	s.warnOfOrphan(id, o, data)
	if time.Since(o.seen) < s.cfg.OrphanGrace {
		return nil
	}
	return s.removeOrphan(ctx, id, rest)
}

// ownerOf returns a stack that this node does not know as its own, if a node owns it; nil for
// none. On one machine there is none.
func (s *Supervisor) ownerOf(ctx context.Context, id string) (*stack.Stack, error) {
	if s.cfg.Node == "" {
		return nil, nil
	}
	st, err := s.cfg.Store.Get(ctx, id)
	if stack.KindOf(err) == stack.NotFound {
		return nil, nil
	}
	return st, err
}

// tellAgain is how often the log names data that stays until somebody removes it.
const tellAgain = time.Hour

// warnOfOrphan names in the log a stack that the database does not know, again and
// again while there is data of it.
func (s *Supervisor) warnOfOrphan(id string, o *orphan, data engine.Objects) {
	if !o.told.IsZero() && (data.IsEmpty() || time.Since(o.told) < tellAgain) {
		return
	}
	o.told = time.Now()
	s.cfg.Log.Warn("the database does not know this stack; its containers, images and files go after the grace, its volumes and snapshots stay until you remove them",
		"stack", id, "grace", s.cfg.OrphanGrace, "volumes and snapshots", data.Names())
}

// removeOrphan removes objects of a stack, and its files.
func (s *Supervisor) removeOrphan(ctx context.Context, id string, o engine.Objects) error {
	if o.IsEmpty() && !s.cfg.Dir.Has(id) {
		return nil
	}
	if err := errors.Join(s.cfg.Engine.Discard(ctx, o), s.cfg.Dir.Remove(id)); err != nil {
		return fmt.Errorf("remove what is left of stack %s: %w", id, err)
	}
	s.cfg.Log.Info("leftovers of a stack that is gone removed", "stack", id)
	return nil
}

// spares reports whether a generation stays for now although its stack's row does not
// explain it: the database may be an older copy, and the newer one may be put back.
func (s *Supervisor) spares(st *stack.Stack, number int) bool {
	return !st.Explains(number) && time.Since(s.began) < s.cfg.OrphanGrace
}

// sparesAttempt is spares for what an attempt made: images and published folders.
func (s *Supervisor) sparesAttempt(st *stack.Stack, attempt int) bool {
	return !st.ExplainsAttempt(attempt) && time.Since(s.began) < s.cfg.OrphanGrace
}

// sparesRunning is spares for containers and networks. Those of an expired stack go, so
// that its data is at rest.
func (s *Supervisor) sparesRunning(st *stack.Stack, key engine.Key) bool {
	return st.Status != stack.Expired && s.spares(st, key.Generation)
}

// newerThanRow returns what there is of generations that the stack's row does not
// explain.
func (s *Supervisor) newerThanRow(st *stack.Stack, there engine.Objects) leftovers {
	unexplained := func(number int) bool { return !st.Explains(number) }
	explained := func(n engine.Network) bool {
		return st.Explains(n.Key.Generation) || !hasContainers(there, n.Key.Generation)
	}
	newer := unused{st, func(attempt int) bool { return !st.ExplainsAttempt(attempt) }}
	return leftovers{
		objects: engine.Objects{
			Containers: containersOf(there.Containers, unexplained),
			Images:     tagged(there.Images, newer.image),
			Networks:   slices.DeleteFunc(slices.Clone(there.Networks), explained),
		},
		files: s.cfg.Dir.Sites(st.ID, newer.site),
	}
}

// warnOfNewer names in the log what the stack's row does not explain.
func (s *Supervisor) warnOfNewer(st *stack.Stack, newer leftovers) {
	s.cfg.Log.Warn("there are generations of this stack that the database does not know; is it an older copy? They go after the grace",
		"stack", st.ID, "generation", st.Generation.Number, "grace", s.cfg.OrphanGrace, "newer", newer.names())
}
