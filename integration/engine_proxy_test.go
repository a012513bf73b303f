package integration

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// engineProxy stands between a server and the engine of this machine, and causes the
// errors that a test asks for. Streams that a request opens pass through it.
type engineProxy struct {
	dir     string
	engine  *http.Transport
	forward *httputil.ReverseProxy

	mu    sync.Mutex
	rules []*rule
}

// rule is what happens to requests instead of being answered.
type rule struct {
	method string
	path   *regexp.Regexp // of the path without the API's version
	times  int            // so many are met; -1 for all
	met    int
	do     func(*engineProxy, http.ResponseWriter, *http.Request)
}

// startProxy runs a proxy until the test ends.
func startProxy(t *testing.T) *engineProxy {
	t.Helper()
	docker, err := engine()
	require.NoError(t, err)
	network, address, _ := strings.Cut(docker.DaemonHost(), "://")
	require.NoError(t, docker.Close())
	dir, err := os.MkdirTemp("", "berth-proxy-") // short: the socket's path is bounded
	require.NoError(t, err)
	p := &engineProxy{dir: dir}
	p.engine = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}
	p.forward = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "engine" },
		Transport:     p.engine,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	listener, err := net.Listen("unix", p.socket())
	require.NoError(t, err)
	server := &http.Server{Handler: p, ErrorLog: p.forward.ErrorLog}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-ended, http.ErrServerClosed)
		p.engine.CloseIdleConnections()
		require.NoError(t, os.RemoveAll(dir))
	})
	return p
}

func (p *engineProxy) socket() string { return filepath.Join(p.dir, "docker.sock") }

// through has a server ask the engine through the proxy.
func through(p *engineProxy) Option { return with("DOCKER_HOST", "unix://"+p.socket()) }

// add makes a rule for the requests of a method whose path matches.
func (p *engineProxy) add(method, path string, times int, do func(*engineProxy, http.ResponseWriter, *http.Request)) *rule {
	r := &rule{method: method, path: regexp.MustCompile("^" + path + "$"), times: times, do: do}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, r)
	return r
}

// clear ends all rules.
func (p *engineProxy) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = nil
}

// count is how often a rule was met.
func (p *engineProxy) count(r *rule) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return r.met
}

var apiVersion = regexp.MustCompile(`^/v1\.[0-9]+`)

// rule is the one for a request; nil for most.
func (p *engineProxy) rule(req *http.Request) *rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	path := apiVersion.ReplaceAllString(req.URL.Path, "")
	for _, r := range p.rules {
		if r.method != req.Method || !r.path.MatchString(path) {
			continue
		}
		if r.met != r.times {
			r.met++
			return r
		}
	}
	return nil
}

func (p *engineProxy) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if r := p.rule(req); r != nil {
		r.do(p, w, req)
		return
	}
	p.forward.ServeHTTP(w, req)
}

// dropReply lets the engine carry out the request and drops its answer.
func dropReply(p *engineProxy, _ http.ResponseWriter, req *http.Request) {
	out := req.Clone(context.WithoutCancel(req.Context()))
	out.URL.Scheme, out.URL.Host, out.RequestURI = "http", "engine", ""
	res, err := p.engine.RoundTrip(out)
	if err == nil {
		if res.StatusCode != http.StatusSwitchingProtocols {
			_, err = io.Copy(io.Discard, res.Body)
		}
		err = errors.Join(err, res.Body.Close())
	}
	if err != nil {
		log.Printf("the engine did not do what it was asked: %v", err)
	}
	panic(http.ErrAbortHandler) // ends the connection
}

// breakOff begins an answer and ends the connection.
func breakOff(_ *engineProxy, w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// hang answers with the head of a stream and nothing more.
func hang(_ *engineProxy, w http.ResponseWriter, req *http.Request) {
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	<-req.Context().Done()
}

// refuse answers with an internal error of the engine.
func refuse(_ *engineProxy, w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusInternalServerError)
	_, _ = io.WriteString(w, `{"message": "an engine's own error"}`)
}
