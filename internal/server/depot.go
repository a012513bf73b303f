package server

import (
	"context"

	"github.com/berth-host/berth/internal/builder"
	"github.com/berth-host/berth/internal/depot"
)

// checkRegistry warns of a registry that does not answer: all but the start of a new node goes
// on without.
func (s *Server) checkRegistry(ctx context.Context) {
	if s.registry == nil {
		return
	}
	if s.cfg.Registry.Exposed() {
		s.log.Warn("BERTH_REGISTRY has no TLS, so credentials and images can be read and changed on the way; use https://", "registry", s.cfg.Registry.Host)
	}
	if err := s.registry.Check(ctx); err != nil {
		s.log.Warn("the registry cannot be used now; stacks run, and what it lacks is pushed later", "error", err)
	}
}

// openDepot creates the depot without starting it, and returns it for the builder; nil
// without a registry.
func (s *Server) openDepot() builder.Bases {
	if s.registry == nil {
		return nil
	}
	s.depot = depot.New(depot.Config{Registry: s.registry, Engine: s.driver, Store: s.store, Node: s.node(), Log: s.log})
	return s.depot
}

// startDepot begins to push, until the server closes.
func (s *Server) startDepot() {
	if s.depot == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.depot.Run(ctx)
	}()
	s.endDepot = func() { cancel(); <-done }
}
