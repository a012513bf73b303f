package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-host/berth/internal/exchange"
	"github.com/berth-host/berth/internal/wire"
)

// Options are the limits of an upstream.
type Options = exchange.Options

// Target answers requests for the URL of one service: through a process or a handler.
// It counts the requests it is serving, so that it can be drained.
type Target struct {
	up      *exchange.Upstream // nil for a handler
	handler http.Handler       // nil for an upstream
	prompt  Prompt             // what handler can do besides; may be nil

	state   atomic.Int64 // requests in flight, and drainBit once draining
	drained chan struct{}
	once    sync.Once // closes drained
}

// isHandler reports whether a handler answers; t may be nil.
func (t *Target) isHandler() bool { return t != nil && t.handler != nil }

const drainBit = 1 << 62

// closeGrace is how long Drain waits for requests whose connections it closed.
const closeGrace = 5 * time.Second

// NewUpstream returns a target that speaks HTTP/1.1 to a process at addr (host:port),
// with its own pool of connections.
func NewUpstream(addr string, o Options) *Target {
	dialer := &net.Dialer{}
	dial := func(ctx context.Context) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", addr) }
	return &Target{up: exchange.NewUpstream(dial, exchange.Service, o), drained: make(chan struct{})}
}

// NewHandler returns a target that passes requests to h, for example a static site. If
// h is an io.Closer, it is closed once the target has been drained.
func NewHandler(h http.Handler) *Target {
	t := &Target{handler: h, drained: make(chan struct{})}
	t.prompt, _ = h.(Prompt)
	return t
}

// Prompt is a handler that has the answers to some requests ready.
type Prompt interface {
	// Ready returns the answer to a request, of which the handler is to see the given target.
	// Without one the handler is asked.
	Ready(r *wire.Request, target string) (a wire.Ready, ok bool)
}

// NewInner returns a handler that passes requests to a server inside this process, for
// example one that listens in memory. Every request has its own connection, so nothing
// of a request can be read as part of the next. Expect is answered here, and cookies
// pass unchanged.
func NewInner(dial func(context.Context) (net.Conn, error), o Options) http.Handler {
	up := exchange.NewUpstream(dial, exchange.Inner, o)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := carry(up, w, r, exchange.Tenant{}); f != nil {
			writeFailure(w, r, f, unreachablePage)
		}
	})
}

// serve passes a request to a target that has been acquired, and releases it.
func (t *Target) serve(w http.ResponseWriter, r *http.Request, of exchange.Tenant) {
	defer t.release()
	if t.handler == nil {
		if f := carry(t.up, w, r, of); f != nil {
			writeFailure(w, r, f, unreachablePage)
		}
		return
	}
	if of.NoIndex {
		w.Header()["X-Robots-Tag"] = noindex
	}
	delete(r.Header, wire.HeaderPrefix)
	if of.Prefix != "" {
		r.Header[wire.HeaderPrefix] = []string{of.Prefix}
	}
	t.handler.ServeHTTP(w, r)
}

// noindex keeps unclaimed pages out of search engines. It is shared: header
// values are replaced, never written into.
var noindex = []string{"noindex"}

// Drain refuses new requests, closes idle connections and waits for the requests in
// flight. If ctx ends first, it closes what is left (WebSocket peers get close code
// 1001, going away), waits for that, and returns an error with the number of requests
// that had not ended.
func (t *Target) Drain(ctx context.Context) error {
	if t.state.Or(drainBit) == 0 {
		t.finish()
	}
	if t.up != nil {
		t.up.CloseIdle()
	}
	select {
	case <-t.drained:
		return nil
	case <-ctx.Done():
	}
	left := t.state.Load() &^ drainBit
	if left == 0 {
		return nil
	}
	if t.up != nil {
		t.up.CloseAll()
		select {
		case <-t.drained:
		case <-time.After(closeGrace): // a caller that does not read holds it up
		}
	}
	return fmt.Errorf("drain: %d requests had not ended: %w", left, context.Cause(ctx))
}

// acquire adds a request to the count; it returns false once the target is being
// drained.
func (t *Target) acquire() bool {
	if t.state.Add(1)&drainBit == 0 {
		return true
	}
	t.release()
	return false
}

func (t *Target) release() {
	if t.state.Add(-1) == drainBit {
		t.finish()
	}
}

// finish closes what the drained target used. It may be called more than once: late
// requests still come and go.
func (t *Target) finish() {
	t.once.Do(func() {
		if c, ok := t.handler.(io.Closer); ok {
			_ = c.Close() // it was only read
		}
		close(t.drained)
	})
}
