package supervisor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/site"
	"github.com/berth-host/berth/internal/stack"
)

// take puts a stack of an earlier server under supervision, and serves what runs of it, if the
// node was cut off cuts times when both were read and is not since. begin has the rest done,
// beside all else.
func (s *Supervisor) take(ctx context.Context, st *stack.Stack, there engine.Objects, cuts int) (begin func()) {
	newer := s.newerThanRow(st, there)
	if !newer.none() {
		s.warnOfNewer(st, newer)
	}
	var interrupted *stopped
	waiting, waits := s.cfg.Before.deployOf(st)
	if st.Deploying != 0 && !waits {
		interrupted = &stopped{st.Attempt, errInterrupted(st.Deploying)}
	}
	r := s.takeRunner(st, !newer.none(), interrupted)
	lost := s.lostFiles(st, newer)
	if waits {
		lost = slices.DeleteFunc(lost, func(path string) bool { return path == s.cfg.Dir.Source(st.ID, waiting.Next.Source.Folder) })
	}
	var rest func(context.Context)
	switch {
	case s.wasCutSince(cuts, r):
		r.route(st, nil)
		rest = r.comeBack
	case waits:
		rest = r.resume(ctx, st, there)
	default:
		rest = r.failLost(ctx, st, there)
	}
	first := func(l *loop) {
		// After the rest, which may bring the stack back, and before any deploy, which
		// may publish under the number of the lost build.
		l.queue(func(ctx context.Context) {
			if !r.cut.Load() { // else the stack is brought back as it is then; see Rejoined
				rest(ctx)
			}
			r.removeFiles(lost...)
		})
		if waits {
			l.queueDeploy(waiting.Next, waiting.Synced)
		}
		if s.cfg.Node == "" && st.Status != stack.Live && st.Deploying == 0 { // nobody has changed it since it was read
			l.keepTimeOf(st)
			return
		}
		l.startKeepingTime()
	}
	return func() { r.tell(first) }
}

// takeRunner is runner for a stack of an earlier server; see newRunner.
func (s *Supervisor) takeRunner(st *stack.Stack, newer bool, stopped *stopped) *runner {
	return s.findRunner(st.ID, func() *runner {
		r := newRunner(s, st.ID, st.Epoch, newer, stopped)
		r.note(st)
		return r
	})
}

// failLost fails a lost build and resumes the stack; if the database takes no write
// now, later, in the returned rest. The lost build of a live stack is failed once the
// generation before serves again.
func (r *runner) failLost(ctx context.Context, st *stack.Stack, there engine.Objects) (rest func(context.Context)) {
	if st.Deploying == 0 || st.Status == stack.Live {
		return r.resume(ctx, st, there)
	}
	failed, err := r.change(ctx, r.endStopped)
	if err != nil {
		r.route(st, nil)
		return func(ctx context.Context) { r.resumeLate(ctx, there) }
	}
	r.stopped = nil
	return r.resume(ctx, failed, there)
}

// lostFiles returns the sources and sites that a lost build left of a stack. While there
// are newer generations, one of the sources may be theirs.
func (s *Supervisor) lostFiles(st *stack.Stack, newer leftovers) []string {
	lost := s.leftovers(st, engine.Objects{}).files
	if newer.none() {
		lost = append(lost, s.cfg.Dir.Sources(st.ID, st.Generation.Source.Folder)...)
	}
	return lost
}

// removeFiles removes sources and sites.
func (r *runner) removeFiles(paths ...string) {
	if err := r.sup.removeFolders(paths...); err != nil {
		r.log.Warn("files of a build not removed; the next start tries again", "error", err)
	}
}

// resumeLate resumes a stack whose lost build has not been failed yet.
func (r *runner) resumeLate(ctx context.Context, there engine.Objects) {
	st, err := r.update(ctx, r.endStopped)
	if err != nil {
		return // the stack is deleted, or the job was stopped
	}
	r.stopped = nil
	r.resume(ctx, st, there)(ctx)
}

// resume puts a stack that builds nothing under supervision, and returns the rest of
// the work.
func (r *runner) resume(ctx context.Context, st *stack.Stack, there engine.Objects) (rest func(context.Context)) {
	due := st.Due(stack.Now())
	if st.Status == stack.Live && !due {
		return r.adopt(ctx, st, there)
	}
	r.route(st, nil)
	if due {
		return func(context.Context) {} // keepTime makes it expire
	}
	// Not before the server serves: a process may take its time to stop.
	return func(ctx context.Context) {
		r.removeLeftovers(ctx, st, there)
		switch {
		case st.Restoring():
			r.restore(ctx)
		case st.Status == stack.Expired:
			r.keepData(ctx)
		case st.Status == stack.Failed:
			_ = r.restoreBackups(ctx, st) // it has said why not, and the next deploy tries again
		}
	}
}

// adopt serves a live stack again after the server was restarted. Services whose
// containers still run are routed at once, and their processes are not touched. It returns the
// rest of the work; on one machine that includes the record that the stack is restored, since
// those of many stacks would keep the server waiting for its disk.
func (r *runner) adopt(ctx context.Context, st *stack.Stack, there engine.Objects) (rest func(context.Context)) {
	g := r.generation(st, st.Generation)
	if err := g.adoptAll(there); err != nil {
		r.route(st, nil)
		return func(ctx context.Context) { r.endAttempt(ctx, g, err, r.recoverStack) }
	}
	r.route(st, g)
	g.unnoticed = r.cfg.Before != nil
	complete := g.isComplete()
	later := complete && !g.unnoticed && r.cfg.Node == ""
	if later {
		r.byLoop(ctx, func(*loop) outcome { r.served.Store(g); return outcome{} })
	}
	served := complete && !later && g.serveAgain(ctx, false) == nil
	if served && r.sup.leftovers(st, there).none() && len(g.reopened) == 0 {
		return func(context.Context) {}
	}
	return func(ctx context.Context) {
		if later {
			served = g.serveAgain(ctx, false) == nil
		}
		r.removeLeftovers(ctx, st, there)
		if !served {
			r.bringBack(ctx, g)
		}
		g.readSites()
	}
}

// adoptAll makes targets of all services that are there, on the network that is there.
func (g *generation) adoptAll(there engine.Objects) error {
	g.network = networkOf(g.st, there)
	for i := range g.made.Services {
		s := &g.made.Services[i]
		if err := g.adoptService(s, there.Container(g.processName(s))); err != nil {
			return err
		}
	}
	return nil
}

// adoptService makes a target of a service that is there: of a site, or of a container
// that runs. A container that an earlier server may have asked to end is left out; it
// is awaited and started again.
func (g *generation) adoptService(s *stack.Service, c engine.Container) error {
	if s.Spec.IsStatic() {
		opened, err := g.openSite(s, site.Reopen)
		if err == nil {
			g.reopened[s] = opened
		}
		return err
	}
	if !c.Running || c.Paused || s.Ending() {
		return nil
	}
	p := g.newProcess(s, c.ID, s.Spec.Name)
	if err := p.adopt(c); err != nil {
		return err
	}
	g.setProcess(p)
	p.becomeTarget()
	return nil
}

// isUp reports whether a service has what serves it: a target, or the process of a database.
func (g *generation) isUp(s *stack.Service) bool {
	if s.Spec.Database() != nil {
		return g.process(s.Spec.Name) != nil
	}
	return g.target(s.Spec.Name) != nil
}

// isComplete reports whether every service is up.
func (g *generation) isComplete() bool {
	for i := range g.made.Services {
		if !g.isUp(&g.made.Services[i]) {
			return false
		}
	}
	return true
}

// bringBack starts the missing services of a live stack from their images, and records
// that the stack serves again.
func (r *runner) bringBack(ctx context.Context, g *generation) {
	err := g.inOrder(ctx, func(ctx context.Context, s *stack.Service) error {
		if g.isUp(s) {
			return nil
		}
		return g.bringUpBuilt(ctx, s)
	})
	if err == nil {
		err = g.serveAgain(ctx, true)
	}
	r.endAttempt(ctx, g, err, r.recoverStack)
}

// markLost notes in the log how the process of a service ended that nobody watched.
func (g *generation) markLost(ctx context.Context, s *stack.Service) {
	if s.Spec.IsStatic() {
		return
	}
	if c, err := g.cfg.Engine.Look(ctx, g.processName(s)); err == nil {
		g.newProcess(s, c.ID).markEnd(ctx, false)
	}
}

// bringUpBuilt is bringUp for a service of a generation that has been served before.
func (g *generation) bringUpBuilt(ctx context.Context, s *stack.Service) error {
	if err := g.checkData(ctx, s); err != nil {
		return err
	}
	g.markLost(ctx, s)
	err := g.bringUp(ctx, s, false)
	if s.Copied && stack.KindOf(err) == stack.Conflict {
		g.log.Error("kept source of a stack is missing or damaged", "service", s.Spec.Name, "error", err)
		return serviceError(s, "its source on this host is missing or damaged; upload the source again")
	}
	if errors.Is(err, engine.ErrNotFound) {
		if there, lookErr := g.cfg.Engine.HasImage(ctx, s.Image); lookErr == nil && !there {
			return g.bringUpAgain(ctx, s)
		}
	}
	if g.refused(ctx, s, err, g.tryEngine) {
		g.log.Error("image or data of a stack is broken", "service", s.Spec.Name, "error", err)
		return serviceError(s, "its image or its data on this host is broken: it could not be started in %d attempts; upload the source again", maxRefusals)
	}
	return err
}

// endAttempt ends an attempt to bring a stack back. If the engine went away meanwhile,
// there is another attempt once it answers; after another fault of the host, after a
// pause.
func (r *runner) endAttempt(ctx context.Context, g *generation, err error, attempt func(context.Context)) {
	switch {
	case err == nil:
	case ctx.Err() == nil && r.sup.engineLeft(ctx, g.absence):
		g.letGo()
		if r.sup.awaitEngine(ctx) {
			attempt(ctx)
		}
	case ctx.Err() == nil && mayPass(err):
		g.letGo()
		r.log.Warn("stack not brought back for a fault of the host; trying again", "generation", g.made.Number, "error", err)
		r.startLater(func(ctx context.Context) {
			if r.serving() == nil {
				attempt(ctx)
			}
		})
	default:
		r.restoreFailed(ctx, g, err)
	}
}

// readSites reads the trees of the sites that an adopted generation serves. It does so
// beside the job, since their turn may be long in coming. If one is not what was
// published, the stack fails.
func (g *generation) readSites() {
	if g.runner.serving() != g {
		return
	}
	g.runner.work.Go(func() {
		for s, opened := range g.reopened {
			if err := g.readSite(s, opened); err != nil {
				g.failSite(s, err)
				return
			}
		}
	})
}

// readSite reads the tree of a site when it is its turn, and again after a fault of the
// host. It returns why the tree cannot be read, or nil once the generation is no longer
// served, since its sites are closed then.
func (g *generation) readSite(s *stack.Service, opened *site.Site) error {
	for {
		err := g.readInTurn(opened)
		if err == nil || g.runner.ctx.Err() != nil || g.runner.serving() != g {
			return nil
		}
		if !isOfHost(err) {
			return err
		}
		g.log.Warn("site not read for a fault of the host; trying again", "service", s.Spec.Name, "error", err)
		pause.For(g.runner.ctx, hostRetry)
	}
}

func (g *generation) readInTurn(opened *site.Site) error {
	if err := g.runner.sup.reading.Acquire(g.runner.ctx, 1); err != nil {
		return err
	}
	defer g.runner.sup.reading.Release(1)
	return opened.Read(g.runner.ctx)
}

// failSite fails the stack for a site that cannot be read, once nothing else is being
// done with it, if the generation is still served then.
func (g *generation) failSite(s *stack.Service, err error) {
	fail := func(ctx context.Context) {
		if g.runner.serving() == g {
			g.runner.restoreFailed(ctx, g, g.attributeSite(s, err))
		}
	}
	for !g.runner.startIdle(fail) && pause.For(g.runner.ctx, hostRetry) {
	}
}

// hostRetry is how long to wait before trying again what a fault of the host prevented.
const hostRetry = 5 * time.Second

// startLater starts a job after a pause, once nothing else is being done with the
// stack.
func (r *runner) startLater(job func(context.Context)) {
	r.sup.jobs.Go(func() {
		for pause.For(r.ctx, hostRetry) && !r.startIdle(job) {
		}
	})
}

// serveAgain routes to the generation and records that it serves again, and with that
// the end of a deploy that was stopped. With untilStored, it tries until the database
// works, otherwise once.
func (g *generation) serveAgain(ctx context.Context, untilStored bool) error {
	drained, err := g.switchBack(ctx, untilStored)
	if err != nil {
		return err
	}
	g.runner.stopped = nil
	g.runner.drainAll(drained)
	g.watchAll()
	return nil
}

func (g *generation) switchBack(ctx context.Context, untilStored bool) (drained []*proxy.Target, err error) {
	try := func() error {
		done := g.runner.byLoop(ctx, func(l *loop) outcome {
			if g.isAsRecorded() {
				return outcome{drained: l.serveUnnoticed(g)}
			}
			return l.switchTo(ctx, &g.restored, g, "restore-committed", g.recordServing)
		})
		drained = append(drained, done.drained...) // of each try, since the routes stay
		return done.err
	}
	if untilStored {
		err = g.runner.retryStore(ctx, try)
	} else {
		err = try()
	}
	return drained, err
}

// isAsRecorded reports whether the generation serves as the row says, and nobody is to be told.
func (g *generation) isAsRecorded() bool {
	stopped := g.runner.awaitsEnd(g.st) || slices.ContainsFunc(g.made.Services, func(s stack.Service) bool { return s.Status != stack.Running })
	return g.unnoticed && !stopped && g.isComplete()
}

// serveUnnoticed makes a generation the served one and leaves the row as it is. It returns
// targets that nothing is routed to any more.
func (l *loop) serveUnnoticed(g *generation) []*proxy.Target {
	drained := l.runner.route(g.st, g)
	l.runner.served.Store(g)
	return drained
}

// recordServing records in the row that the generation serves again.
func (g *generation) recordServing(st *stack.Stack) ([]stack.Event, error) {
	stopped, err := g.runner.endStopped(st)
	if err != nil {
		return nil, err
	}
	events, err := st.Restored(g.cfg.URLs)
	if g.unnoticed {
		return stopped, err
	}
	return append(stopped, events...), err
}

// restoreFailed fails a stack that could not be brought back. If the context ended,
// that is left to whoever ended it.
func (r *runner) restoreFailed(ctx context.Context, g *generation, cause error) {
	if ctx.Err() != nil || isDeleted(cause) {
		g.letGo()
		return
	}
	r.log.Info("stack not brought back", "generation", g.made.Number, "error", cause)
	err := r.fail(ctx, g, func(st *stack.Stack) ([]stack.Event, error) {
		if r.awaitsEnd(st) {
			return st.RollbackFailed(g.notBroughtBack(r.stopped.reason, cause), stack.Now())
		}
		return st.RestoreFailed(r.explain(cause))
	})
	if err != nil {
		r.log.Error("failed restore not recorded", "error", errors.Join(err, cause))
		return
	}
	r.stopped = nil
}

// restore brings a claimed stack back from what was kept of it: data, images and sites.
// Nothing is built.
func (r *runner) restore(ctx context.Context) {
	st, err := r.get(ctx)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		r.log.Error("restore not begun", "error", err)
		return
	}
	g := r.generation(st, st.Generation)
	r.endAttempt(ctx, g, g.restoreServices(ctx), r.restore)
	g.dropRestored(ctx) // after all else: the engine creates no container while it removes an image
}

// restoreLate is restore for a stack that was claimed after its time had run out and
// before it expired. Some of its processes may run, and those of a deploy, which the
// claim ended.
func (r *runner) restoreLate(ctx context.Context) {
	r.stopped = nil
	r.sup.finishOnEngine(ctx, r.log, "stack not stopped before its restore", func() error {
		st, err := r.get(ctx)
		if err != nil {
			return err
		}
		err = r.stopServing(ctx, st)
		there, listErr := r.inventory(ctx)
		if listErr == nil {
			r.removeLeftovers(ctx, st, there)
		}
		return errors.Join(err, listErr)
	})
	r.restore(ctx)
}

// notBuilt is why a stack without a successful build cannot be brought back.
const notBuilt = "no build of the stack had succeeded when it expired, so there is nothing to bring back; upload the source again"

func (g *generation) restoreServices(ctx context.Context) error {
	if !g.st.Generation.Built() {
		return stack.NewError(stack.Conflict, strings.TrimPrefix(g.st.Error+"\n"+notBuilt, "\n"))
	}
	err := g.inOrder(ctx, func(ctx context.Context, s *stack.Service) error {
		if err := g.bringUpBuilt(ctx, s); err != nil {
			return err
		}
		failpoint.Here("service-restored")
		return g.recordReady(ctx, s)
	})
	if err != nil {
		return err
	}
	return g.serveAgain(ctx, true)
}
