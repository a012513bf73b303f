package supervisor

import (
	"context"
	"time"

	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/stack"
)

// HandOver is what a server leaves to another process that takes its place at once. The
// processes of stacks do not notice, and nobody is told of a restart.
type HandOver struct {
	Deploys []WaitingDeploy
}

// WaitingDeploy is a deploy that was accepted and has not begun.
type WaitingDeploy struct {
	Stack  string
	Next   stack.Generation
	Envs   []map[string]stack.Env // of Next's services in their order, whose JSON omits them
	Synced bool                   // all of its source is on disk
}

// setEnvs gives the services what their JSON has omitted, and returns false if that was left by
// a version that omitted it, too.
func (d *WaitingDeploy) setEnvs() bool {
	if len(d.Envs) != len(d.Next.Services) {
		return false
	}
	for i, env := range d.Envs {
		d.Next.Services[i].Spec.Env = env
	}
	return true
}

// deployOf returns the deploy that waits for a stack, if the row says so too and all of it is
// there, and false otherwise. One that a claim of an expired stack precedes is not there.
func (h *HandOver) deployOf(st *stack.Stack) (WaitingDeploy, bool) {
	if h == nil || st.Deploying == 0 || st.Restoring() {
		return WaitingDeploy{}, false
	}
	for _, d := range h.Deploys {
		if d.Stack == st.ID && d.Next.Attempt == st.Attempt {
			return d, d.setEnvs()
		}
	}
	return WaitingDeploy{}, false
}

// quietEvery is how often to look whether jobs are under way.
const quietEvery = 50 * time.Millisecond

// Quiesce makes deploys wait that have not begun, until Resume, and returns once no job is
// under way. It returns false if ctx ends first.
func (s *Supervisor) Quiesce(ctx context.Context) bool {
	s.quiet.Store(true)
	for !s.IsQuiet() {
		if !pause.For(ctx, quietEvery) {
			return false
		}
	}
	return true
}

// IsQuiet reports whether no job is under way that a Close would stop, and nobody holds files.
func (s *Supervisor) IsQuiet() bool {
	if s.held.areHeld() {
		return false
	}
	for _, r := range s.everyRunner() {
		if quiet, err := ask(s.ctx, r, (*loop).isQuiet); err == nil && !quiet {
			return false
		}
	}
	return true
}

// isQuiet is isFree, but deploys may wait.
func (l *loop) isQuiet() bool {
	for _, j := range l.pending {
		if j.attempt == 0 {
			return false
		}
	}
	return (l.job == nil || l.job.yields) && l.aside == 0
}

// Resume lets deploys begin again.
func (s *Supervisor) Resume() {
	s.quiet.Store(false)
	for _, r := range s.everyRunner() {
		r.tell((*loop).nextJob)
	}
}

// Leave is Close for a server whose place another process takes, and returns what that one
// is to be given.
func (s *Supervisor) Leave() HandOver {
	s.Close()
	var left HandOver
	for _, r := range s.everyRunner() {
		select {
		case <-r.ended:
			left.Deploys = append(left.Deploys, r.left...)
		default: // it waits for the engine
		}
	}
	return left
}

// waitingDeploys returns the deploys that have not begun.
func (l *loop) waitingDeploys() (waiting []WaitingDeploy) {
	for _, j := range l.pending {
		if j.attempt == 0 {
			continue
		}
		d := WaitingDeploy{Stack: l.runner.id, Next: j.next, Synced: j.synced}
		for _, service := range j.next.Services {
			d.Envs = append(d.Envs, service.Spec.Env)
		}
		waiting = append(waiting, d)
	}
	return waiting
}
