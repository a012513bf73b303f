package proxy

import (
	"context"
	"net"
	"net/http"

	"github.com/berth-host/berth/internal/exchange"
)

// callerContext holds a caller without a second allocation.
type callerContext struct {
	context.Context
	caller exchange.Caller
}

type callerKey struct{}

func (c *callerContext) Value(key any) any {
	if key == (callerKey{}) {
		return &c.caller
	}
	return c.Context.Value(key)
}

// WithCaller returns a context that passes the sender of a request to the proxy.
func WithCaller(ctx context.Context, c exchange.Caller) context.Context {
	return &callerContext{Context: ctx, caller: c}
}

// CallerOf returns the sender of r, as the edge found it.
func CallerOf(r *http.Request) exchange.Caller { return callerOf(r) }

// callerOf returns the sender of r as the edge found it. If the request did not come
// through the edge, the sender is the peer of the connection.
func callerOf(r *http.Request) exchange.Caller {
	if c, ok := r.Context().Value(callerKey{}).(*exchange.Caller); ok {
		return *c
	}
	c := exchange.Caller{IP: r.RemoteAddr, Proto: "http"}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		c.IP = host
	}
	if r.TLS != nil {
		c.Proto = "https"
	}
	return c
}
