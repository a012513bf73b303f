package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/term"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/edge"
	"github.com/berth-host/berth/internal/reload"
)

// bind binds the addresses of the listeners. Connections are answered once Run serves
// them.
func (s *Server) bind() (err error) {
	if s.listener, err = s.listen(filePublic, s.cfg.Listen); err != nil {
		return fmt.Errorf("BERTH_LISTEN: %w", err)
	}
	if err := s.bindPlain(); err != nil {
		return err
	}
	return s.bindAdmin()
}

// openEdge creates the public listener's server.
func (s *Server) openEdge(key auth.Key) error {
	baseHost, err := s.baseHost(key)
	if err != nil {
		return err
	}
	if s.cfg.TLS == tlsOff && s.cfg.BaseURL.Scheme == "https" && len(s.cfg.TrustedProxies) == 0 {
		s.log.Warn("BERTH_TRUSTED_PROXIES is empty, so all clients behind the https proxy share one limit; set it to the proxy's address")
	}
	cfg := edge.Config{
		BaseHost:       s.cfg.BaseURL.Hostname(),
		AppsDomain:     s.cfg.AppsDomain,
		TrustedProxies: s.cfg.TrustedProxies,
		Routes:         s.routes,
		TLS:            s.certificates,
		StallTimeout:   s.cfg.ProxyTimeout,
		Arrived:        s.metrics.Arrival,
		Banned:         s.governing.bans.Banned,
		FastLane:       s.cfg.FastLane,
		Connected:      s.metrics.Connection,
		Conns:          s.conns,
		Log:            s.log,
	}
	s.gate = newGate(baseHost)
	cfg.API = s.gate
	s.edge = edge.NewServer(cfg)
	if s.others != nil {
		s.edgeForOthers(cfg)
	}
	return s.openRelayed(cfg)
}

// Run serves until ctx ends or a listener fails, then shuts down: it accepts no new
// requests and gives open ones the drain time; containers stay up for the next server
// to take over. It also ends once another process has taken this server's place.
func (s *Server) Run(ctx context.Context) error {
	failed := make(chan error, 8)
	if s.adminListener != nil {
		go func() { failed <- s.admin.Serve(s.adminListener) }()
	}
	go func() { failed <- s.governing.server.Serve(s.governing.listener) }()
	go func() { failed <- s.api.Serve(s.inner) }()
	go func() { failed <- s.pages.Serve(s.innerPages) }()
	go func() { failed <- s.edge.Serve(s.listener) }()
	if s.plain != nil {
		go func() { failed <- s.plain.Serve(s.plainListener) }()
	}
	if s.others != nil {
		s.others.serve(failed)
	}
	s.startDomains()
	s.log.Info("serving", "url", s.cfg.BaseURL.String(), "address", s.listener.Addr().String(), "version", version())
	s.manager.ready(s.status(), s.answers)
	s.serveRelayed(failed)
	next, err := s.untilEnd(ctx, failed)
	if next != nil {
		return s.handOver(ctx, next)
	}
	if s.reloads.end != nil {
		s.reloads.end()
	}
	s.manager.stopping(s.cfg.Drain)
	s.governing.server.StopBackups()
	return s.end(err)
}

// end ends the server; err is why, nil if it was asked to.
func (s *Server) end(err error) error {
	s.depart()
	if s.ousted.Err() != nil {
		s.cede()
		return context.Cause(s.ousted)
	}
	s.drain()
	if s.ousted.Err() != nil && err == nil {
		err = context.Cause(s.ousted)
	}
	if closeErr := s.close(); err == nil || errors.Is(err, http.ErrServerClosed) {
		err = closeErr
	}
	return err
}

// status is what systemd is told of a server that serves.
func (s *Server) status() string { return "serving " + s.cfg.BaseURL.String() }

// untilEnd serves until ctx ends, something fails, or another process is ready to take this
// server's place, which it returns.
func (s *Server) untilEnd(ctx context.Context, failed <-chan error) (next *reload.Successor, err error) {
	for {
		select {
		case <-s.reloads.asked:
			s.beginReload(ctx)
		case next := <-s.reloads.ready:
			if next != nil {
				return next, nil
			}
			s.reloads.end = nil
			s.manager.ready(s.status(), s.answers)
		case <-ctx.Done():
			s.log.Info("shutting down; open requests get time to finish", "limit", s.cfg.Drain)
			return nil, nil
		case err := <-failed:
			return nil, err
		case <-s.ousted.Done():
			return nil, context.Cause(s.ousted)
		}
	}
}

// depart says in a cluster that this node is about to stop, and moves its stacks away if the node
// is being drained. It returns early once another server has taken the node.
func (s *Server) depart() {
	if s.ousted.Err() != nil {
		return
	}
	signalled := time.Now()
	again, stop := untilSignal(s.ousted)
	defer stop()
	s.leave()
	s.awaitWord(again, signalled)
	s.moveOut(again)
}

// cede closes the server after another one has taken its node. What works on the stacks stops at
// once, since that one does so now; open requests to services get the drain time after it.
func (s *Server) cede() {
	s.gate.passOn(unavailable("another server has taken the place of this one"))
	s.supervisor.Close()
	s.webhooks.Close()
	s.endBeside()
	s.api.Release()
	s.pages.Release()
	if _, err := s.closeState(); err != nil {
		s.log.Error("not all closed", "error", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Drain)
	defer cancel()
	s.shutdown(ctx)
	if err := s.closeListeners(); err != nil {
		s.log.Error("not all listeners closed", "error", err)
	}
}

// drain ends the listeners after the open requests, or after the drain time.
func (s *Server) drain() {
	defer context.AfterFunc(s.ousted, s.supervisor.Close)()
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Drain)
	defer cancel()
	s.api.Release()
	s.pages.Release()
	s.shutdown(ctx)
}

// shutdown ends the listeners after the open requests, or when ctx ends.
func (s *Server) shutdown(ctx context.Context) {
	err := s.edge.Shutdown(ctx)
	if s.plain != nil {
		err = errors.Join(err, s.plain.Shutdown(ctx))
	}
	err = errors.Join(err, s.others.shutdown(ctx), s.routes.Drain(ctx), s.api.Shutdown(ctx), s.pages.Shutdown(ctx))
	if err != nil {
		s.log.Warn("requests cut at shutdown", "error", err)
	}
}

// close closes everything that was opened, in reverse order.
func (s *Server) close() error {
	s.endBeside()
	if s.webhooks != nil {
		s.webhooks.Close()
	}
	_, err := s.closeState()
	return errors.Join(s.closeListeners(), err)
}

// closeListeners closes what answers requests.
func (s *Server) closeListeners() error {
	var errs []error
	s.manager.stop()
	s.relayed.close()
	if s.edge != nil {
		errs = append(errs, s.edge.Close())
	}
	s.others.close()
	if s.plain != nil {
		errs = append(errs, s.plain.Close())
	}
	if s.plainListener != nil {
		_ = s.plainListener.Close() // again where it was served
	}
	if s.listener != nil {
		_ = s.listener.Close() // again where it was served
	}
	if s.admin != nil {
		errs = append(errs, s.admin.Close())
	}
	if s.adminListener != nil {
		_ = s.adminListener.Close() // again where it was served
	}
	if s.acme != nil {
		s.acme.Close()
	}
	return errors.Join(errs...)
}

// endBeside ends what goes on beside the requests and the stacks, and may be called again.
func (s *Server) endBeside() {
	if err := s.governing.close(); err != nil {
		s.log.Warn("commands of an operator cut", "error", err)
	}
	if s.endDomains != nil {
		s.endDomains()
	}
	if s.endDepot != nil {
		s.endDepot()
	}
	if s.usage != nil {
		s.usage.End()
	}
	if s.others != nil {
		s.others.stop()
	}
}

// closeState closes what works on the database and the stacks, and these, and returns what
// whoever takes this server's place is to be given.
func (s *Server) closeState() (left state, err error) {
	var errs []error
	if s.usage != nil {
		s.usage.Close()
	}
	if s.supervisor != nil {
		left.Stacks = s.supervisor.Leave()
	}
	if s.registry != nil {
		s.registry.Close()
	}
	if s.mails != nil {
		s.mails.Close()
	}
	if s.endCluster != nil {
		s.endCluster()
	}
	if s.engine != nil {
		errs = append(errs, s.engine.Close())
	}
	if s.redis != nil {
		left.Hits = s.redis.Remembered()
		errs = append(errs, s.redis.Close())
	}
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return left, errors.Join(errs...)
}

// NewLogger returns a logger that writes to f: as text on a terminal, as JSON lines
// otherwise.
func NewLogger(f *os.File) *slog.Logger {
	if term.IsTerminal(int(f.Fd())) {
		return slog.New(tint.NewTextHandler(f, nil))
	}
	return slog.New(slog.NewJSONHandler(f, &slog.HandlerOptions{ReplaceAttr: writeDuration}))
}

// writeDuration replaces a duration, which would be a number of nanoseconds, by its text.
func writeDuration(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}
