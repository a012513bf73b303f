package client

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// answerTimeout is how long a server may take to begin an answer; with wait=true it
// holds one for 90 s.
const answerTimeout = 3 * time.Minute

// newHTTPClient returns an HTTP client that connects to names under localhost on this
// machine, whatever the resolver says, and never through a proxy.
func newHTTPClient() *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Client{
		Transport: &http.Transport{
			Proxy: func(r *http.Request) (*url.URL, error) {
				if isLoopback(r.URL.Hostname()) {
					return nil, nil
				}
				return http.ProxyFromEnvironment(r)
			},
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return dial(ctx, dialer, network, address)
			},
			ForceAttemptHTTP2:     true,
			TLSHandshakeTimeout:   10 * time.Second,
			ResponseHeaderTimeout: answerTimeout,
			IdleConnTimeout:       time.Minute,
		},
	}
}

// dial connects to an address; for a name under localhost, to the loopback
// address that answers.
func dial(ctx context.Context, dialer *net.Dialer, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || !isLocalhost(host) {
		return dialer.DialContext(ctx, network, address)
	}
	conn, err := dialer.DialContext(ctx, network, net.JoinHostPort("127.0.0.1", port))
	if err == nil || ctx.Err() != nil {
		return conn, err
	}
	if conn, err6 := dialer.DialContext(ctx, network, net.JoinHostPort("::1", port)); err6 == nil {
		return conn, nil
	}
	return nil, err
}

// isLocalhost reports whether a name is localhost or under it.
func isLocalhost(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// isLoopback reports whether a host is this machine, by name or address.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return isLocalhost(host) || err == nil && ip.IsLoopback()
}
