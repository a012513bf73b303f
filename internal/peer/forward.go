package peer

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/berth-host/berth/internal/proxy"
)

// attempts is how many nodes a new stack is offered to.
const attempts = 3

// ForwarderConfig is what a Forwarder needs.
type ForwarderConfig struct {
	Here   http.Handler // answers as this node
	Owners Owners
	Nodes  Nodes
	Peer   func(node string) *proxy.Peer
	// Place chooses the node of a new stack, none of those without. It fails if there is
	// no node left.
	Place func(ctx context.Context, without []string) (node string, err error)
	// AwaitMove waits while a stack of this node is stopped for a move to another one, but not
	// for long, and reports whether it had to.
	AwaitMove func(ctx context.Context, stack string) (waited bool)
	Log       *slog.Logger
}

// Forwarder passes each request for the base URL's host to the node that answers it.
type Forwarder struct{ cfg ForwarderConfig }

// NewForwarder returns a Forwarder.
func NewForwarder(cfg ForwarderConfig) *Forwarder { return &Forwarder{cfg} }

// ServeHTTP decides before anything of the body is read.
func (f *Forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	by, id := Classify(r.Method, r.URL.EscapedPath())
	switch by {
	case Placed:
		f.place(w, r)
	case Owner, Remover:
		f.toOwner(w, r, id, by)
	default:
		f.cfg.Here.ServeHTTP(w, r)
	}
}

// toOwner passes a request to the owner of its stack. A stack that is not known is for
// this node to deny.
func (f *Forwarder) toOwner(w http.ResponseWriter, r *http.Request, id string, by By) {
	node, err := f.owner(r, id)
	if err == nil && node == f.cfg.Nodes.Self() && !readsBeside(r) && f.cfg.AwaitMove(r.Context(), id) {
		node, err = f.cfg.Owners.Reread(r.Context(), id)
	}
	if err != nil {
		unsure(by).write(w, r)
		return
	}
	if node == "" || node == f.cfg.Nodes.Self() {
		f.cfg.Here.ServeHTTP(w, r)
		return
	}
	peer := f.cfg.Peer(node)
	if peer.Lost() {
		if by == Remover {
			f.cfg.Here.ServeHTTP(w, r)
			return
		}
		allowAnyOrigin(w, r)
	}
	peer.ServeOr(w, r, func() { f.away(node, by).write(w, r) })
}

// readsBeside reports whether a request need not wait for the end of a move: it changes nothing, and
// what it reads is there meanwhile, as all but data is.
func readsBeside(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && !strings.Contains(r.URL.Path+"/", "/data/")
}

// owner returns the node of a stack. If a node forwarded the request here and this one
// knows of another, one of them has not heard of a change.
func (f *Forwarder) owner(r *http.Request, id string) (string, error) {
	node, err := f.cfg.Owners.Owner(r.Context(), id)
	if node != "" && node != f.cfg.Nodes.Self() && proxy.CallerOf(r).Hops > 0 {
		return f.cfg.Owners.Reread(r.Context(), id)
	}
	return node, err
}

// unsure is the answer for a stack whose node is not known and cannot be looked up.
func unsure(by By) refusal {
	refused := refusal{
		http.StatusServiceUnavailable, "The stack is not known here yet",
		"the node that was asked does not know this stack, and cannot look it up in the database at the moment; try again shortly", true,
	}
	if by == Remover {
		refused.Detail = strings.Replace(refused.Detail, "moment;", "moment, so the stack was not deleted;", 1)
	}
	return refused
}

// refusal is an answer in place of a node's, also to pages of other origins.
type refusal proxy.Refusal

func (f refusal) write(w http.ResponseWriter, r *http.Request) {
	allowAnyOrigin(w, r)
	proxy.Refusal(f).Write(w, r)
}

// allowAnyOrigin lets pages of any origin read a refusal of the API, as they may read its
// answers.
func allowAnyOrigin(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/v0/") {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Access-Control-Expose-Headers", "Retry-After, X-Request-Id")
	}
}

// away is the answer for an owner that cannot be reached. A removal is only put off: the
// stack may be removed once its node is lost.
func (f *Forwarder) away(node string, by By) refusal {
	name := f.cfg.Nodes.Name(node)
	if by == Remover {
		return refusal{
			http.StatusServiceUnavailable, "The stack's node does not answer",
			"node " + name + ", which runs this stack, cannot be reached at the moment, so the stack was not deleted; try again shortly", true,
		}
	}
	return refusal{
		http.StatusBadGateway, "The stack's node does not answer",
		"node " + name + ", which runs this stack, cannot be reached at the moment; try again shortly", true,
	}
}

// noNode is the answer to a create that no node can take.
var noNode = refusal{
	http.StatusServiceUnavailable, "No node takes new stacks",
	"no node of this installation takes new stacks at the moment; try again shortly", true,
}

// place passes a create to the node that is chosen for it, and to the next one if that
// cannot be reached. One that a node forwarded has come to its node.
func (f *Forwarder) place(w http.ResponseWriter, r *http.Request) {
	if proxy.CallerOf(r).Hops > 0 {
		f.cfg.Here.ServeHTTP(w, r)
		return
	}
	f.placeWithout(w, r, nil)
}

func (f *Forwarder) placeWithout(w http.ResponseWriter, r *http.Request, without []string) {
	node, err := f.cfg.Place(r.Context(), without)
	switch {
	case err != nil || len(without) >= attempts:
		f.cfg.Log.Warn("no node for a new stack", "error", err, "not_reached", without)
		noNode.write(w, r)
	case node == f.cfg.Nodes.Self():
		f.cfg.Here.ServeHTTP(w, r)
	default:
		f.cfg.Peer(node).ServeOr(w, r, func() { f.placeWithout(w, r, append(slices.Clip(without), node)) })
	}
}
