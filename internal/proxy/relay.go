package proxy

import (
	"context"
	"net"
	"net/http"

	"github.com/berth-host/berth/internal/exchange"
)

// Relay passes requests on to the process that has taken the place of this one, which answers
// whatever is left to do.
type Relay struct{ target *Target }

// NewRelay returns a Relay to the process that dial reaches. Both speak the given version of
// what nodes say to each other.
func NewRelay(dial func(context.Context) (net.Conn, error), protocol int, o Options) *Relay {
	o.HeaderTimeout, o.Protocol = -1, func() int { return protocol }
	return &Relay{&Target{up: exchange.NewUpstream(dial, exchange.Node, o), drained: make(chan struct{})}}
}

// ServeHTTP passes a request on.
func (l *Relay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !l.target.acquire() {
		writePage(w, r, stoppingPage)
		return
	}
	defer l.target.release()
	if f := carry(l.target.up, w, r, exchange.Tenant{}); f != nil {
		writeFailure(w, r, f, replacedPage)
	}
}

// Drain waits for the requests that are being passed on, or for ctx, as Target.Drain does.
func (l *Relay) Drain(ctx context.Context) error { return l.target.Drain(ctx) }
