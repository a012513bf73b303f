package proxy

import (
	"context"
	"net"
	"net/http"
)

// Caller is what the edge knows about the sender of a request. It travels in the
// request's context.
type Caller struct {
	IP    string // address without port, for X-Forwarded-For
	Proto string // http or https, as the caller spoke it
	Hops  int    // how often nodes have forwarded the request; 0: it came from outside
	Watch Watch  // over the request; may be nil
}

// Watch observes a request on its way.
type Watch interface {
	// Service receives the line that carries the request to a process or a node, and nil
	// once it no longer does.
	Service(line Line)
}

// callerContext holds a Caller without a second allocation.
type callerContext struct {
	context.Context
	caller Caller
}

type callerKey struct{}

func (c *callerContext) Value(key any) any {
	if key == (callerKey{}) {
		return &c.caller
	}
	return c.Context.Value(key)
}

// WithCaller returns a context that passes the sender of a request to the proxy.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return &callerContext{Context: ctx, caller: c}
}

// CallerOf returns the sender of r, as the edge found it.
func CallerOf(r *http.Request) Caller { return callerOf(r) }

// callerOf returns the sender of r as the edge found it. If the request did not come
// through the edge, the sender is the peer of the connection.
func callerOf(r *http.Request) Caller {
	if c, ok := r.Context().Value(callerKey{}).(*Caller); ok {
		return *c
	}
	c := Caller{IP: r.RemoteAddr, Proto: "http"}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		c.IP = host
	}
	if r.TLS != nil {
		c.Proto = "https"
	}
	return c
}
