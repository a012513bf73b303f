package supervisor

import (
	"context"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/pause"
)

// onExit tells the loops of stacks which containers may have ended, until the stream
// breaks.
func (s *Supervisor) onExit(ended <-chan engine.End, broken <-chan error) {
	for {
		select {
		case end := <-ended:
			if r := s.lookup(end.Key.Stack); r != nil {
				r.noteExit(end.ID)
			}
		case err := <-broken:
			if s.ctx.Err() == nil {
				s.cfg.Log.Warn("the engine's event stream ended", "error", err)
			}
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// maxExits is how many containers of a stack may end before its loop takes note of one.
// If more end, checkAll finds the rest.
const maxExits = 64

// noteExit tells the loop that a container may have ended. It never waits.
func (r *runner) noteExit(container string) { offer(r.exits, container) }

// pokeProcess makes the watcher of a container look at it, if the container is one of the
// served generation.
func (l *loop) pokeProcess(container string) {
	if g := l.runner.serving(); g != nil {
		for _, p := range g.allProcesses() {
			if p.id == container {
				p.poke()
			}
		}
	}
}

// watchProcesses looks at all processes now and then, since events can get lost. It
// runs apart from watchEngine because it may have to wait for a silent engine.
func (s *Supervisor) watchProcesses() {
	for pause.For(s.ctx, s.cfg.CheckEvery) {
		s.checkAll()
	}
}

// checkAll tells the loops which processes of served generations do not run. If the
// engine does not answer, it does nothing: the stream of events breaks as well.
func (s *Supervisor) checkAll() {
	ctx, cancel := context.WithTimeout(s.ctx, engineAnswer)
	defer cancel()
	containers, err := s.cfg.Engine.Containers(ctx, engine.Key{})
	if err != nil {
		return
	}
	found := map[string]engine.Container{}
	for _, c := range containers {
		found[c.ID] = c
	}
	for _, r := range s.everyRunner() {
		if g := r.serving(); g != nil {
			for _, p := range g.allProcesses() {
				switch c := found[p.id]; {
				case !c.Running:
					r.noteExit(p.id)
				case c.Paused:
					r.unpauseLate(p.id)
				}
			}
		}
	}
}
