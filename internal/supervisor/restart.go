package supervisor

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// Restart restarts the process of a service of a live stack, or for "" those of all its
// services, and returns once that is accepted. The new process starts beside the old one and
// takes the traffic when it is healthy, so that no request fails, not even one of the
// other services. It starts alone with strategy: recreate, if the old process does not
// serve, and under a runtime whose containers cannot be named while they run. The event
// service.restarted, with requested, reports success. If the state does not allow a
// restart, the error is a *stack.Error.
func (s *Supervisor) Restart(ctx context.Context, id, service string) (*stack.Stack, error) {
	st, err := s.change(ctx, id, func(st *stack.Stack) ([]stack.Event, error) { return st.RestartService(service) })
	if err != nil {
		return nil, err
	}
	return st, s.handOver(ctx, id, func(l *loop) {
		l.queue(func(context.Context) {
			for _, svc := range st.Processes(service) {
				l.runner.restartService(st, svc.Spec.Name)
			}
		})
	})
}

// restartService gives the process a new watcher, which begins with the restart. If the
// stack has failed meanwhile, there is no process.
func (r *runner) restartService(st *stack.Stack, service string) {
	g := r.serving()
	if g == nil {
		return
	}
	p := g.unwatch(service)
	if p == nil {
		return
	}
	_ = r.handOver(r.ctx, func(l *loop) { // if the loop has ended, so has the watching
		if l.runner.serving() == g { // otherwise it fell, and is being ended
			l.aside++ // before this job ends
			p.watchAfter(func(ctx context.Context) bool {
				defer r.tell(func(l *loop) { l.aside-- })
				return p.restartOnRequest(ctx, st)
			})
		}
	})
}

// restartOnRequest restarts the process. It returns false if the process is no longer
// to be watched.
func (p *process) restartOnRequest(ctx context.Context, st *stack.Stack) bool {
	p.logLine("restart requested")
	if err := p.awaitDatabases(ctx); err != nil { // which may be restarted by the same request
		p.logLine(p.gen.runner.explain(err))
	}
	if p.isDatabase() { // before it stops, since the image may have to be made
		if _, err := p.cfg.Builder.EnsureBase(ctx, p.service.Spec.Runtime, io.Discard); err != nil {
			return ctx.Err() == nil && p.giveUpRestart(ctx, err)
		}
	}
	if p.service.Spec.Strategy == stack.Recreate || !p.cfg.Engine.Promotes() || !p.serves(ctx) {
		return p.restartInPlace(ctx, st)
	}
	err := p.startReplacement(ctx)
	if err == nil || ctx.Err() != nil {
		return false
	}
	return p.giveUpRestart(ctx, err)
}

// giveUpRestart ends a requested restart that failed while the process goes on. It returns
// false if that could not be recorded.
func (p *process) giveUpRestart(ctx context.Context, err error) bool {
	p.log.Info("restart failed", "error", err)
	p.logLine("the restart failed; the previous process keeps running: " + p.gen.runner.explain(err))
	_, err = p.gen.runner.update(ctx, func(st *stack.Stack) ([]stack.Event, error) { return nil, st.RestartGivenUp(p.service.Spec.Name) })
	return err == nil
}

// serves reports whether the process runs and requests lead to it: one that was started
// after a crash and is not yet healthy has no target.
func (p *process) serves(ctx context.Context) bool {
	c, err := p.cfg.Engine.Look(ctx, p.id)
	return err == nil && c.Running && p.gen.target(p.service.Spec.Name) != nil
}

// restartInPlace stops the process, after its open requests, and starts it again. The
// other services do not find it before it is healthy, unless the runtime cannot name it
// then. If it does not get healthy, it has crashed.
func (p *process) restartInPlace(ctx context.Context, st *stack.Stack) bool {
	// Before the engine is asked, so that the next server knows.
	_, err := p.gen.runner.update(ctx, func(st *stack.Stack) ([]stack.Event, error) { return nil, st.RestartInPlace(p.service.Spec.Name) })
	if err != nil {
		return false
	}
	away, err := p.retryHung(ctx, func() error { return p.hide(ctx) })
	p.gen.setTarget(p.service.Spec.Name, nil)
	p.gen.runner.drainAll(p.gen.republish(st))
	if err == nil && p.isDatabase() {
		away, err = p.retryHung(ctx, func() error { return p.renew(ctx) })
		if err == nil {
			return false // another process takes its place, with its own watcher
		}
	}
	if err == nil {
		away, err = p.retryHung(ctx, func() error { return p.stopAndRestart(ctx) })
	}
	if err == nil {
		return p.recordRestart(ctx, (*stack.Stack).RestartedOnRequest)
	}
	if away || ctx.Err() != nil {
		return ctx.Err() == nil // it comes back with the engine
	}
	p.endFailedRestart(ctx, err)
	return p.revive(ctx, nil, true)
}

func (p *process) stopAndRestart(ctx context.Context) error {
	if err := p.halt(ctx); err != nil {
		return err
	}
	return p.restart(ctx)
}

// halt stops the process, and returns once all of its log is there.
func (p *process) halt(ctx context.Context) error {
	if err := p.cfg.Engine.Stop(ctx, p.id); err != nil {
		return err
	}
	p.awaitLog(ctx)
	p.markEnd(ctx, true)
	return nil
}

// hide takes the process's name away and gives services that have just looked it up
// time to call: a connection still being made when the process ends would reach the
// next one at the same address. Connections to a database are long, and end anyway.
func (p *process) hide(ctx context.Context) error {
	if !p.cfg.Engine.Promotes() || p.isDatabase() {
		return nil
	}
	defer p.withdrawAtEnd(ctx)()
	if err := p.promote(ctx); err != nil {
		return err
	}
	pause.For(ctx, callTime)
	return ctx.Err()
}

// republish routes to the targets of the generation if it is the served one, and
// returns the targets that nothing is routed to any more.
func (g *generation) republish(st *stack.Stack) []*proxy.Target {
	targets, _ := ask(g.runner.ctx, g.runner, func(l *loop) []*proxy.Target {
		if l.runner.serving() != g {
			return nil
		}
		return g.runner.route(st, g)
	})
	return targets
}

// callTime is how long a process without its name still answers services that looked it
// up before: unlike the proxy's requests, these calls cannot be counted.
const callTime = 3 * time.Second

// startReplacement starts another process beside this one, hidden from the other
// services, sends the traffic to it once it is healthy, and lets this one finish. After
// an error nothing has changed.
func (p *process) startReplacement(ctx context.Context) error {
	defer p.withdrawAtEnd(ctx)()
	service := *p.service
	service.Replaced++
	next, err := p.gen.startProcess(ctx, &service)
	if err != nil {
		return err
	}
	err = next.waitHealthy(ctx)
	if err == nil {
		err = p.handOver(ctx, next)
	}
	if errors.Is(err, store.ErrInDoubt) {
		p.takeBack(next)
	}
	if err != nil {
		return errors.Join(err, next.endAndRemove(p.gen.runner.ctx))
	}
	return nil
}

// takeBack makes the row name this process again, if it names next, which is to be removed.
func (p *process) takeBack(next *process) {
	r := p.gen.runner
	_, _ = r.update(r.settling(), func(st *stack.Stack) ([]stack.Event, error) {
		if s := st.Service(p.service.Spec.Name); s != nil && st.Generation.Number == p.gen.made.Number && s.Replaced == next.service.Replaced {
			s.Replaced = p.service.Replaced
		}
		return nil, nil
	})
}

// handOver gives the next process the service's name inside the stack, which both have
// then, and sends the traffic to it.
func (p *process) handOver(ctx context.Context, next *process) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	service := p.service.Spec.Name
	if err := next.promote(ctx, service); err != nil {
		return err
	}
	failpoint.Here("next-named")
	drained, err := p.replace(ctx, next, func(st *stack.Stack) ([]stack.Event, error) {
		return st.ReplacedOnRequest(service, p.gen.made.Number, next.service.Replaced)
	})
	if err != nil {
		return err
	}
	p.gen.runner.goAside(func() { p.endReplaced(drained) })
	p.logLine(service + " was restarted and is healthy")
	return nil
}

// replace puts the next process in the place of this one, by a change of the row, and
// returns the targets that nothing is routed to any more. It tries until the database
// works, or until ctx, which is the watcher's, ends.
func (p *process) replace(ctx context.Context, next *process, change func(*stack.Stack) ([]stack.Event, error)) (drained []*proxy.Target, err error) {
	done := p.gen.runner.retryByLoop(ctx, func(l *loop, tries *store.Tries) outcome { return l.replace(ctx, tries, p, next, change) })
	return done.drained, done.err
}

// replace puts the next process in the place of p, unless ctx has ended: p is not watched
// any more then, and whoever ends its generation has it. The row is changed first, so
// that the next server knows which of the two serves. It is one of several tries.
func (l *loop) replace(ctx context.Context, tries *store.Tries, p, next *process, change func(*stack.Stack) ([]stack.Event, error)) (done outcome) {
	if err := ctx.Err(); err != nil {
		return outcome{err: err}
	}
	if done.st, done.err = l.update(l.runner.ctx, tries, change); done.err != nil {
		return done
	}
	failpoint.Here("next-committed")
	next.becomeTarget()
	next.watch()
	p.gen.setProcess(next)
	if l.runner.serving() == p.gen {
		done.drained = l.runner.route(done.st, p.gen)
	}
	return done
}

// endReplaced ends a process that another one has replaced, after its open requests and
// calls.
func (p *process) endReplaced(targets []*proxy.Target) {
	err := p.promote(p.gen.runner.ctx)
	switch {
	case errors.Is(err, engine.ErrAddressTaken):
		p.log.Warn("another container took the address of a replaced process; the requests that it had are cut", "error", err)
	case err != nil:
		p.log.Warn("replaced process keeps its name, or has no network, until it ends", "error", err)
	}
	failpoint.Here("old-unnamed")
	p.gen.runner.drainAll(targets)
	if !pause.For(p.gen.runner.ctx, callTime) {
		return // the stack is deleted, or the server stops: whoever comes next removes it
	}
	if err := p.endAndRemove(p.gen.runner.ctx); err != nil && p.gen.runner.ctx.Err() == nil {
		p.log.Error("replaced process not removed; the next start tries again", "error", err)
	}
}

// unwatch ends the watching of a service's process and returns the process, or nil if
// there is none. No restart is under way when it returns.
func (g *generation) unwatch(service string) *process {
	type unwatched struct {
		p     *process
		ended <-chan struct{}
	}
	// By the loop, so that no restart puts another process in its place afterwards.
	stop := func(*loop) (u unwatched) {
		if u.p = g.process(service); u.p != nil {
			u.ended = u.p.stopWatching()
		}
		return u
	}
	u, err := ask(g.runner.ctx, g.runner, stop)
	if err != nil {
		u = stop(nil) // the loop has ended, and with its context all watching
	}
	if u.ended != nil {
		<-u.ended
	}
	return u.p
}

// unwatchAll ends the watching of all processes and returns them.
func (g *generation) unwatchAll() []*process {
	var all []*process
	for i := range g.made.Services {
		if p := g.unwatch(g.made.Services[i].Spec.Name); p != nil {
			all = append(all, p)
		}
	}
	return all
}
