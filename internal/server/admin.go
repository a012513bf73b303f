package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/berth-host/berth/internal/metrics"
	"github.com/berth-host/berth/internal/stack"
)

// bindAdmin binds the admin address, if there is one.
func (s *Server) bindAdmin() (err error) {
	if s.cfg.AdminListen == "" {
		return nil
	}
	if s.adminListener, err = s.listen(fileAdmin, s.cfg.AdminListen); err != nil {
		return fmt.Errorf("%s: %w; set it to another address, or to an empty value to turn metrics off", adminListen, err)
	}
	return nil
}

// openAdmin creates the server for operators. It has no authentication, so only operators
// must be able to reach its address.
func (s *Server) openAdmin() {
	s.admin = &http.Server{
		Handler:           s.adminRoutes(),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

func (s *Server) adminRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.metrics.Handler(s.asked()))
	mux.HandleFunc("GET /readyz", s.ready)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// asked returns what the metrics ask for when they are read.
func (s *Server) asked() metrics.Asked {
	asked := metrics.Asked{
		Version:  version(),
		Builds:   s.builder.Queue,
		Statuses: []string{string(stack.Building), string(stack.Live), string(stack.Failed), string(stack.Expired)},
		Stacks: func(ctx context.Context) (map[string]int, error) {
			counts, err := s.store.Counts(ctx)
			named := map[string]int{}
			for status, n := range counts {
				named[string(status)] = n
			}
			return named, err
		},
	}
	if s.cluster != nil {
		asked.Nodes = s.cluster.Counts
	}
	return asked
}
