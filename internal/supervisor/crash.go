package supervisor

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-host/berth/internal/docker"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/stack"
)

// watch restarts the process whenever it ends, from now on (docs/api.md,
// "Crashes").
func (p *process) watch() { p.watchAfter(func(context.Context) bool { return true }) }

// watchAfter is watch after something else was done first, which tells whether
// there is anything left to watch.
func (p *process) watchAfter(first func(context.Context) bool) {
	ctx, cancel := context.WithCancel(p.ctx)
	p.watching, p.watched = cancel, make(chan struct{})
	p.work.Go(func() {
		defer close(p.watched)
		defer cancel()
		for again := first(ctx); again; again = p.handleEnd(ctx) {
			select {
			case <-p.wake:
			case <-ctx.Done():
				return
			}
		}
	})
}

// unwatch makes an end of the process nobody's business. When it returns, no
// restart is under way.
func (p *process) unwatch() {
	if p.watched == nil {
		return
	}
	p.watching()
	<-p.watched
}

// poke has the process looked at.
func (p *process) poke() {
	select {
	case p.wake <- struct{}{}:
	default: // it will be looked at anyway
	}
}

// handleEnd brings a process back that has ended. False means that it is no
// longer to be watched.
func (p *process) handleEnd(ctx context.Context) bool {
	c, err := p.Engine.Inspect(ctx, p.id)
	if errors.Is(err, docker.ErrNotFound) {
		// Somebody removed the container: there is nothing to start again.
		err, c = nil, docker.Container{}
	}
	if err != nil || c.Running || p.endedWithEngine(ctx) {
		return ctx.Err() == nil
	}
	p.awaitLog(ctx)
	how, code := exitOf(c)
	p.say(p.service.Name + " " + how)
	failpoint.Here("crash-seen")
	return p.revive(ctx, code)
}

// revive counts the crash of a process that does not run and starts it again,
// until it is healthy. False means that it is no longer to be watched.
func (p *process) revive(ctx context.Context, code *int) bool {
	for restart := false; ; restart = true {
		again, ok := p.countCrash(ctx, code, restart)
		if !ok {
			return false
		}
		failpoint.Here("crash-counted")
		p.say(fmt.Sprintf("restarting in %s", again))
		if !sleep(ctx, again) {
			return false
		}
		failpoint.Here("backoff-over")
		absence := p.absences.Load()
		err := p.restart(ctx)
		if errors.Is(err, docker.ErrNotFound) {
			if err = p.remake(ctx); err == nil {
				return false // another process is watched in its place
			}
		}
		if err == nil {
			failpoint.Here("restart-healthy")
			return p.restarted(ctx, (*stack.Stack).Restarted)
		}
		code = p.lastExit(ctx)
		if !p.restartFailed(ctx, absence, err) {
			return ctx.Err() == nil // brought back with the engine
		}
	}
}

// remake starts another process in place of one whose container somebody
// removed, and hands the service over to it.
func (p *process) remake(ctx context.Context) error {
	next, err := p.startProcess(ctx, p.service, containerName(p.st, p.service.Name, p.number), p.service.Name)
	if err != nil {
		return err
	}
	if err := next.waitHealthy(ctx); err != nil {
		return errors.Join(err, next.remove(p.ctx))
	}
	p.setTarget(p.service.Name, next.newTarget())
	next.restarted(ctx, (*stack.Stack).Restarted)
	next.watch()
	p.add(next)
	return nil
}

// restartFailed ends what a restart that failed has started. False means that
// the failure is not the process's: the engine was away since its absence of that
// number.
func (p *process) restartFailed(ctx context.Context, absence int64, err error) bool {
	if ctx.Err() != nil || p.left(ctx, absence) {
		return false
	}
	p.Log.Info("restart failed", "stack", p.st.ID, "service", p.service.Name, "error", err)
	p.say("the restart failed: " + p.explain(err))
	if err := p.Engine.Stop(ctx, p.id); err != nil && ctx.Err() == nil {
		p.Log.Warn("process that did not get healthy not stopped", "stack", p.st.ID, "service", p.service.Name, "error", err)
	}
	return true
}

// lastExit is the code with which the process exited by itself; nil when it did
// not, or that is not known.
func (p *process) lastExit(ctx context.Context) *int {
	c, err := p.Engine.Inspect(ctx, p.id)
	if err != nil || c.Running {
		return nil
	}
	_, code := exitOf(c)
	return code
}

// endedWithEngine tells whether a process ended with its engine: then it has not
// crashed. One that a restarted engine does not run, of a generation that was not
// served yet when the engine came back, is brought back from here.
func (p *process) endedWithEngine(ctx context.Context) bool {
	absence := p.lastAbsence()
	if !p.left(ctx, absence) {
		return false
	}
	if p.absences.Load() != absence && p.serving() == p.generation && ctx.Err() == nil {
		p.comeBackWithEngine()
	}
	return true
}

// exitOf says how a process ended, and with which code when that is known.
func exitOf(c docker.Container) (how string, code *int) {
	exit := c.ExitCode
	switch {
	case c.ID == "":
		return "was removed", nil
	case c.OOMKilled:
		return fmt.Sprintf("ran out of memory and was killed (exit code %d)", exit), &exit
	case exit == 0:
		return "exited with code 0; a service's process has to keep running", &exit
	case exit > 128 && exit < 128+65:
		signal := syscall.Signal(exit - 128)
		return fmt.Sprintf("was ended by signal %s (exit code %d)", unix.SignalName(signal), exit), &exit
	}
	return fmt.Sprintf("exited with code %d", exit), &exit
}

// countCrash records a crash and tells how long to wait before the restart.
// False means that there will be none.
func (p *process) countCrash(ctx context.Context, code *int, restart bool) (time.Duration, bool) {
	var looping bool
	st, err := p.update(ctx, func(st *stack.Stack) (events []stack.Event, err error) {
		events, looping, err = st.Crash(p.service.Name, code, restart, p.Limits, stack.Now())
		return events, err
	})
	switch {
	case err != nil:
		if ctx.Err() == nil {
			p.Log.Warn("crash not recorded", "stack", p.st.ID, "service", p.service.Name, "error", err)
		}
		return 0, false
	case looping:
		p.say(st.Error)
		failpoint.Here("loop-committed")
		// Not from here: it waits until this watcher has ended.
		p.jobs.Go(func() { p.runner.start(p.runner.endLoop) })
		return 0, false
	}
	return p.backoff(len(st.Service(p.service.Name).Crashes)), true
}

// endLoop ends a stack whose service crashed too often. A redeploy that was
// accepted in the moment between is lost, and says so.
func (r *runner) endLoop(ctx context.Context) {
	st, err := r.update(ctx, func(st *stack.Stack) ([]stack.Event, error) {
		if st.Deploying == 0 {
			return nil, nil
		}
		return st.DeployFailed("the deploy was stopped as a service of the previous generation crashed too often; upload the source again")
	})
	if err != nil {
		if ctx.Err() == nil && !gone(err) {
			r.Log.Error("stack in a crash loop not stopped; the next start tries again", "stack", r.id, "error", err)
		}
		return
	}
	r.takeDown(ctx, st)
}

// backoff is the wait before the restart after so many crashes.
func (s *Supervisor) backoff(crashes int) time.Duration {
	wait := s.Backoff
	for range crashes - 1 {
		wait = min(2*wait, s.BackoffMax)
	}
	return min(wait, s.BackoffMax)
}

// restarted sends the traffic to a process that is back, and records it.
func (p *process) restarted(ctx context.Context, record func(*stack.Stack, string) ([]stack.Event, error)) bool {
	st, err := p.update(ctx, func(st *stack.Stack) ([]stack.Event, error) { return record(st, p.service.Name) })
	if err != nil {
		return false
	}
	p.say(p.service.Name + " is healthy again")
	p.drainAll(p.show(st))
	return true
}

// sleep waits; false when ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
