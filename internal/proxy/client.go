package proxy

import (
	"context"
	"net"
	"net/http"
	"syscall"
)

// Client is what the edge knows about the sender of a request. It travels in
// the request's context.
type Client struct {
	IP        string // address without port, as X-Forwarded-For gets it
	Proto     string // http or https, as the client spoke it
	RequestID string // "" when the edge gave none
	Watch     Watch  // over the request; nil: nobody watches
}

// Watch follows a request on its way.
type Watch interface {
	// Service is told the socket that carries the request to a process, and nil
	// when it does so no longer.
	Service(socket syscall.RawConn)
}

// clientContext carries a Client without a second allocation.
type clientContext struct {
	context.Context
	client Client
}

type clientKey struct{}

func (c *clientContext) Value(key any) any {
	if key == (clientKey{}) {
		return &c.client
	}
	return c.Context.Value(key)
}

// WithClient returns a context in which the proxy finds the client's address.
func WithClient(ctx context.Context, c Client) context.Context {
	return &clientContext{Context: ctx, client: c}
}

// ClientOf is the sender of r as the edge found it, or as the connection shows
// when the request did not come through the edge.
func ClientOf(r *http.Request) Client {
	if c, ok := r.Context().Value(clientKey{}).(*Client); ok {
		return *c
	}
	c := Client{IP: r.RemoteAddr, Proto: "http"}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		c.IP = host
	}
	if r.TLS != nil {
		c.Proto = "https"
	}
	return c
}
