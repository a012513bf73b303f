package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/berth-host/berth/internal/builder"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/hostfault"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// deploy builds a generation and brings it up in place of the served one, if any.
// Whatever goes wrong, the stack ends up live or failed. If the context ends, because
// the stack was deleted or expired or the server stops, the rest is left to whoever
// ended it. If superseded ends, another deploy follows, and the stack is what it was
// before this one.
func (r *runner) deploy(ctx, superseded context.Context, next stack.Generation, synced bool) {
	defer r.startMeasure()
	defer r.trimLater()
	st, err := r.get(ctx)
	if err != nil {
		r.removeSource(next.Source)
		r.log.Error("deploy not begun", "error", err)
		r.noteStop(ctx, next.Attempt)
		return
	}
	if st.Attempt != next.Attempt || st.Deploying == 0 {
		r.removeSource(next.Source) // it was stopped before it began
		return
	}
	d := &deployment{gen: r.generation(st, next), old: r.serving(), synced: synced, ready: r.ready}
	r.ready = nil
	d.keepDatabases()
	d.gen.progress = newProgress(next.Services)
	if r.newer { // what is there may have this number and not be of this build
		d.gen.abandon(ctx)
	}
	err = d.buildAndSwitch(ctx, superseded)
	if err == nil {
		r.prepareLater()
		r.keepApartLater()
	}
	if err == nil || isDeleted(err) {
		return
	}
	if ctx.Err() == nil {
		r.log.Info("deploy failed", "generation", next.Number, "error", err)
		if d.undo(ctx, err) {
			failpoint.Here("deploy-undone")
			return
		}
	}
	r.noteStop(ctx, next.Attempt)
}

// isDeleted reports whether an error means that the stack was deleted.
func isDeleted(err error) bool {
	return stack.KindOf(err) == stack.NotFound
}

// deployment is a generation on its way to replacing an old one.
type deployment struct {
	gen    *generation
	old    *generation // nil on a first deploy
	synced bool        // whether all of the source is on disk
	ready  *ready      // nil for none

	after sync.WaitGroup // work that only the end of the deploy waits for

	mu       sync.Mutex
	halted   []*process      // processes of the old generation stopped for strategy: recreate
	newData  []engine.Volume // of databases that had none before
	cleanUps []func()        // of the builds; they run once the stack is live
	replaced []string        // references of the layers that the builds do not need any more

	unlayered []string // services that were built without a layer

	kept []*stack.Service // databases that go on as they are

	inDoubt bool // whether the row may say that the generation is live, and nobody knows
}

// buildAndSwitch builds all services, starts them, switches the traffic and cleans up.
// If it fails, or superseded ends first, it removes what it has made. If the server stops, or the
// node is cut off, while it is in doubt whether the generation is live, the row says so later.
func (d *deployment) buildAndSwitch(ctx, superseded context.Context) error {
	defer d.cleanUp()
	err := d.untilSuperseded(ctx, superseded, func(until context.Context) error {
		d.gen.runner.work.Go(func() { d.recordProgress(until) })
		if err := d.build(until, ctx); err != nil {
			return err
		}
		return d.gen.inOrder(until, d.bringUpNew)
	})
	if err == nil {
		err = d.switchOver(ctx, superseded)
	}
	if err != nil && !d.inDoubt {
		err = d.attribute(ctx, err)
		d.after.Wait() // for the network, which could not be removed before it is there
		d.gen.abandon(ctx)
		d.removeNewData(ctx)
		d.gen.runner.removeSource(d.gen.made.Source)
	}
	return err
}

// untilSuperseded does something with a context that ends when superseded does.
func (d *deployment) untilSuperseded(ctx, superseded context.Context, do func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(superseded, stop)()
	err := do(ctx)
	if err != nil && superseded.Err() != nil {
		return errSuperseded
	}
	return err
}

// attribute returns why a deploy failed: if the engine went away meanwhile, that is the
// reason, whatever err looks like. It waits until the engine is back, so that what is
// left of the deploy can be removed. An engine that was only slow to answer is not to
// blame.
func (d *deployment) attribute(ctx context.Context, err error) error {
	sup, absence := d.gen.runner.sup, d.gen.absence
	if ctx.Err() != nil || !sup.engineLeft(ctx, absence) || !sup.awaitEngine(ctx) || sup.absences.Load() == absence {
		return err
	}
	d.gen.log.Info("the engine went away during a deploy", "generation", d.gen.made.Number, "error", err)
	return errEngineLeft(d.gen.made.Number)
}

// readyFor returns the container that is ready for the build of a service; nil for none.
func (d *deployment) readyFor(s *stack.Service) *builder.Ready {
	if d.ready == nil {
		return nil
	}
	return d.ready.builds[s.Spec.Name]
}

// cleanUp removes what only the build needed, and waits for the work that goes on
// beside the deploy.
func (d *deployment) cleanUp() {
	for _, do := range d.cleanUps {
		d.after.Go(do)
	}
	d.after.Wait()
	d.dropBuildNetwork()
	d.dropReplaced()
}

// dropBuildNetwork removes the network of the builds, with the containers that were ready
// on it.
func (d *deployment) dropBuildNetwork() {
	objects := engine.Objects{Networks: []engine.Network{{Name: d.gen.buildNetwork()}}}
	switch {
	case d.ready != nil:
		d.ready.discardObjects(objects)
	case d.gen.builds():
		d.gen.runner.discardOfBuilds(objects)
	}
}

// dropReplaced removes the layers that the row does not name any more, once no container
// is made from them. The images that the old generation runs from go with it.
func (d *deployment) dropReplaced() {
	r := d.gen.runner
	if len(d.replaced) == 0 {
		return
	}
	st, err := r.get(r.settling())
	if err != nil {
		return // the stack is deleted, or the server stops, or the node is cut off
	}
	refs := slices.DeleteFunc(d.replaced, func(ref string) bool {
		return st.KeepsImage(ref) || d.gen.st.Generation.UsesImage(ref)
	})
	if err := r.cfg.Engine.Discard(r.ctx, engine.Objects{Images: []engine.Image{{Tags: refs}}}); err != nil {
		d.gen.log.Warn("replaced layers not removed; the next sweep tries again", "error", err)
	}
	failpoint.Here("replaced-dropped")
}

// removeSource removes the source of a generation that did not go live, or is not served
// any more, unless the row names it: another generation may have taken it over. It does
// so beside the job, once the database works.
func (r *runner) removeSource(source stack.Source) {
	if source.Folder == "" {
		return
	}
	r.work.Go(func() {
		st, err := r.get(r.ctx) // fails if the stack is deleted or the server stops: others remove it then
		if err == nil && st.Generation.Source.Folder != source.Folder {
			r.removeFiles(r.cfg.Dir.Source(r.id, source.Folder))
		}
	})
}

// inPhase does something with a service, which begins with a phase.
func (d *deployment) inPhase(ctx context.Context, s *stack.Service, phase stack.Phase, do func() error) error {
	d.gen.progress.enter(s.Spec.Name, phase)
	err := do()
	d.gen.progress.leave(s.Spec.Name, err != nil && ctx.Err() == nil)
	return err
}

// bringUpNew starts one service beside its old process, or in place of it if the two
// cannot share their data.
func (d *deployment) bringUpNew(ctx context.Context, s *stack.Service) error {
	if d.isKept(s) {
		return d.inPhase(ctx, s, stack.PhaseHealth, func() error { return d.awaitKept(ctx, s) })
	}
	phase := stack.PhaseStart
	if s.Spec.Release != "" {
		phase = stack.PhaseRelease
	}
	return d.inPhase(ctx, s, phase, func() error {
		if s.Spec.Strategy == stack.Recreate {
			if err := d.makeWay(ctx, s.Spec.Name); err != nil {
				return err
			}
		}
		if s.Spec.Database() != nil {
			if err := d.prepareData(ctx, s); err != nil {
				return err
			}
		}
		if err := d.gen.bringUp(ctx, s, true); err != nil {
			return err
		}
		return d.record(ctx, func(st *stack.Stack) stack.Event { return d.gen.ready(st, s) })
	})
}

// record records an event of the deploy, and how far the deploy is.
func (d *deployment) record(ctx context.Context, event func(*stack.Stack) stack.Event) error {
	_, err := d.gen.runner.update(ctx, func(st *stack.Stack) ([]stack.Event, error) {
		if err := st.Progressed(d.gen.made.Attempt, d.gen.progress.current()); err != nil {
			return nil, err
		}
		return []stack.Event{event(st)}, nil
	})
	return err
}

// makeWay ends the old process if a service cannot share its data with it.
func (d *deployment) makeWay(ctx context.Context, service string) error {
	var halted string
	var err error
	if d.oldServes() {
		halted, err = d.halt(ctx, service)
	} else {
		err = d.gen.runner.awaitFallen(ctx)
	}
	if err != nil {
		return err
	}
	return d.stopOthers(ctx, service, halted)
}

// stopOthers ends the processes of a service that other generations still run, except
// the halted container: a replaced process or an earlier generation may be finishing its
// requests, and a fault of the host may have kept the server from adopting some.
func (d *deployment) stopOthers(ctx context.Context, service, halted string) error {
	containers, err := d.gen.cfg.Engine.Containers(ctx, engine.Key{Stack: d.gen.runner.id, Service: service})
	if err != nil {
		return err
	}
	others := containersOf(containers, func(number int) bool { return number != d.gen.made.Number })
	others = slices.DeleteFunc(others, func(c engine.Container) bool { return c.ID == halted })
	if len(others) == 0 {
		return nil
	}
	if err := d.noteHalt(ctx, service); err != nil {
		return err
	}
	return d.gen.runner.sup.stopAll(ctx, others)
}

// noteHalt records that the process of a service is being stopped. It runs before the
// engine is asked, so that the next server knows.
func (d *deployment) noteHalt(ctx context.Context, service string) error {
	_, err := d.gen.runner.update(ctx, func(st *stack.Stack) ([]stack.Event, error) {
		st.Halt(service)
		return nil, nil
	})
	return err
}

// oldServes reports whether there is an old generation and it has not fallen since.
func (d *deployment) oldServes() bool { return d.old != nil && d.gen.runner.serving() == d.old }

// halt ends the old process of a service, if it has one, and keeps its container, whose
// id it returns: it can be started again.
func (d *deployment) halt(ctx context.Context, service string) (container string, err error) {
	p := d.old.unwatch(service)
	if p == nil {
		return "", nil
	}
	d.mu.Lock()
	d.halted = append(d.halted, p)
	d.mu.Unlock()
	d.old.setTarget(service, nil)
	d.gen.runner.drainAll(d.old.republish(d.gen.st))
	if err := d.noteHalt(ctx, service); err != nil {
		return "", err
	}
	if err := d.gen.cfg.Engine.Stop(ctx, p.id); err != nil {
		return "", err
	}
	p.awaitLog(ctx)
	failpoint.Here("old-halted")
	return p.id, ctx.Err()
}

// switchOver sends the traffic to the generation and records that it is live. The old
// one finishes the requests that it has.
func (d *deployment) switchOver(ctx, superseded context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	failpoint.Here("all-healthy")
	done, before := d.retrySwitch(ctx, superseded)
	if d.inDoubt {
		d.gen.runner.removeSource(before)
	}
	if done.err != nil {
		return done.err
	}
	d.gen.progress.end()
	d.takeKept()
	d.gen.watchAll()
	row := *done.st
	if done.was == nil { // an earlier try took effect: much may have happened since
		for _, p := range d.gen.allProcesses() {
			p.poke()
		}
		row.Attempt = d.gen.made.Attempt // what a later one makes is not this one's to remove
	}
	d.gen.runner.goAside(func() {
		if d.old != nil {
			d.old.retire(done.drained, &row)
			return
		}
		d.gen.runner.drainAll(done.drained) // of a generation that was being brought back
		d.gen.runner.removeSource(before)
		if row.Generation.Number > 1 {
			d.gen.runner.removeEarlier(d.gen.runner.ctx, &row)
		}
	})
	d.gen.log.Info("stack is live", "generation", done.st.Generation.Number)
	return nil
}

// retrySwitch makes the generation the served one, and tries until the database works. A
// try that fails leaves the routes as they were. Before each it checks that every process
// still runs: one may have ended while others were brought up, or while the database did
// not work. While an earlier one may have taken effect, it only finds that out. It returns the
// source of the generation before.
func (d *deployment) retrySwitch(ctx, superseded context.Context) (done outcome, before stack.Source) {
	deployed := func(st *stack.Stack) ([]stack.Event, error) {
		if d.inDoubt {
			return nil, errNotSwitched
		}
		if st.Attempt != d.gen.made.Attempt {
			return nil, errSuperseded
		}
		before = st.Generation.Source
		for _, service := range d.unlayered {
			st.Keep(service, stack.Layer{})
		}
		d.useNewData(st)
		return st.Deployed(d.gen.made, d.gen.cfg.URLs, stack.Now())
	}
	r := d.gen.runner
	var tries store.Tries
	try := func() error {
		until := ctx
		if tries.InDoubt != "" {
			until = r.settling()
			d.dropEnded(until)
		} else if done.err = d.untilSuperseded(ctx, superseded, d.stillHasAll); done.err != nil {
			return nil
		}
		done = r.byLoop(until, func(l *loop) outcome {
			if tries.InDoubt == "" && !d.keepsAll(l) {
				return outcome{err: errFell}
			}
			d.gen.before.Store(d.old)
			return l.switchOrReturn(until, &tries, d.gen, "live-committed", deployed)
		})
		d.inDoubt = tries.InDoubt != ""
		return done.err
	}
	_ = r.retryStore(ctx, try) // the error is that of the last outcome
	if d.inDoubt {
		_ = r.retryStore(r.settling(), try)
	}
	r.doubtful.Store(d.inDoubt)
	return done, before
}

// dropEnded leaves out of the routes what does not run any more: its address may be another
// process's.
func (d *deployment) dropEnded(ctx context.Context) {
	_ = sideBySide(d.gen.allProcesses(), func(p *process) error {
		if c, err := p.look(ctx); err == nil && !c.Running {
			d.gen.setTarget(p.service.Spec.Name, nil)
		}
		return nil
	})
}

// errNotSwitched is why a switch is tried again of which it is known now that it did not take
// effect.
var errNotSwitched = errors.New("the change did not take effect")

// stillHasAll returns once every process runs that the generation needs, and an error if one
// has ended.
func (d *deployment) stillHasAll(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := d.awaitAllKept(ctx); err != nil {
		return err
	}
	return sideBySide(d.gen.allProcesses(), func(p *process) error { return p.stillRuns(ctx) })
}

// retire lets the open requests of a generation finish, ends it and removes all of it
// that the next one has not taken over.
func (g *generation) retire(targets []*proxy.Target, row *stack.Stack) {
	g.unwatchAll()
	g.runner.drainAll(targets)
	if g.runner.ctx.Err() != nil {
		return // the stack is deleted, or the server stops: whoever comes next removes it
	}
	failpoint.Here("old-drained")
	g.runner.removeSource(g.made.Source) // its sites may have served files of it
	log := g.log.With("generation", g.made.Number)
	g.runner.sup.finishOnEngine(g.runner.ctx, log, "old generation not removed; the next start tries again", func() error {
		err := g.endAll(g.runner.ctx)
		failpoint.Here("old-ended")
		return errors.Join(err, g.discard(context.WithoutCancel(g.runner.ctx), g.notIn(row)))
	})
}

// undo ends a deploy that failed: the stack serves its old generation again, or is
// failed. It returns false if the end could not be recorded.
func (d *deployment) undo(ctx context.Context, cause error) bool {
	if d.oldServes() {
		if err := d.rollBack(ctx); err != nil {
			return ctx.Err() == nil && d.rollbackFailed(ctx, cause, err)
		}
	}
	return d.gen.runner.recordDeployFailed(ctx, d.gen.made.Attempt, d.gen.progress.current(), d.withAdvice(cause))
}

// rollBack brings back the old processes that were stopped, each after those that it depends on:
// some programs end if they cannot connect. One may still be on its way to its end, since the
// deploy may have failed meanwhile: it is awaited first.
func (d *deployment) rollBack(ctx context.Context) error {
	return d.old.inOrder(ctx, func(ctx context.Context, s *stack.Service) error {
		i := slices.IndexFunc(d.halted, func(p *process) bool { return p.service.Spec.Name == s.Spec.Name })
		if i < 0 {
			return nil
		}
		p := d.halted[i]
		if _ = p.awaitDatabases(ctx); ctx.Err() != nil { // one that goes on may be coming back from a crash
			return ctx.Err()
		}
		if err := d.gen.runner.sup.retryEngine(ctx, func() error { return p.stopAndRestart(ctx) }); err != nil {
			return err
		}
		failpoint.Here("half-rolled-back")
		d.old.republish(d.gen.st)
		p.watch()
		return d.old.recordReady(ctx, p.service)
	})
}

// recordDeployFailed records that an attempt failed, and where, zero if only the row says
// that; a live stack stays live. It returns false if that could not be recorded. For one
// that is superseded there is nothing to record.
func (r *runner) recordDeployFailed(ctx context.Context, attempt int, at stack.Progress, cause error) bool {
	failpoint.Here("deploy-failed")
	reason := r.explain(cause)
	change := func(st *stack.Stack) ([]stack.Event, error) {
		if st.Attempt != attempt {
			return nil, errSuperseded
		}
		if at != (stack.Progress{}) {
			st.LastDeploy.Progress = at
		}
		return st.DeployFailed(reason, stack.Now())
	}
	st, err := r.updateByLoop(ctx, change, func(_ *loop, st *stack.Stack) {
		failpoint.Here("failure-committed")
		if st.Status == stack.Failed {
			r.route(st, nil)
		}
	})
	if errors.Is(err, errSuperseded) {
		return true
	}
	if err != nil {
		r.log.Error("failed deploy not recorded", "error", errors.Join(err, cause))
		return false
	}
	if st.Status == stack.Failed {
		_ = r.awaitFallen(ctx) // it uses the network; if ctx ends, whoever ended it removes that
		r.removeNetworks(ctx, st)
		r.removeEarlier(ctx, st)
	}
	return true
}

// rollbackFailed ends a stack whose old generation did not come back after a deploy
// that failed for the given cause. It returns false if that could not be recorded.
func (d *deployment) rollbackFailed(ctx context.Context, cause, backErr error) bool {
	reason := d.old.notBroughtBack(cause, backErr)
	err := d.gen.runner.fail(ctx, d.old, func(st *stack.Stack) ([]stack.Event, error) {
		superseded, fell := st.Attempt != d.gen.made.Attempt, st.Status == stack.Building // meanwhile
		switch {
		case superseded && fell:
			return nil, nil
		case superseded:
			return st.RestoreFailed(reason)
		}
		st.LastDeploy.Progress = d.gen.progress.current()
		if fell {
			return st.DeployFailed(reason, stack.Now())
		}
		return st.RollbackFailed(reason, stack.Now())
	})
	if err != nil {
		d.gen.log.Error("failed rollback not recorded", "error", errors.Join(err, cause, backErr))
		return false
	}
	return true
}

// notBroughtBack says why a deploy failed and why the generation that served before did
// not come back.
func (g *generation) notBroughtBack(cause, backErr error) string {
	return fmt.Sprintf("%s\nGeneration %d, which served before, could not be brought back: %s", g.runner.explain(cause), g.made.Number, g.runner.explain(backErr))
}

// fail records by a change of the row that a stack has failed, and that it serves nothing
// any more, and ends its processes, those of the generation g first.
func (r *runner) fail(ctx context.Context, g *generation, change func(*stack.Stack) ([]stack.Event, error)) error {
	done := r.retryByLoop(ctx, func(l *loop, tries *store.Tries) outcome {
		return l.switchOrReturn(ctx, tries, nil, "failure-committed", change)
	})
	if done.err != nil {
		return done.err
	}
	cut(done.drained)
	r.takeDown(ctx, done.st, g)
	return nil
}

// takeDown ends the processes of a failed stack, those of the generation g first.
// Images, sites and data stay, so that it can be brought back.
func (r *runner) takeDown(ctx context.Context, st *stack.Stack, g *generation) {
	r.sup.finishOnEngine(ctx, r.log, "failed stack not stopped; the next start tries again", func() error {
		return errors.Join(g.endAll(ctx), r.sup.stopStack(ctx, st))
	})
	failpoint.Here("half-taken-down")
	r.removeNetworks(ctx, st)
}

// explain returns what the owner reads of an error: its own text if the owner can fix
// it, otherwise that the source is not to blame.
func (r *runner) explain(err error) string {
	if own, ok := errors.AsType[*stack.Error](err); ok {
		return own.Detail
	}
	r.log.Error("work on a stack failed for a reason of the host", "error", err)
	if errors.Is(err, hostfault.NoSpace) || errors.Is(err, engine.ErrNoSpace) || errors.Is(err, engine.ErrNoRoom) {
		return "the disk of the host is full; this is not the fault of your source: try again later, or tell the operator"
	}
	if errors.Is(err, builder.ErrNoBase) {
		return "the host could not prepare the runtime; this is not the fault of your source: try again later, or tell the operator"
	}
	return "the host could not finish the work; this is not the fault of your source: try again in a minute"
}
