package edge

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/berth-host/berth/internal/wire"
)

// Standing is what is known of a host on the plain listener.
type Standing int

// The standings of a host.
const (
	Unknown   Standing = iota // nobody knows it
	Uncertain                 // it is served once there is a certificate
	Certain                   // it has a certificate
)

// PlainConfig configures a PlainServer.
type PlainConfig struct {
	Port string // of the addresses to redirect to; "" for the default of https
	// Standing returns what is known of a host, in lower case without port and final dot.
	Standing func(ctx context.Context, host string) Standing
	// Challenge answers a certificate authority, and reports whether the request was
	// from one; nil if there is none.
	Challenge func(w http.ResponseWriter, r *http.Request) bool
	// Banned reports whether callers with an address get no other answer than a 403; nil: none
	// do.
	Banned         func(netip.Addr) bool
	TrustedProxies []netip.Prefix // peers whose X-Forwarded-For counts
	Conns          *Conns         // bounds the connections of each client network; nil: there is no bound
	Log            *slog.Logger
}

// PlainServer serves plain HTTP beside a listener that speaks TLS: it answers certificate
// authorities, and sends everybody else to https.
type PlainServer struct {
	http  *http.Server
	conns *Conns
}

// NewPlainServer returns a server configured by cfg.
func NewPlainServer(cfg PlainConfig) *PlainServer {
	return &PlainServer{conns: cfg.Conns, http: &http.Server{
		Handler:                      cfg,
		ReadHeaderTimeout:            headTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHead,
		DisableGeneralOptionsHandler: true,
		ConnContext:                  withSeat,
		ConnState:                    countedState,
		ErrorLog:                     slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
	}}
}

// Serve answers until Shutdown or Close, and then returns http.ErrServerClosed.
func (s *PlainServer) Serve(l net.Listener) error { return s.http.Serve(countedListener{l, s.conns}) }

// Shutdown stops listening and waits for the open requests, or for ctx.
func (s *PlainServer) Shutdown(ctx context.Context) error { return s.http.Shutdown(ctx) }

// Close closes the listener and every connection at once.
func (s *PlainServer) Close() error { return s.http.Close() }

// ServeHTTP answers one request. It reads no body, so the connection ends where there is one.
func (cfg PlainConfig) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !seatOf(r).use() { // one that was read with the request before has not said so
		panic(http.ErrAbortHandler)
	}
	id := requestID(r)
	w.Header()[wire.HeaderRequestID] = []string{id}
	if cfg.Challenge != nil && cfg.Challenge(w, r) {
		return
	}
	if cfg.Banned != nil && cfg.Banned(cfg.sender(r)) {
		writeError(w, http.StatusForbidden, banned)
		return
	}
	host, valid := parseHost(r.Host)
	if !validTarget(r) || !valid || host == "" {
		writeError(w, http.StatusBadRequest, badHost)
		return
	}
	switch cfg.Standing(r.Context(), host) {
	case Certain:
		w.Header().Set("Location", cfg.secure(host, r))
		w.WriteHeader(http.StatusPermanentRedirect)
	case Uncertain:
		w.Header().Set("Retry-After", "60")
		writeError(w, http.StatusServiceUnavailable, fmt.Sprintf("%s has no certificate yet; try again in a minute, or look at the domain in the dashboard", host))
	default:
		writeError(w, http.StatusMisdirectedRequest, "this server does not serve this host")
	}
}

// sender returns the address of the sender of r.
func (cfg PlainConfig) sender(r *http.Request) netip.Addr {
	peer := peerOf(r.RemoteAddr).ip
	if anyContains(cfg.TrustedProxies, peer) {
		if ip, ok := forwardedFor(r.Header["X-Forwarded-For"], cfg.TrustedProxies); ok {
			return ip
		}
	}
	return peer
}

// secure returns the address of a request's target by https.
func (cfg PlainConfig) secure(host string, r *http.Request) string {
	if cfg.Port != "" {
		host = net.JoinHostPort(host, cfg.Port)
	}
	target := r.URL.RequestURI()
	if !strings.HasPrefix(target, "/") { // of the server itself
		target = "/"
	}
	return "https://" + host + target
}
