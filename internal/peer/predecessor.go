package peer

import (
	"net/http"

	"github.com/berth-host/berth/internal/exchange"
)

// Predecessor decides about each request that the process passes on which ran before this one
// in its place; it is edge.Peers. The listener admits no other process.
type Predecessor struct{}

// Admit returns the caller of a request as that process says. The way from it to this one is
// no hop between nodes.
func (Predecessor) Admit(r *http.Request) (exchange.Caller, http.Handler) {
	who, ok := carried(r.Header)
	if !ok {
		return who, refuse(http.StatusBadRequest, "the request does not say of whom it was passed on")
	}
	who.Hops--
	return who, nil
}

// Streams is that of edge.Peers.
func (Predecessor) Streams(string) bool { return false }
