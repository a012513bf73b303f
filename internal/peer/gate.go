package peer

import (
	"fmt"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/berth-host/berth/internal/exchange"
	"github.com/berth-host/berth/internal/plainjson"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/wire"
)

// Gate decides about each request on the listener for nodes; it is edge.Peers.
type Gate struct {
	nodes    Nodes
	protocol int
	calls    http.Handler
}

// NewGate returns a Gate that understands versions up to protocol, and passes the calls of other
// nodes to calls.
func NewGate(nodes Nodes, protocol int, calls http.Handler) *Gate {
	return &Gate{nodes, protocol, calls}
}

// Admit returns the caller of a request as the node that forwards it says, or who
// answers instead: the handler of calls, or a refusal. A node that has left the cluster
// is refused on connections that it still has.
func (g *Gate) Admit(r *http.Request) (exchange.Caller, http.Handler) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return exchange.Caller{}, refuse(http.StatusForbidden, "only nodes of this cluster are served here")
	}
	if node := nodeOf(*r.TLS); node == g.nodes.Self() || !g.nodes.Member(node) {
		return exchange.Caller{}, refuse(http.StatusForbidden, fmt.Sprintf("node %.64q does not belong to this cluster; let its berthd register it", node))
	}
	if fault := g.protocolFault(r.Header[wire.HeaderProtocol]); fault != "" {
		return exchange.Caller{}, refuse(http.StatusHTTPVersionNotSupported, fault)
	}
	if r.Header[wire.HeaderHops] == nil {
		return exchange.Caller{}, g.calls
	}
	who, ok := carried(r.Header)
	if !ok || who.Hops > proxy.MaxHops {
		return who, refuse(http.StatusBadRequest, "the request does not say of whom and how often it was forwarded, as the nodes' protocol demands")
	}
	return who, nil
}

// Streams is that of edge.Peers.
func (g *Gate) Streams(protocol string) bool { return agreed(protocol) >= streaming }

// protocolFault returns why the version of a request is refused; "" if it is not.
func (g *Gate) protocolFault(values []string) string {
	if len(values) != 1 {
		return "the header " + wire.HeaderProtocol + " with the version of the nodes' protocol is missing"
	}
	if version, err := strconv.Atoi(values[0]); err != nil || version < 1 || version > g.protocol {
		return fmt.Sprintf("this node speaks version %d of the nodes' protocol, and the request has %.20q; update this node's berthd first", g.protocol, values[0])
	}
	return ""
}

// carried returns what the forwarding node says of the caller.
func carried(h http.Header) (who exchange.Caller, ok bool) {
	hops, err := strconv.Atoi(h.Get(wire.HeaderHops))
	who = exchange.Caller{IP: h.Get(wire.HeaderCallerIP), Proto: h.Get(wire.HeaderCallerProto), Hops: hops}
	_, noIP := netip.ParseAddr(who.IP)
	return who, err == nil && hops >= 1 && noIP == nil && (who.Proto == "http" || who.Proto == "https")
}

// refuse returns a handler that answers with a JSON object that has the single field
// detail.
func refuse(status int, detail string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, status, map[string]string{"detail": detail})
	})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := plainjson.MarshalLine(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"detail": "the answer cannot be written as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(body)
}
