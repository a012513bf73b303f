package supervisor

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// A guest is a stack that another node owns and is about to give to this one. It has a runner
// that is not among the supervisor's and whose loop keeps no deadlines; its processes are in
// no route. The database says that this node expects the stack. When the row names this node,
// the runner becomes the stack's own. Until then the guest may be dropped at any time: this
// node renounces first, so that it does not become the owner of what it removes.

// guest is what this node has of a stack that it is about to get.
type guest struct {
	sup    *Supervisor
	offer  Offer
	runner *runner
	over   chan struct{} // closed when the stack is taken or dropped

	mu      sync.Mutex  // held by each step
	started *generation // what is to be served; nil before Start, and for a stack that serves nothing
	last    time.Time   // when the last step ended
	ended   bool        // whether over is closed
}

// guestWait is how long a guest stays if its owner takes no step.
const (
	guestWait  = 30 * time.Second
	guestCheck = 2 * time.Second // between looks at its row, which may also be woken
)

// Receiver returns the end of moves that gets the stacks.
func (s *Supervisor) Receiver() Peer { return receiver{s} }

type receiver struct{ sup *Supervisor }

// Prepare implements Peer.
func (v receiver) Prepare(ctx context.Context, offer Offer, files io.Reader) error {
	s := v.sup
	st, err := s.checkOffer(ctx, offer)
	if err != nil {
		return err
	}
	if old := s.guest(offer.ID); old != nil { // of a move that broke off
		if err := old.drop(ctx); err != nil {
			return err
		}
	}
	g, err := s.addGuest(offer)
	if err != nil {
		return err
	}
	return g.step(func() error {
		if err := s.cfg.Store.Expect(ctx, offer.ID, s.cfg.Node); err != nil {
			return err
		}
		if err := s.removeGuest(ctx, offer.ID); err != nil { // what an earlier move has left
			return err
		}
		if err := s.fetchImages(ctx, st); err != nil {
			return err
		}
		return s.cfg.Dir.Unpack(offer.ID, files)
	})
}

// checkOffer returns the row of a stack that is offered, or why it cannot come. If this node
// has only just given the stack away, it waits until nothing of it is left.
func (s *Supervisor) checkOffer(ctx context.Context, offer Offer) (*stack.Stack, error) {
	st, err := s.cfg.Store.Get(ctx, offer.ID)
	if err != nil {
		return nil, err
	}
	if st.Node == s.cfg.Node || st.Epoch != offer.Epoch || st.Attempt != offer.Attempt || st.Deploying != 0 {
		return nil, store.ErrNotOwner
	}
	if err := s.awaitLeft(ctx, offer.ID); err != nil {
		return nil, err
	}
	had, known, err := s.cfg.Store.Remains(ctx, offer.ID, s.cfg.Node)
	switch {
	case err == nil && len(had.Volumes) > 0:
		err = errHasData
	case err == nil && known && had.MayHaveData():
		err = errLeaving
	}
	return st, errors.Join(err, s.cfg.Admission.CheckRoom())
}

// Fill implements Peer.
func (v receiver) Fill(ctx context.Context, id, service string, data io.Reader) error {
	return v.step(id, func(g *guest) error {
		st, err := v.sup.cfg.Store.Get(ctx, id)
		if err != nil {
			return err
		}
		return v.sup.fillData(ctx, st, service, data)
	})
}

// Fetch implements Peer.
func (v receiver) Fetch(ctx context.Context, id, service string) error {
	return v.step(id, func(*guest) error {
		st, err := v.sup.cfg.Store.Get(ctx, id)
		if err != nil {
			return err
		}
		if v.sup.cfg.Archive == nil || st.Status != stack.Expired || st.Service(service) == nil {
			return errNotKept
		}
		return v.sup.fetchData(ctx, st, service, dataName(st, service))
	})
}

// Start implements Peer.
func (v receiver) Start(ctx context.Context, id string, logs io.Reader) error {
	return v.step(id, func(g *guest) error {
		if err := v.sup.cfg.Dir.Unpack(id, logs); err != nil {
			return err
		}
		st, err := v.sup.cfg.Store.Get(ctx, id)
		if err != nil || st.Status != stack.Live {
			return err
		}
		next := g.runner.generation(st, st.Generation)
		err = next.inOrder(ctx, next.bringUpBuilt)
		if err == nil {
			err = sideBySide(next.allProcesses(), func(p *process) error { return p.stillRuns(ctx) })
		}
		if err != nil {
			return errors.Join(err, next.endAll(context.WithoutCancel(ctx)))
		}
		g.started = next
		return nil
	})
}

// Take implements Peer.
func (v receiver) Take(ctx context.Context, id string) error {
	err := v.step(id, func(g *guest) error {
		st, err := v.sup.cfg.Store.Get(ctx, id)
		if err == nil && !g.runner.owns(st) {
			err = store.ErrNotOwner
		}
		if err == nil {
			g.take(st)
		}
		return err
	})
	if v.sup.lookup(id) != nil {
		return nil // perhaps it has read the row before
	}
	return err
}

// Drop implements Peer.
func (v receiver) Drop(ctx context.Context, id string) error {
	if g := v.sup.guest(id); g != nil {
		return g.drop(ctx)
	}
	return nil
}

// step does a step of the move of a guest.
func (v receiver) step(id string, do func(*guest) error) error {
	g := v.sup.guest(id)
	if g == nil {
		return store.ErrNotExpected
	}
	return g.step(func() error { return do(g) })
}

// step does one step at a time.
func (g *guest) step(do func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return store.ErrNotExpected
	}
	defer func() { g.last = time.Now() }()
	return do()
}

// guest returns a guest, or nil if there is none.
func (s *Supervisor) guest(id string) *guest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guests[id]
}

// allGuests returns the guests that there are.
func (s *Supervisor) allGuests() []*guest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.guests))
}

// addGuest makes a guest, and watches its row.
func (s *Supervisor) addGuest(offer Offer) (*guest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.guests[offer.ID] != nil || s.runners[offer.ID] != nil:
		return nil, store.ErrNotOwner
	case s.passing[offer.ID] != 0:
		return nil, errLeaving
	}
	g := &guest{sup: s, offer: offer, runner: newRunner(s, offer.ID, offer.Epoch+1, false, nil), over: make(chan struct{}), last: time.Now()}
	s.guests[offer.ID] = g
	s.jobs.Go(g.watch)
	return g, nil
}

// watch takes the stack when the row says so, even if its owner before does not, and drops it
// when nothing comes of the move.
func (g *guest) watch() {
	woken, stop := g.sup.cfg.Store.Watch(g.offer.ID)
	defer stop()
	tick := time.NewTicker(guestCheck)
	defer tick.Stop()
	for {
		select {
		case <-woken:
		case <-tick.C:
		case <-g.over:
			return
		case <-g.sup.ctx.Done():
			return
		}
		g.look()
	}
}

// look reads the row, unless a step is under way.
func (g *guest) look() {
	if !g.mu.TryLock() {
		return
	}
	st, err := g.sup.cfg.Store.Get(g.sup.ctx, g.offer.ID)
	over := isDeleted(err)
	switch {
	case g.ended:
		over = false
	case err != nil:
	case g.runner.owns(st):
		g.take(st)
	default:
		over = st.Epoch != g.offer.Epoch || time.Since(g.last) > g.patience(st)
	}
	g.mu.Unlock()
	if !over {
		return
	}
	if err := g.drop(g.sup.ctx); err != nil && g.sup.ctx.Err() == nil {
		g.runner.log.Warn("copies of a stack that does not come here not removed; trying again", "error", err)
	}
}

// patience is how long the guest waits for the next step. Before it starts, its owner stops what
// serves: one service after the other, at worst.
func (g *guest) patience(st *stack.Stack) time.Duration {
	wait := guestWait
	if g.started == nil {
		for i := range st.Generation.Services {
			wait += st.Generation.Services[i].Spec.StopTimeout
		}
	}
	return wait
}

// errHasData is why a stack cannot come to a node.
var errHasData = stack.NewError(stack.Conflict, "the node still has data of the stack from an earlier time; look into it, remove it there, and move the stack then")

// take makes the guest a stack of this node. The lock is held.
func (g *guest) take(st *stack.Stack) {
	s, r := g.sup, g.runner
	r.note(st)
	s.mu.Lock()
	s.runners[st.ID] = r
	delete(s.guests, st.ID)
	s.mu.Unlock()
	g.end()
	failpoint.Here("move-taken")
	_ = r.handOver(s.ctx, func(l *loop) {
		r.route(st, g.started)
		if g.started != nil {
			r.served.Store(g.started)
		}
		switch {
		case st.Status == stack.Expired:
			l.queue(r.keepData)
		case st.Status == stack.Live && g.started == nil: // isolate has stopped it
			l.queue(r.recoverStack)
		}
		l.startKeepingTime()
	})
	if g.started != nil {
		g.started.watchAll()
		for _, p := range g.started.allProcesses() {
			p.poke() // it may have ended before it was watched
		}
	}
	s.cfg.Admission.Poke()
	r.log.Info("stack has come from another node")
}

// isolate stops the processes on a node that is cut off: the row may name this node by now, and
// another one may take the stack.
func (g *guest) isolate(ctx context.Context, within time.Duration) {
	killing, stop := context.WithCancel(ctx)
	defer stop()
	g.sup.jobs.Go(func() { g.runner.killAfter(killing, within) })
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended || g.started == nil {
		return
	}
	old := g.started
	g.started = nil
	g.sup.finishOnEngine(ctx, g.runner.log, "guest of an isolated node not stopped", func() error { return old.endAll(ctx) })
}

// end ends the guest. The lock is held.
func (g *guest) end() {
	g.ended = true
	close(g.over)
}

// drop removes what there is of the guest, once this node cannot become its owner any more.
func (g *guest) drop(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return nil
	}
	s, id := g.sup, g.offer.ID
	if err := s.cfg.Store.Renounce(ctx, id, s.cfg.Node); err != nil {
		return err
	}
	st, err := s.cfg.Store.Get(ctx, id)
	switch {
	case err == nil && g.runner.owns(st): // before this node renounced
		g.take(st)
		return nil
	case err != nil && !isDeleted(err):
		return err
	}
	g.end()
	g.runner.cancel()
	<-g.runner.ended
	s.mu.Lock()
	delete(s.guests, id)
	s.passing[id] = going
	s.mu.Unlock()
	defer s.endPassage(id)
	if err := s.removeGuest(ctx, id); err != nil { // watchLeftovers tries again
		return err
	}
	return s.cfg.Store.ForgetRemains(ctx, id, s.cfg.Node)
}

// removeGuest removes all that this node has of a stack that it does not own.
func (s *Supervisor) removeGuest(ctx context.Context, id string) error {
	there, err := s.takeInventory(ctx, id)
	if err != nil {
		return err
	}
	return s.removeOrphan(ctx, id, there[id])
}
