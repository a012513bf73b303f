package supervisor

import (
	"context"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/pause"
)

// onExit pokes the processes that may have ended, until the stream breaks.
func (s *Supervisor) onExit(ended <-chan engine.End, broken <-chan error) {
	for {
		select {
		case end := <-ended:
			s.pokeContainer(end.Key.Stack, end.ID)
		case err := <-broken:
			if s.ctx.Err() == nil {
				s.cfg.Log.Warn("the engine's events broke off", "error", err)
			}
			return
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *Supervisor) pokeContainer(stackID, containerID string) {
	r := s.lookup(stackID)
	if r == nil {
		return
	}
	g := r.serving()
	if g == nil {
		return
	}
	for _, p := range g.allProcesses() {
		if p.id == containerID {
			p.poke()
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

// checkAll pokes every watched process that does not run. If the engine does not
// answer, it does nothing: the stream of events breaks as well.
func (s *Supervisor) checkAll() {
	ctx, cancel := context.WithTimeout(s.ctx, engineAnswer)
	defer cancel()
	containers, err := s.cfg.Engine.Containers(ctx, engine.Key{})
	if err != nil {
		return
	}
	running := map[string]bool{}
	for _, c := range containers {
		running[c.ID] = c.Running
	}
	for _, r := range s.everyRunner() {
		if g := r.serving(); g != nil {
			for _, p := range g.allProcesses() {
				if !running[p.id] {
					p.poke()
				}
			}
		}
	}
}
