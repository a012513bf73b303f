package proxy

import (
	"context"
	"net"
	"net/http"

	"github.com/berth-host/berth/internal/exchange"
)

// MaxHops is how often a request is forwarded at most. The node that forwards it last
// may have been wrong about the owner, since the stack had just moved.
const MaxHops = 2

// Peer is another node, to which requests are forwarded over a pool of connections.
type Peer struct {
	node   string
	name   func() string
	lost   func() bool
	target *Target
}

// PeerOptions describe a Peer.
type PeerOptions struct {
	Node string        // id
	Name func() string // for people
	Lost func() bool   // it is lost: nothing is asked of it
	// Dial returns a connection to the node itself, and nobody else.
	Dial     func(context.Context) (net.Conn, error)
	Protocol func() int // version of what nodes say to each other, after Dial
	Limits   Options
}

// NewPeer returns a Peer without connections.
func NewPeer(o PeerOptions) *Peer {
	o.Limits.Protocol = o.Protocol
	target := &Target{up: exchange.NewUpstream(o.Dial, exchange.Node, o.Limits), drained: make(chan struct{})}
	return &Peer{node: o.Node, name: o.Name, lost: o.Lost, target: target}
}

// Node returns the id of the node.
func (p *Peer) Node() string { return p.node }

// Lost reports whether the node is lost.
func (p *Peer) Lost() bool { return p.lost() }

// Serve forwards a request, or answers why it cannot.
func (p *Peer) Serve(w http.ResponseWriter, r *http.Request) {
	p.ServeOr(w, r, func() { writePage(w, r, awayPage(p.name())) })
}

// ServeOr forwards a request. If no connection to the node can be had, it calls noWay,
// which answers instead; nothing of the body has been read then.
func (p *Peer) ServeOr(w http.ResponseWriter, r *http.Request, noWay func()) {
	switch {
	case callerOf(r).Hops >= MaxHops:
		writePage(w, r, circlePage)
	case p.lost():
		writePage(w, r, lostPage(p.name()))
	case !p.target.acquire():
		writePage(w, r, stoppingPage)
	default:
		defer p.target.release()
		f := carry(p.target.up, w, r, exchange.Tenant{})
		switch {
		case f == nil:
		case f.Kind == exchange.NoConnection && !f.Begun:
			noWay()
		default:
			writeFailure(w, r, f, cutOffPage)
		}
	}
}

// Drain waits for the requests that are being forwarded, or for ctx, as Target.Drain
// does.
func (p *Peer) Drain(ctx context.Context) error { return p.target.Drain(ctx) }

// Refusal is an answer in place of a node's.
type Refusal struct {
	Status        int
	Title, Detail string // for people; for both
	Retry         bool   // waiting a moment helps
}

// Write answers with a page for a browser and with JSON for all others.
func (f Refusal) Write(w http.ResponseWriter, r *http.Request) {
	writePage(w, r, page{status: f.Status, title: f.Title, detail: f.Detail, retry: f.Retry})
}
