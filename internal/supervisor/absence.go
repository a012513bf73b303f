package supervisor

import (
	"context"
	"log/slog"
	"time"

	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/stack"
)

// watchEngine watches the engine's events for containers that end. If the engine itself
// goes away, the stacks that lost a process are brought back once it answers: that is a
// restore, not a crash.
func (s *Supervisor) watchEngine() {
	for {
		ended, broken := s.cfg.Engine.Ended(s.ctx)
		s.onExit(ended, broken)
		if s.ctx.Err() != nil {
			return
		}
		if s.engineAccepts(s.ctx, streamRestart) && pause.For(s.ctx, streamRestart) {
			continue // only the stream ended
		}
		s.absences.Add(1)
		if !s.awaitAnswer(s.ctx, func() bool { return true }) {
			return
		}
		s.absences.Add(1)
		s.recoverStacks()
	}
}

const (
	// streamRestart is the time within which an engine that has not gone away answers
	// after its stream of events ended; no engine starts that fast.
	streamRestart = 100 * time.Millisecond
	// engineAnswer is how long the engine may take to answer a simple question.
	engineAnswer = 30 * time.Second
	// acceptance is how long it may take to accept a connection before it counts as
	// away; the question is asked again.
	acceptance = 5 * time.Second
)

// engineAccepts reports whether the engine answers on a new connection in time.
func (s *Supervisor) engineAccepts(ctx context.Context, in time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, in)
	defer cancel()
	return s.cfg.Engine.Accepts(ctx) == nil
}

// engineLeft reports whether the engine is away, or has been since absences had that
// value: then what failed or ended meanwhile is its doing.
func (s *Supervisor) engineLeft(ctx context.Context, absence int64) bool {
	return s.absences.Load() != absence || !s.engineAccepts(ctx, acceptance) || s.absences.Load() != absence
}

// retryEngine does work on the engine that can be repeated, and repeats it whenever the
// engine went away meanwhile, until ctx ends.
func (s *Supervisor) retryEngine(ctx context.Context, work func() error) error {
	for {
		absence := s.absences.Load()
		err := work()
		if err == nil || ctx.Err() != nil || !s.engineLeft(ctx, absence) || !s.awaitEngine(ctx) {
			return err
		}
	}
}

// finishOnEngine is retryEngine for a caller that goes on whatever comes of the work. An
// error is logged with the complaint, unless ctx has ended.
func (s *Supervisor) finishOnEngine(ctx context.Context, log *slog.Logger, complaint string, work func() error) {
	if err := s.retryEngine(ctx, work); err != nil && ctx.Err() == nil {
		log.Error(complaint, "error", err)
	}
}

// awaitEngine waits until the engine answers, and watchEngine knows that it does: an
// engine that went away again before that would not be blamed for what it ended. It
// returns false if ctx ends first.
func (s *Supervisor) awaitEngine(ctx context.Context) bool {
	return s.awaitAnswer(ctx, func() bool { return s.absences.Load()%2 == 0 })
}

// awaitAnswer waits until the engine answers and the condition holds. It returns false if
// ctx ends first.
func (s *Supervisor) awaitAnswer(ctx context.Context, holds func() bool) bool {
	for wait := 50 * time.Millisecond; !s.engineAccepts(ctx, engineAnswer) || !holds(); wait = min(2*wait, time.Second) {
		if !pause.For(ctx, wait) {
			return false
		}
	}
	return true
}

// recoverStacks brings back every live stack that lost a process while the engine was
// away. A deploy under way is stopped: what it would replace must serve first.
func (s *Supervisor) recoverStacks() {
	absence := s.absences.Load()
	for _, r := range s.everyRunner() {
		s.jobs.Go(func() {
			if g := r.serving(); g != nil && g.hasLostProcess(s.ctx, absence) {
				r.tell(func(l *loop) { l.recoverLost(g) })
			}
		})
	}
}

// hasLostProcess reports whether a process of the generation no longer runs after an
// absence of the engine, and takes such processes out of the routes.
func (g *generation) hasLostProcess(ctx context.Context, absence int64) bool {
	lost := false
	for _, p := range g.allProcesses() {
		c, err := p.look(ctx)
		if err == nil && c.Running {
			p.absence.Store(absence)
			continue
		}
		lost = true
		if err == nil {
			ended := p.withdraw(p.gen.target(p.service.Spec.Name))
			g.runner.sup.jobs.Go(func() { g.runner.drainAll(ended) })
		}
	}
	return lost
}

// recoverStack starts the processes of a live stack that do not run, and records one
// restore.
func (r *runner) recoverStack(ctx context.Context) {
	st, err := r.latest(ctx)
	if err != nil {
		return
	}
	if !r.owns(st) {
		r.disown()
		return
	}
	if st.Status != stack.Live {
		if r.serving() != nil { // nobody waited for the change that ended it
			r.sup.finishOnEngine(ctx, r.log, "ended stack not stopped; the next start tries again", func() error { return r.stopServing(ctx, st) })
		}
		r.failStopped(ctx)
		return
	}
	r.log.Info("bringing the stack back")
	if old := r.swapServed(nil); old != nil {
		old.letGo()
		if st, err = r.get(ctx); err != nil { // a restart may have replaced a process before that
			return
		}
	}
	g := r.generation(st, st.Generation)
	there, err := r.inventory(ctx)
	if err == nil {
		err = g.adoptAll(there)
	}
	if err != nil {
		r.endAttempt(ctx, g, err, r.recoverStack)
		return
	}
	r.drainAll(r.route(st, g))
	if r.isIdleBeside() {
		r.removeLeftovers(ctx, st, there)
	}
	r.bringBack(ctx, g)
	g.readSites()
}
