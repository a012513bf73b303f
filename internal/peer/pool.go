package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/proxy"
)

const (
	// restartLimit is how long to try for a connection to a node that is ready: its
	// server may be restarting.
	restartLimit = 10 * time.Second
	restartRetry = 100 * time.Millisecond
	// connectLimit is how long one connection may take, without its handshake.
	connectLimit = 2 * time.Second
)

// PoolConfig is what a Pool needs.
type PoolConfig struct {
	Nodes        Nodes
	Certificates Certificates
	Protocol     int // the latest version to speak
	// Silence is how long a node may answer no ping before it counts as one that stands still:
	// what it has been asked is broken off then, since its answer would never come.
	Silence time.Duration
	Log     *slog.Logger
}

// Pool has the connections to the other nodes.
type Pool struct {
	cfg    PoolConfig
	tls    *tls.Config
	dialer net.Dialer
	calls  *http.Client

	mu     sync.Mutex
	peers  map[string]*proxy.Peer // by node
	lines  map[string]*line       // by node: for peers
	called map[string]*line       // by node: for calls, which may be large, beside those of peers
	spoken map[string]int         // the version that a node's last connection agreed on
	silent map[string]time.Time   // by node: since when it has answered no ping
}

// NewPool returns a Pool without connections.
func NewPool(cfg PoolConfig) *Pool {
	p := &Pool{
		cfg: cfg, tls: clientTLS(cfg.Certificates, cfg.Protocol),
		peers: map[string]*proxy.Peer{}, lines: map[string]*line{}, called: map[string]*line{},
		spoken: map[string]int{}, silent: map[string]time.Time{},
	}
	// A node that vanished is noticed by its silence, long before TCP gives up.
	p.dialer = net.Dialer{
		Timeout:         connectLimit,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3},
		Control:         limitSilence,
	}
	p.calls = &http.Client{Transport: &http.Transport{
		DialTLSContext:      p.dialHost,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     time.Minute,
		DisableCompression:  true,
	}}
	return p
}

// Peer returns a node to forward requests to.
func (p *Pool) Peer(node string) *proxy.Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.peers[node]; known != nil {
		return known
	}
	l := newLine()
	p.lines[node] = l
	peer := proxy.NewPeer(proxy.PeerOptions{
		Node:     node,
		Name:     func() string { return p.cfg.Nodes.Name(node) },
		Lost:     func() bool { _, state := p.cfg.Nodes.Address(node); return state == Lost },
		Dial:     func(ctx context.Context) (net.Conn, error) { return p.dial(ctx, l, node) },
		Protocol: func() int { return p.protocol(node) },
		Limits: proxy.Options{
			ConnectTimeout: restartLimit,
			HeaderTimeout:  -1, // the owner has limits for what it asks, and they have no use twice
			Log:            p.cfg.Log,
		},
	})
	p.peers[node] = peer
	return peer
}

// Drain waits for the requests that are being forwarded, or for ctx, as
// proxy.Target.Drain does.
func (p *Pool) Drain(ctx context.Context) error {
	p.mu.Lock()
	var all []*proxy.Peer
	for _, peer := range p.peers {
		all = append(all, peer)
	}
	p.mu.Unlock()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, peer := range all {
		wg.Go(func() { errs[i] = peer.Drain(ctx) })
	}
	wg.Wait()
	p.calls.CloseIdleConnections()
	return errors.Join(errs...)
}

// dial is dialOn. As long as the node is ready, its server may be restarting, and dial
// tries again.
func (p *Pool) dial(ctx context.Context, l *line, node string) (net.Conn, error) {
	for {
		conn, err := p.dialOn(ctx, l, node)
		if err == nil {
			return conn, nil
		}
		if _, state := p.cfg.Nodes.Address(node); state != Ready || !refused(err) || !pause.For(ctx, restartRetry) {
			return nil, err
		}
	}
}

// connect makes one attempt, and returns the version that the handshake agreed on.
func (p *Pool) connect(ctx context.Context, node string) (_ net.Conn, protocol int, _ error) {
	addr, _ := p.cfg.Nodes.Address(node)
	if addr == "" {
		return nil, 0, fmt.Errorf("the address of node %s is not known", node)
	}
	plain, err := p.dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, 0, err
	}
	cfg := p.tls.Clone()
	cfg.ServerName = node
	conn := tls.Client(plain, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		plain.Close()
		return nil, 0, fmt.Errorf("handshake with node %s: %w", node, err)
	}
	protocol = agreed(conn.ConnectionState().NegotiatedProtocol)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spoken[node] = protocol
	return conn, protocol, nil
}

// protocol returns the version to speak with a node: the first before there is a connection.
func (p *Pool) protocol(node string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(1, p.spoken[node])
}

// dialHost connects for a call, whose URL has the node's id as its host.
func (p *Pool) dialHost(ctx context.Context, _, hostport string) (net.Conn, error) {
	node, _, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, err
	}
	return p.dialOn(ctx, p.lineForCalls(node), node)
}

func (p *Pool) lineForCalls(node string) *line {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.called[node] == nil {
		p.called[node] = newLine()
	}
	return p.called[node]
}
