package server

import (
	"context"
	"errors"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// movers is how many stacks move away at once.
const movers = 2

// A move that failed is begun again after a wait that doubles each time.
const (
	firstMoveWait = 2 * time.Second
	lastMoveWait  = time.Minute
)

// moving is which stacks of this node move away now, and which have failed to.
type moving struct {
	mu     sync.Mutex
	stacks map[string]bool
	failed map[string]failedMove
	places chan struct{}

	running sync.WaitGroup
}

// failedMove is a move that is to be begun again.
type failedMove struct {
	again time.Time
	wait  time.Duration // before the attempt after that
}

func newMoving() *moving {
	return &moving{stacks: map[string]bool{}, failed: map[string]failedMove{}, places: make(chan struct{}, movers)}
}

// begin calls move in a new goroutine, when there is a place, unless the stack moves
// already, or its last move failed too short ago. A move reports whether it failed.
func (m *moving) begin(id string, move func() (failed bool)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stacks[id] || time.Now().Before(m.failed[id].again) {
		return
	}
	m.stacks[id] = true
	m.running.Go(func() {
		m.places <- struct{}{}
		failed := move()
		<-m.places
		m.end(id, failed)
	})
}

// end notes how a move ended.
func (m *moving) end(id string, failed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.stacks, id)
	if !failed {
		delete(m.failed, id)
		return
	}
	wait := max(m.failed[id].wait, firstMoveWait)
	m.failed[id] = failedMove{again: time.Now().Add(wait), wait: min(2*wait, lastMoveWait)}
}

// forget makes the next moves begin at once.
func (m *moving) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.failed)
}

// moveAsked moves the stacks of this node for which an operator has asked that.
func (s *Server) moveAsked(ctx context.Context) {
	asked, err := s.store.MovesFrom(ctx, s.node())
	if err != nil && ctx.Err() == nil {
		s.log.Warn("the moves that were asked for not read; trying again", "error", err)
	}
	for _, m := range asked {
		s.moving.begin(m.StackID, func() bool {
			s.doMove(ctx, m)
			return false // it is not begun again unless an operator asks
		})
	}
}

// doMove does what an operator asked for, and says so in the database. A move that this
// server leaves unfinished, since it stops, is begun again by the next one.
func (s *Server) doMove(ctx context.Context, m store.Move) {
	if ctx.Err() != nil {
		return
	}
	why := s.supervisor.Move(ctx, m.StackID, m.Target)
	if ctx.Err() == nil && (why == nil || !s.leaving.Load()) {
		s.settleMove(ctx, m, why)
	}
}

// settleMove records what has become of a move; why is nil if it is done.
func (s *Server) settleMove(ctx context.Context, m store.Move, why error) {
	st, err := s.store.Standing(ctx, m.StackID)
	switch {
	case err != nil: // it is deleted, or the next look tries again
	case st.Node == m.Target:
		err = s.store.EndMove(ctx, m)
	case why != nil && st.Node == s.node():
		err = s.store.FailMove(ctx, m, oneLine(why))
	}
	if err = errors.Join(err, why); err != nil {
		s.log.Warn("a stack did not move as an operator asked", "stack", m.StackID, "target", m.Target, "error", err)
	}
}

// oneLine returns the text of an error in one line.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// moveAway moves the stacks of this node to others while an operator wants that. Those that
// could not be moved are tried again, less and less often.
func (s *Server) moveAway(ctx context.Context) {
	if !s.draining() {
		s.moving.forget()
		return
	}
	stacks, err := s.store.Kept(ctx, s.node())
	if err != nil && ctx.Err() == nil {
		s.log.Warn("stacks of this node not read, so none moves; trying again", "error", err)
	}
	for _, st := range stacks {
		s.moving.begin(st.ID, func() bool { return s.moveStack(ctx, st.ID) })
	}
}

// draining reports whether an operator wants the stacks of this node moved.
func (s *Server) draining() bool {
	if s.cluster == nil {
		return false
	}
	n, ok := s.cluster.Node(s.cluster.Self())
	return ok && n.Draining
}

// moveStack moves a stack to the node that is best for it, and reports whether it failed to.
func (s *Server) moveStack(ctx context.Context, id string) (failed bool) {
	if ctx.Err() != nil || !s.draining() {
		return false // while it waited for its place
	}
	to, err := s.cluster.Place(ctx, []string{s.node()})
	if err == nil {
		s.noteBuild(ctx, id, to)
		err = s.supervisor.Move(ctx, id, to)
	}
	if err == nil || ctx.Err() != nil || stack.KindOf(err) == stack.NotFound {
		return false
	}
	s.noteStuck(ctx, id, to, oneLine(err))
	return true
}

// noteBuild says that a move waits for a build of the stack, if one is under way.
func (s *Server) noteBuild(ctx context.Context, id, to string) {
	if st, err := s.store.Get(ctx, id); err == nil && (st.Deploying != 0 || st.Restoring()) {
		s.noteStuck(ctx, id, to, "a build of the stack comes first")
	}
}

// noteStuck says why a stack did not move: in the database for berthd nodes, and in the log
// unless it said the same before.
func (s *Server) noteStuck(ctx context.Context, id, to, why string) {
	before, _, err := s.store.MoveOf(ctx, id)
	if err == nil && before.Error == why {
		return
	}
	s.log.Warn("a stack did not move away; trying again", "stack", id, "target", to, "error", why)
	if err = errors.Join(err, s.store.NoteStuck(ctx, id, to, why)); err != nil {
		s.log.Warn("berthd nodes does not say why a stack did not move away", "stack", id, "error", err)
	}
}

const (
	// wordLate is how much later than a signal to stop Swarm's word must be, so that it was
	// asked for after what made Swarm send the signal.
	wordLate = time.Second
	// wordWait is how long to wait for that word: no manager may be there to write it.
	wordWait = 10 * time.Second
	wordLook = 100 * time.Millisecond
)

// awaitWord waits until this node knows whether it is being drained: Swarm ends the server of
// such a node at once, before a manager's server has said why.
func (s *Server) awaitWord(ctx context.Context, signalled time.Time) {
	if s.cluster == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, wordWait)
	defer cancel()
	for !s.draining() && !s.cluster.HeardAfter(signalled.Add(wordLate)) && pause.For(ctx, wordLook) {
	}
}

// moveOut waits until the stacks of this node have moved away, if an operator wants that:
// draining a node in Swarm also ends its server. It returns when none is left and what they had
// here is removed, or when ctx ends; the stacks that are left then run on until the next server
// has them.
func (s *Server) moveOut(ctx context.Context) {
	if !s.draining() {
		return
	}
	s.log.Info("this node is being drained, so its stacks move before the server stops; a second signal stops it now")
	for {
		counts, err := s.store.CountByNode(ctx)
		left := counts[s.node()]
		leaving, leavingErr := countLeaving(ctx, s.store, s.node()) // read later: a stack that moves goes from one to the other
		if errors.Join(err, leavingErr) == nil && left == 0 && leaving == 0 || !s.draining() {
			return
		}
		if !pause.For(ctx, drainLook) {
			s.log.Warn("stopping with stacks on this node; those run on, and no server supervises them or removes what moved away until one starts here", "stacks", left, "moved away", leaving)
			return
		}
	}
}

// countLeaving returns how many stacks have moved away from a node that has not removed all of
// them yet.
func countLeaving(ctx context.Context, db *store.Store, node string) (n int, err error) {
	remains, err := db.RemainsOn(ctx, node)
	for _, r := range remains {
		if r.AllGo && !r.Expected {
			n++
		}
	}
	return n, err
}

// untilSignal returns a context that ends with ctx, or with the next signal to stop.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
}
