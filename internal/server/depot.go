package server

import (
	"context"
	"fmt"

	"github.com/berth-host/berth/internal/builder"
	"github.com/berth-host/berth/internal/depot"
)

// openRegistry opens the registry, if there is one. It refuses a new node that cannot use it.
func (s *Server) openRegistry(ctx context.Context) (err error) {
	if s.registry, err = s.cfg.openRegistry(); s.registry == nil || err != nil || !s.isNewNode() {
		return err
	}
	if err := s.registry.Check(ctx); err != nil {
		return fmt.Errorf("BERTH_REGISTRY: a new node needs the registry when it starts first, and cannot use it: %w", err)
	}
	return nil
}

// isNewNode reports whether this is a node whose data directory belongs to no installation
// yet.
func (s *Server) isNewNode() bool { return s.cfg.InCluster() && !exists(s.dir().Instance()) }

// checkRegistry warns of a registry that does not answer: all but the first start of a new
// node goes on without.
func (s *Server) checkRegistry(ctx context.Context) {
	if s.registry == nil {
		if s.cfg.InCluster() {
			s.log.Warn("without a registry no stack can move or be taken over, and every node builds its own base images; set BERTH_REGISTRY on all nodes")
		}
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
