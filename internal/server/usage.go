package server

import (
	"context"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/usage"
)

// openUsage begins to record what stacks use.
func (s *Server) openUsage() {
	s.usage = usage.New(usage.Config{
		Path:      s.dir().Metrics(),
		Traffic:   s.routes.Take,
		Processes: s.processes,
		Engine:    s.driver,
		Events:    s.store.EventsSince,
		Gone:      s.isDeleted,
		Ceilings:  usage.Ceilings{Cores: s.cfg.ServiceCPUs, Memory: s.cfg.ServiceMemory},
		Log:       s.log,
	})
	s.usage.Start()
}

// processes returns the containers that are measured.
func (s *Server) processes() []usage.Process {
	serving := s.supervisor.Serving()
	all := make([]usage.Process, len(serving))
	for i, p := range serving {
		all[i] = usage.Process(p)
	}
	return all
}

// isDeleted reports whether there is no stack of an id any more.
func (s *Server) isDeleted(ctx context.Context, id string) (bool, error) {
	_, err := s.store.Get(ctx, id)
	if stack.KindOf(err) == stack.NotFound {
		return true, nil
	}
	return false, err
}
