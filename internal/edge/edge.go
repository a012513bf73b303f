package edge

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/berth-host/berth/internal/exchange"
	"github.com/berth-host/berth/internal/plainjson"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/wire"
)

// Config configures a Server.
type Config struct {
	BaseHost       string         // host of the base URL, without port
	AppsDomain     string         // domain of the services' names, without port
	TrustedProxies []netip.Prefix // peers whose X-Forwarded-For and -Proto count
	Routes         *proxy.Routes
	API            http.Handler // the API and the pages; see Inner
	TLS            *tls.Config  // certificates of the listener; nil: it speaks plain HTTP

	// StallTimeout is how long no byte may move in either direction of an exchange with
	// a service before the edge ends it; 0 means 1 min.
	StallTimeout time.Duration
	Log          *slog.Logger // nil: slog.Default

	// Peers makes the listener one for the other nodes of a cluster; nil: it is public.
	Peers Peers

	// Banned reports whether callers with an address get no answer but a 403; nil: none do. It
	// is asked for each request.
	Banned func(netip.Addr) bool

	// Conns bounds the connections of each client network; nil: there is no bound. Listeners
	// may share it.
	Conns *Conns

	// FastLane serves plain requests for services without net/http; see lane.
	FastLane bool
	// Connected is called for each connection, with fast or standard for the lane in which
	// it begins, and with handed_over when it changes from the first to the second. It may
	// be nil.
	Connected func(lane string)

	// Arrived is called for each request with where its host leads: service, base (the
	// base URL's host) or none. It may be nil.
	Arrived func(where string)
}

// Peers decides about requests on a listener for other nodes.
type Peers interface {
	// Admit returns the caller of a request that a node forwards. The handler, unless it
	// is nil, answers the request instead: it is not for a stack, or is refused.
	Admit(r *http.Request) (exchange.Caller, http.Handler)
	// Streams reports whether the connections that a handshake gave a protocol carry streams,
	// each of which is a connection of HTTP/1.1.
	Streams(protocol string) bool
}

// Inner returns a handler that passes requests on to a server inside this process,
// which dial reaches.
func Inner(dial func() (net.Conn, error), log *slog.Logger) http.Handler {
	dialContext := func(context.Context) (net.Conn, error) { return dial() }
	return proxy.NewInner(dialContext, proxy.Options{HeaderTimeout: -1, Log: log})
}

// edge is the handler of the public listener.
type edge struct {
	cfg     Config // with BaseHost in lower case
	suffix  string // "." and the apps domain
	leaving atomic.Bool
	next    atomic.Pointer[http.Handler] // answers every request; nil for nobody
}

func newEdge(cfg Config) *edge {
	cfg.BaseHost = strings.ToLower(cfg.BaseHost)
	return &edge{cfg: cfg, suffix: "." + strings.ToLower(cfg.AppsDomain)}
}

func (e *edge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := connOf(r)
	trusted, last := c.beginRequest(r)
	if last || e.leaving.Load() {
		w.Header()["Connection"] = []string{"close"}
	}
	who, instead := e.receive(r, c)
	if instead != nil && trusted {
		instead.ServeHTTP(w, trackBody(r, r.WithContext(r.Context()), c))
		return
	}
	id := requestID(r)
	r.Header[wire.HeaderRequestID] = []string{id}
	w.Header()[wire.HeaderRequestID] = []string{id}
	host, where, fault := e.route(r, trusted)
	if next := e.next.Load(); next != nil && where != refused {
		w.Header()["Connection"] = []string{"close"}
		(*next).ServeHTTP(w, trackBody(r, r.WithContext(proxy.WithCaller(r.Context(), who)), c))
		return
	}
	if where == toService && c != nil {
		var end func()
		w, who.Watch, end = c.srv.stalls.watch(w, r, c)
		defer end()
	}
	r = trackBody(r, r.WithContext(proxy.WithCaller(r.Context(), who)), c)
	if e.cfg.Arrived != nil {
		e.cfg.Arrived(names[where])
	}
	if e.isBanned(who.IP) {
		writeError(w, http.StatusForbidden, banned)
		return
	}
	switch where {
	case refused:
		writeError(w, http.StatusBadRequest, fault)
	case toService:
		e.cfg.Routes.Serve(w, r, host)
	case toAPI:
		if err := crossOrigin(r, who.Proto); err != nil {
			writeError(w, http.StatusForbidden, "this request came from a page of another site; open the page at "+e.cfg.BaseHost+" itself and send it from there")
			return
		}
		r.Header[wire.HeaderCallerIP] = []string{who.IP}
		e.cfg.API.ServeHTTP(w, r)
	default:
		writeError(w, http.StatusNotFound, fmt.Sprintf(
			"this server does not serve this host; the API is at %s, services are at <service>-<stack>%s", e.cfg.BaseHost, e.suffix))
	}
}

// banned is the detail for a caller who gets no other answer.
const banned = "the operator of this host has banned your network; ask them why, and until when"

// isBanned reports whether a caller gets no other answer.
func (e *edge) isBanned(caller string) bool {
	if e.cfg.Banned == nil {
		return false
	}
	ip, ok := parseIP(caller)
	return ok && e.cfg.Banned(ip)
}

// receive returns the caller of r and, on a listener for nodes, who answers instead of
// a stack or the API; nil for nobody. Afterwards r has no header that only nodes send.
func (e *edge) receive(r *http.Request, c *conn) (who exchange.Caller, instead http.Handler) {
	if e.cfg.Peers == nil {
		who = e.identify(r, c)
	} else {
		who, instead = e.cfg.Peers.Admit(r)
	}
	if instead == nil {
		wire.StripInternal(r.Header)
	}
	return who, instead
}

// destination is where a host leads.
type destination int

const (
	nowhere destination = iota
	refused
	toAPI
	toService
)

// names are the destinations as Arrived gets them.
var names = [...]string{nowhere: "none", refused: "none", toAPI: "base", toService: "service"}

// route returns the canonical host of r and where it leads, and the reason if the
// request is refused.
func (e *edge) route(r *http.Request, trusted bool) (host string, where destination, fault string) {
	host, valid := parseHost(r.Host)
	switch {
	case !trusted:
		return "", refused, untrusted
	case !validTarget(r):
		return "", refused, badTarget
	case !valid:
		return "", refused, badHost
	}
	where = e.split(host)
	if where == nowhere && !strings.HasPrefix(r.RequestURI, "/") && r.RequestURI != "*" {
		return "", refused, badTarget
	}
	return host, where, ""
}

// split returns where a canonical host leads.
func (e *edge) split(host string) destination {
	if host == "" || host == e.cfg.BaseHost || host == "localhost" {
		return toAPI
	}
	if strings.HasSuffix(host, e.suffix) {
		return toService
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return toAPI
	}
	if e.cfg.Routes.HasDomain(host) {
		return toService
	}
	return nowhere
}

// writeError answers with a JSON object that has the single field detail.
func writeError(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(detailJSON(detail))
}

func detailJSON(detail string) []byte {
	body, _ := plainjson.MarshalLine(map[string]string{"detail": detail}) // strings always encode
	return body
}
