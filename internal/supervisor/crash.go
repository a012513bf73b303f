package supervisor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// watch restarts the process whenever it ends, from now on (docs/api.md, "Crashes").
func (p *process) watch() { p.watchAfter(func(context.Context) bool { return true }) }

// watchAfter does something first, and then watches the process if first returns true.
func (p *process) watchAfter(first func(context.Context) bool) {
	ctx, cancel := context.WithCancel(p.gen.runner.ctx)
	watched := make(chan struct{})
	p.mu.Lock()
	p.watching, p.watched = cancel, watched
	p.mu.Unlock()
	p.gen.runner.work.Go(func() {
		defer close(watched)
		defer cancel()
		for watch := first(ctx); watch; watch = p.handleEnd(ctx) {
			select {
			case <-p.wake:
			case <-ctx.Done():
				return
			}
		}
	})
}

// stopWatching makes the watcher end, and returns a channel that is closed when it has,
// or nil if the process was never watched.
func (p *process) stopWatching() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watched != nil {
		p.watching()
	}
	return p.watched
}

// poke makes the watcher look at the process, if it is not about to look anyway.
func (p *process) poke() { offer(p.wake, struct{}{}) }

// handleEnd brings back a process that has ended. It returns false if the process is no
// longer to be watched.
func (p *process) handleEnd(ctx context.Context) bool {
	c, err := p.look(ctx)
	if err != nil || c.Running {
		return ctx.Err() == nil
	}
	p.drainBeside(p.withdraw(p.gen.target(p.service.Spec.Name)))
	if p.endedWithEngine(ctx) {
		return ctx.Err() == nil
	}
	p.awaitLog(ctx)
	how, code := exitOf(c)
	p.logLine(p.service.Spec.Name + " " + how)
	p.endNoted.Store(true)
	failpoint.Here("crash-seen")
	return p.revive(ctx, code, false)
}

// look returns the process's container, or, if somebody removed it, the zero Container,
// which does not run.
func (p *process) look(ctx context.Context) (engine.Container, error) {
	c, err := p.cfg.Engine.Look(ctx, p.id)
	if errors.Is(err, engine.ErrNotFound) {
		return engine.Container{}, nil
	}
	return c, err
}

// withdraw takes the target of a process that ended out of the routes, and returns it
// for the caller to drain, if anything led there. It waits for nothing, not even for
// the database, since the engine may give the address to the next container.
func (p *process) withdraw(target *proxy.Target) []*proxy.Target {
	p.gen.dropTarget(p.service.Spec.Name, target)
	p.gen.runner.routing.Lock() // routes that are being written are written before this, or with the target gone
	defer p.gen.runner.routing.Unlock()
	if !p.cfg.Routes.Withdraw(p.gen.st.ID, target) {
		return nil
	}
	return []*proxy.Target{target}
}

// withdrawAtEnd withdraws the target if the process ends before stop is called. Callers
// are busy watchers, and nobody else would notice.
func (p *process) withdrawAtEnd(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	target := p.gen.target(p.service.Spec.Name)
	var watching sync.WaitGroup
	watching.Go(func() {
		p.onEnd(ctx, func() {
			if c, err := p.look(ctx); err == nil && !c.Running {
				p.drainBeside(p.withdraw(target))
			}
		})
	})
	return func() {
		cancel()
		watching.Wait()
	}
}

// drainBeside drains targets while the watcher goes on: open requests last as long as
// their clients take to read.
func (p *process) drainBeside(targets []*proxy.Target) {
	p.gen.runner.work.Go(func() { p.gen.runner.drainAll(targets) })
}

// revive counts the crash of a process that does not run and starts it again, until it
// is healthy. With restart, the crash is a restart that failed. It returns false if the
// process is no longer to be watched.
func (p *process) revive(ctx context.Context, code *int, restart bool) bool {
	for ; ; restart = true {
		wait, ok := p.countCrash(ctx, code, restart)
		if !ok {
			return false
		}
		failpoint.Here("crash-counted")
		p.logLine(fmt.Sprintf("restarting in %s", wait))
		if !pause.For(ctx, wait) {
			return false
		}
		failpoint.Here("backoff-over")
		if _ = p.awaitDatabases(ctx); ctx.Err() != nil { // one that takes too long is the program's to complain about
			return false
		}
		remade := false
		away, err := p.retryHung(ctx, func() error {
			err := p.restart(ctx)
			if errors.Is(err, engine.ErrNotFound) {
				err = p.remake(ctx, (*stack.Stack).Restarted)
				remade = err == nil
			}
			return err
		})
		if remade {
			return false // another process takes its place, with a watcher of its own
		}
		if err == nil {
			failpoint.Here("restart-healthy")
			return p.recordRestart(ctx, (*stack.Stack).Restarted)
		}
		if away || ctx.Err() != nil {
			return ctx.Err() == nil // it comes back with the engine
		}
		code = p.lastExit(ctx)
		p.endFailedRestart(ctx, err)
	}
}

// retryHung does a step of a restart again if it failed because the engine took no
// connection for a while. If the engine went away instead, retryHung returns true, and
// the stack is brought back, although the process may run: it is in no route.
func (p *process) retryHung(ctx context.Context, step func() error) (away bool, err error) {
	sup := p.gen.runner.sup
	for {
		absence := sup.absences.Load()
		err := step()
		if err == nil || ctx.Err() != nil || !sup.engineLeft(ctx, absence) || !sup.awaitEngine(ctx) {
			return false, err
		}
		if sup.absences.Load() != absence {
			p.gen.runner.tell(func(l *loop) { l.recoverLost(p.gen) })
			return true, err
		}
	}
}

// remake starts a new process in place of one that has ended, whose container may be gone,
// and hands the service over to it by a change of the row.
func (p *process) remake(ctx context.Context, record func(*stack.Stack, string) ([]stack.Event, error)) error {
	next, err := p.gen.startProcess(ctx, p.service, p.service.Spec.Name)
	if err != nil {
		return err
	}
	if err := next.waitHealthy(ctx); err != nil {
		return errors.Join(err, next.endAndRemove(p.gen.runner.ctx))
	}
	drained, err := p.replace(ctx, next, func(st *stack.Stack) ([]stack.Event, error) {
		return record(st, p.service.Spec.Name)
	})
	if err != nil {
		return errors.Join(err, next.endAndRemove(p.gen.runner.ctx))
	}
	next.logLine(p.service.Spec.Name + " is healthy again")
	p.drainBeside(drained)
	return nil
}

// endFailedRestart ends what a restart has started that failed.
func (p *process) endFailedRestart(ctx context.Context, err error) {
	p.log.Info("restart failed", "error", err)
	p.logLine("the restart failed: " + p.gen.runner.explain(err))
	stopped := !p.hasEnded()
	if err := p.cfg.Engine.Stop(ctx, p.id); err != nil {
		if ctx.Err() == nil {
			p.log.Warn("unhealthy process not stopped", "error", err)
		}
		return
	}
	p.awaitLog(ctx)
	p.markEnd(ctx, stopped)
}

// lastExit returns the code with which the process exited by itself; nil if it did not,
// or if the code is not known.
func (p *process) lastExit(ctx context.Context) *int {
	c, err := p.cfg.Engine.Look(ctx, p.id)
	if err != nil || c.Running {
		return nil
	}
	_, code := exitOf(c)
	return code
}

// endedWithEngine reports whether a process ended because its engine did, and so has
// not crashed. If the generation was not yet served when the engine came back, nobody
// has brought it back so far, and endedWithEngine does.
func (p *process) endedWithEngine(ctx context.Context) bool {
	absence := p.absence.Load()
	if !p.gen.runner.sup.engineLeft(ctx, absence) {
		return false
	}
	if p.gen.runner.sup.absences.Load() != absence && ctx.Err() == nil {
		p.gen.runner.tell(func(l *loop) { l.recoverLost(p.gen) })
	}
	return true
}

// exitOf describes how a process ended, and returns the exit code if it is known.
func exitOf(c engine.Container) (how string, code *int) {
	exit := c.ExitCode
	signal, killed := c.Signal()
	switch {
	case c.ID == "":
		return "was removed", nil
	case c.OOMKilled:
		return fmt.Sprintf("ran out of memory and was killed (exit code %d)", exit), &exit
	case exit == 0:
		return "exited with code 0; a service's process must keep running", &exit
	case killed:
		return fmt.Sprintf("was ended by signal %s (exit code %d)", signal, exit), &exit
	}
	return fmt.Sprintf("exited with code %d", exit), &exit
}

// countCrash records a crash and returns how long to wait before the restart, or false
// if there will be none.
func (p *process) countCrash(ctx context.Context, code *int, restart bool) (time.Duration, bool) {
	r := p.gen.runner
	var reason string // why the generation falls; "" if it does not
	count := func(st *stack.Stack) ([]stack.Event, error) {
		if st.Generation.Number != p.gen.made.Number {
			return nil, errNotServed // the next one is live, and about to learn that
		}
		events, looping, err := st.Crash(p.service.Spec.Name, code, restart, p.cfg.Limits, stack.Now())
		reason = ""
		if err == nil && looping {
			reason, _ = events[len(events)-1].Data["error"].(string)
		}
		return events, err
	}
	done := r.retryByLoop(r.ctx, func(l *loop, tries *store.Tries) outcome { return l.countCrash(tries, p, count, &reason) })
	switch {
	case done.err != nil:
		if ctx.Err() == nil {
			p.log.Warn("crash not recorded", "error", done.err)
		}
		return 0, false
	case reason != "":
		p.logLine(reason)
		return 0, false
	}
	svc := done.st.Service(p.service.Spec.Name)
	if svc == nil {
		return 0, false // an earlier try took effect, and a generation without it went live since
	}
	return p.cfg.Limits.RestartDelay(len(svc.Crashes)), true
}

// errNotServed is why a crash is not counted.
var errNotServed = stack.NewError(stack.Conflict, "the generation is no longer served")

// countCrash counts a crash of a process of the served generation, by one of several tries. If
// count gives a reason, the generation falls: it loses its routes.
func (l *loop) countCrash(tries *store.Tries, p *process, count func(*stack.Stack) ([]stack.Event, error), reason *string) (done outcome) {
	if l.runner.serving() != p.gen {
		return outcome{err: errNotServed}
	}
	done.st, done.err = l.update(l.runner.ctx, tries, func(st *stack.Stack) ([]stack.Event, error) {
		was := *st
		events, err := count(st)
		if err == nil && *reason != "" {
			done.was, done.drained = &was, l.runner.route(st, nil)
		}
		return events, err
	})
	switch {
	case done.err != nil && done.was != nil:
		l.runner.route(done.was, p.gen) // the next try takes them out again, and then ends them
	case done.err == nil && *reason != "":
		failpoint.Here("loop-committed")
		if done.was == nil { // an earlier try took effect
			done.drained = l.runner.route(done.st, nil)
		}
		fallen := make(chan struct{})
		l.runner.served.Store(nil)
		l.fallen = fallen
		l.goAside(func() {
			defer close(fallen)
			p.gen.endFallen(done.drained)
		})
	}
	return done
}

// endFallen ends the processes of a generation that crashed too often, beside a deploy
// that may be under way, and gives back its network. Images, sites and data stay, so
// that it can be brought back.
func (g *generation) endFallen(targets []*proxy.Target) {
	cut(targets)
	ctx := g.runner.ctx
	log := g.log.With("generation", g.made.Number)
	g.runner.sup.finishOnEngine(ctx, log, "generation in a crash loop not stopped; the next start tries again", func() error {
		if err := errors.Join(g.endAll(ctx), g.runner.sup.stopContainers(ctx, g.key(""))); err != nil {
			return err
		}
		return g.discardNetwork(context.WithoutCancel(ctx))
	})
	failpoint.Here("half-taken-down")
}

// recordRestart records that a process is back, and sends the traffic to it.
func (p *process) recordRestart(ctx context.Context, record func(*stack.Stack, string) ([]stack.Event, error)) bool {
	st, err := p.gen.runner.update(ctx, func(st *stack.Stack) ([]stack.Event, error) { return record(st, p.service.Spec.Name) })
	if err != nil {
		return false
	}
	p.logLine(p.service.Spec.Name + " is healthy again")
	p.drainBeside(p.gen.republish(st))
	return true
}
