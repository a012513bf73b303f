package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/berth-host/berth/internal/builder"
	"github.com/berth-host/berth/internal/stack"
)

// admin is the listener for operators. It has no authentication, so only operators must
// be able to reach its address.
type admin struct {
	listener net.Listener
	http     *http.Server
}

// openAdmin binds the admin address, if there is one.
func (s *Server) openAdmin() error {
	if s.cfg.AdminListen == "" {
		return nil
	}
	listener, err := net.Listen("tcp", s.cfg.AdminListen)
	if err != nil {
		return fmt.Errorf("%s: %w; set it to another address, or to an empty value to turn metrics off", adminListen, err)
	}
	s.admin = &admin{listener: listener, http: &http.Server{
		Handler:           s.adminRoutes(),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}}
	return nil
}

func (s *Server) adminRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.metrics.Handler())
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

func (a *admin) serve() error { return a.http.Serve(a.listener) }

// close ends the listener and its connections.
func (a *admin) close() error {
	err := a.http.Close()
	_ = a.listener.Close() // again where it was served; a server that never ran does not know it
	return err
}

// recorded returns a function that counts events; nil for a program without metrics.
func (s *Server) recorded() func(stack.EventType) {
	if s.metrics == nil {
		return nil
	}
	return func(kind stack.EventType) { s.metrics.Event(string(kind)) }
}

// watch sets what the metrics ask for when they are read.
func (s *Server) watch(builder *builder.Builder) {
	s.metrics.WatchQueue(builder.Queue)
	statuses := []string{string(stack.Building), string(stack.Live), string(stack.Failed), string(stack.Expired)}
	s.metrics.WatchStacks(statuses, func(ctx context.Context) (map[string]int, error) {
		counts, err := s.store.Counts(ctx)
		named := map[string]int{}
		for status, n := range counts {
			named[string(status)] = n
		}
		return named, err
	})
}
