package supervisor

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/stack"
)

// A node that is cut off stops what others may take, before they may: by what the rows may say,
// and not by what it serves, since it may not have come to that yet or be about to. What it has
// stopped stands still until Rejoined: nothing leads to it, and no job begins.

// errIsolated is why work on a stack ends on a node that is cut off.
var errIsolated = stack.NewError(stack.Unavailable, "the node was cut off from the others while this was under way; try again")

// Isolated stops what this node runs of the stacks that others may take by now, since it is
// cut off from the database and from them. empty are the stacks of which others may have read
// that they have no data, even if they have some by now. Programs get at most within to end,
// whatever their manifests say: others count the time, too. It returns when that is done; the
// programs of guests end as soon. It may be called before Start and while that goes on. Rejoined
// brings back what is still this node's.
func (s *Supervisor) Isolated(ctx context.Context, empty []string, within time.Duration) {
	runners, untaken := s.beginIsolation()
	var all sync.WaitGroup
	for _, r := range runners {
		isSite := r.site.Load()
		if slices.Contains(empty, r.id) || isSite != nil && *isSite || s.cfg.RestoreLost && r.snapped.Load() {
			all.Go(func() { r.isolate(ctx, within) })
		}
	}
	if untaken {
		all.Go(func() {
			s.stopUntaken(ctx, within, func(id string) bool {
				return runners[id] == nil && (s.cfg.RestoreLost || slices.Contains(empty, id))
			})
		})
	}
	for _, g := range s.allGuests() {
		s.jobs.Go(func() { g.isolate(ctx, within) })
	}
	all.Wait()
}

// beginIsolation notes that the node is cut off, and returns the runners there are, and whether
// Start is still to take stacks.
func (s *Supervisor) beginIsolation() (runners map[string]*runner, untaken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isolated = true
	s.cuts++
	return maps.Clone(s.runners), !s.taken
}

// countCuts returns how often the node was cut off.
func (s *Supervisor) countCuts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cuts
}

// wasCutSince reports whether the node has been cut off since it was cuts times, so that what was
// read of a stack before that may be wrong. If it is now, the stack waits for Rejoined.
func (s *Supervisor) wasCutSince(cuts int, r *runner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isolated {
		r.cut.Store(true)
		r.isolated.Store(true)
	}
	return s.cuts != cuts
}

// noteTaken notes that Start has taken the stacks.
func (s *Supervisor) noteTaken() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = true
}

// stopUntaken stops and removes the containers of stacks that Start has not taken yet, as far as
// which selects them. It tries until none is left or ctx ends.
func (s *Supervisor) stopUntaken(ctx context.Context, within time.Duration, which func(id string) bool) {
	for ok := true; ok; ok = pause.For(ctx, endedLook) {
		there, err := s.cfg.Engine.Containers(ctx, engine.Key{})
		there = slices.DeleteFunc(there, func(c engine.Container) bool {
			return c.Key.Stack == "" || c.Name == c.Key.Probe() || !which(c.Key.Stack) // the probe is this server's
		})
		if err == nil && len(there) == 0 {
			return
		}
		err = errors.Join(err, sideBySide(there, func(c engine.Container) error { return s.endWithin(ctx, c, within) }))
		if err != nil {
			s.cfg.Log.Warn("containers of an isolated node not stopped; trying again", "error", err)
		}
	}
}

// endWithin ends a container within a time, and removes it.
func (s *Supervisor) endWithin(ctx context.Context, c engine.Container, within time.Duration) error {
	s.cfg.Log.Warn("container stopped: this node is cut off, and another may take its stack", "stack", c.Key.Stack, "container", c.Name)
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := s.cfg.Engine.Stop(limited, c.ID); err != nil {
		s.cfg.Log.Warn("container of an isolated node not stopped in time; killing it", "container", c.Name, "error", err)
	}
	return s.cfg.Engine.Remove(ctx, c.ID)
}

// isolate ends the job under way, the routes and the processes of a stack, and returns when none
// of its containers is left.
func (r *runner) isolate(ctx context.Context, within time.Duration) {
	r.cut.Store(true)
	r.isolated.Store(true)
	r.mu.Lock()
	r.cutOff()
	r.mu.Unlock()
	stopped := make(chan error, 1)
	r.tell(func(l *loop) {
		r.isolated.Store(true) // again, if the loop has only just heard of Rejoined
		l.interrupt(errIsolated, func(ctx context.Context) {
			stopped <- r.sup.retryEngine(ctx, func() error { return r.stopRouted(ctx) })
		})
	})
	killing, stop := context.WithCancel(ctx)
	defer stop()
	r.sup.jobs.Go(func() { r.killAfter(killing, within) })
	select {
	case err := <-stopped:
		if err != nil {
			r.log.Warn("stack of an isolated node not stopped; killing what is left of it", "error", err)
			r.awaitNone(ctx)
		}
		r.log.Warn("stack stopped: this node is cut off, and another may take it")
	case <-r.ended: // perhaps before the job began
		r.awaitNone(ctx)
	case <-ctx.Done():
	}
}

// stopRouted stops the stack, whatever its routes lead to.
func (r *runner) stopRouted(ctx context.Context) error {
	last := r.routed.Load()
	if last == nil {
		return r.sup.stopContainers(ctx, engine.Key{Stack: r.id})
	}
	err := r.stopServing(ctx, &last.st)
	if last.to != nil { // perhaps it was not served yet
		err = errors.Join(err, last.to.endAll(ctx))
	}
	return err
}

// endedLook is how often to look whether containers are left that are being killed.
const endedLook = time.Second

// awaitNone returns when no container of the stack is left, the server closes or ctx ends.
func (r *runner) awaitNone(ctx context.Context) {
	for r.sup.ctx.Err() == nil {
		left, err := r.cfg.Engine.Containers(ctx, engine.Key{Stack: r.id})
		if err == nil && len(left) == 0 || !pause.For(ctx, endedLook) {
			return
		}
	}
}

// killAfter kills and removes the containers of a stack that are left after a time, and again
// after as long, until ctx ends.
func (r *runner) killAfter(ctx context.Context, wait time.Duration) {
	for pause.For(ctx, wait) {
		left, err := r.cfg.Engine.Containers(ctx, engine.Key{Stack: r.id})
		err = errors.Join(err, sideBySide(left, func(c engine.Container) error {
			r.log.Warn("container of an isolated node killed, since it did not end in time", "container", c.Name)
			return r.cfg.Engine.Remove(ctx, c.ID)
		}))
		if err != nil && ctx.Err() == nil {
			r.log.Warn("containers of an isolated node not killed; trying again", "error", err)
		}
	}
}

// Rejoined brings back the stacks that Isolated stopped and nobody has taken.
func (s *Supervisor) Rejoined() {
	s.mu.Lock()
	s.isolated = false
	runners := maps.Clone(s.runners)
	s.mu.Unlock()
	for _, r := range runners {
		r.rejoin()
		r.tell(func(l *loop) {
			if r.isolated.CompareAndSwap(true, false) {
				l.interrupt(errIsolated, r.comeBack)
				l.keepTime() // lets go of it if another node owns it
			}
		})
	}
}

// comeBack brings the stack back as its row is now, if it is still this node's.
func (r *runner) comeBack(ctx context.Context) {
	st, err := r.latest(ctx)
	if err == nil && r.owns(st) && st.Restoring() {
		r.restore(ctx)
		return
	}
	r.recoverStack(ctx) // reads the row again
}
