package supervisor

import (
	"context"
	"time"

	"github.com/berth-host/berth/internal/build"
	"github.com/berth-host/berth/internal/docker"
	"github.com/berth-host/berth/internal/stack"
)

// watchEngine learns of ended containers: at once from the engine's events, and
// by looking at all of them now and then, since events may be missed. When the
// engine itself went away, what it took along is brought back once it answers:
// that is a restore, not a crash.
func (s *Supervisor) watchEngine() {
	for s.ctx.Err() == nil {
		exits, broken := s.Engine.Exits(s.ctx, s.Labels)
		s.heed(exits, broken)
		if s.ctx.Err() != nil || !s.awaitEngine() {
			return
		}
		s.recover()
	}
}

// heed pokes the processes that exits tell of, until the stream breaks.
func (s *Supervisor) heed(exits <-chan docker.Exit, broken <-chan error) {
	ticker := time.NewTicker(s.CheckEvery)
	defer ticker.Stop()
	for {
		select {
		case exit := <-exits:
			s.pokeContainer(exit.Labels[build.LabelStack], exit.ContainerID)
		case <-ticker.C:
			s.checkAll()
		case err := <-broken:
			if s.ctx.Err() == nil {
				s.Log.Warn("the engine's events broke off", "error", err)
			}
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// checkAll pokes every watched process that does not run. An engine that does
// not answer says nothing: its stream of events breaks as well.
func (s *Supervisor) checkAll() {
	ctx, cancel := context.WithTimeout(s.ctx, engineAnswer)
	defer cancel()
	containers, err := s.Engine.List(ctx, s.Labels)
	if err != nil {
		return
	}
	running := map[string]bool{}
	for _, c := range containers {
		running[c.ID] = c.Running
	}
	for _, r := range s.everyRunner() {
		if g := r.serving(); g != nil {
			for _, p := range g.all() {
				if !running[p.id] {
					p.poke()
				}
			}
		}
	}
}

// engineAnswer is how long the engine may take to answer a simple question.
const engineAnswer = 30 * time.Second

func (s *Supervisor) pokeContainer(stackID, containerID string) {
	r := s.lookup(stackID)
	if r == nil {
		return
	}
	g := r.serving()
	if g == nil {
		return
	}
	for _, p := range g.all() {
		if p.id == containerID {
			p.poke()
		}
	}
}

// awaitEngine waits until the engine answers; false when the server stops
// before.
func (s *Supervisor) awaitEngine() bool {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		ctx, cancel := context.WithTimeout(s.ctx, engineAnswer)
		err := s.Engine.Ping(ctx)
		cancel()
		if err == nil {
			return true
		}
		if !sleep(s.ctx, wait) {
			return false
		}
	}
}

// recover brings back every live stack that lost a process while the engine was
// away.
func (s *Supervisor) recover() {
	for _, r := range s.everyRunner() {
		s.jobs.Go(func() {
			r.settle() // a deploy under way notices by itself
			if g := r.serving(); g != nil && g.lost(s.ctx) {
				r.start(r.recover)
			}
		})
	}
}

// lost tells whether a process of the generation does not run.
func (g *generation) lost(ctx context.Context) bool {
	for _, p := range g.all() {
		if c, err := g.Engine.Inspect(ctx, p.id); err != nil || !c.Running {
			return true
		}
	}
	return false
}

// recover starts what the engine's restart ended, and records one restore.
func (r *runner) recover(ctx context.Context) {
	st, err := r.get(ctx)
	if err != nil || st.Status != stack.Live {
		return
	}
	r.Log.Info("the engine was restarted; bringing the stack back", "stack", r.id)
	if old := r.swap(nil); old != nil {
		old.release()
	}
	g := r.generation(st, st.Generation, st.Services)
	there, err := r.list(ctx, r.labels(st, ""))
	if err == nil {
		err = g.adoptAll(there[st.ID])
	}
	if err != nil {
		r.restoreFailed(ctx, g, err)
		return
	}
	r.drainAll(r.route(st, g))
	r.bringBack(ctx, g)
}
