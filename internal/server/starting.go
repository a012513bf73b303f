package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// answerStarting answers every request with 503, so that callers do not hang while the
// server waits for what it needs; at the admin address, /readyz says what that is. After
// stop the addresses are bound as before, and nobody answers at them.
func (s *Server) answerStarting(need string) (stop func()) {
	s.manager.ready("waiting for "+need, waits)
	stops := []func(){s.answerMeanwhile(s.listener, s.certificates.Clone(), starting(need))}
	stop = func() {
		for _, stop := range slices.Backward(stops) {
			stop()
		}
	}
	if s.plainListener != nil {
		stops = append(stops, s.answerMeanwhile(s.plainListener, nil, starting(need)))
	}
	if s.adminListener == nil {
		return stop
	}
	mux := http.NewServeMux()
	mux.Handle("GET /readyz", s.notReady(need))
	mux.Handle("/", starting(need))
	stops = append(stops, s.answerMeanwhile(s.adminListener, nil, mux))
	return stop
}

// answerMeanwhile has a handler answer at a listener until stop.
func (s *Server) answerMeanwhile(listener net.Listener, secure *tls.Config, handler http.Handler) (stop func()) {
	srv := &http.Server{
		Handler:           handler,
		TLSConfig:         secure,
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	srv.SetKeepAlivesEnabled(false) // the next request may be for the server itself
	address := lent{listener.(*net.TCPListener)}
	var serving sync.WaitGroup
	serving.Go(func() {
		if srv.TLSConfig == nil {
			_ = srv.Serve(address) // until stop
			return
		}
		_ = srv.ServeTLS(address, "", "")
	})
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			_ = srv.Close() // what is left are connections without a request
		}
		serving.Wait()
		_ = address.SetDeadline(time.Time{}) // fails on a closed listener only
	}
}

// starting answers that the server waits for something.
func starting(need string) http.Handler {
	return unavailable("the server is starting and waits for " + need)
}

// unavailable answers that the server cannot answer now, and why.
func unavailable(why string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "5")
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintf(w, "{\"detail\": \"%s; try again in a few seconds\"}\n", why)
	})
}

// lent is a listener that stays open when the server that uses it closes it.
type lent struct{ *net.TCPListener }

// Close interrupts a call of Accept.
func (l lent) Close() error { return l.SetDeadline(time.Unix(1, 0)) }
