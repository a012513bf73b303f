package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/wire"
)

// callPrefix is where the calls between nodes are. It is never served in public.
const callPrefix = "/peer/v1/"

// maxCall limits the JSON of a call and of its answer, in bytes.
const maxCall = 1 << 20

// Calls is what other nodes may call, by name.
type Calls struct{ mux *http.ServeMux }

// NewCalls returns a Calls that knows no name yet.
func NewCalls() Calls { return Calls{http.NewServeMux()} }

// Handle makes h answer a call, such as "POST stacks/move". It reads the body and writes
// the answer as they come.
func (c Calls) Handle(method, name string, h http.Handler) {
	c.mux.Handle(method+" "+callPrefix+name, h)
}

// ServeHTTP answers a call.
func (c Calls) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h, pattern := c.mux.Handler(r)
	if pattern == "" {
		h = refuse(http.StatusNotFound, "this node knows no such call; update its berthd")
	}
	h.ServeHTTP(w, r)
}

// Answer makes a handler of a function from the call's JSON to that of the answer. A
// *stack.Error arrives at the caller as it is.
func Answer[In, Out any](do func(ctx context.Context, in In) (Out, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in In
		if err := json.NewDecoder(io.LimitReader(r.Body, maxCall)).Decode(&in); err != nil && !errors.Is(err, io.EOF) {
			writeJSON(w, http.StatusBadRequest, fault{Detail: "the call is not JSON: " + err.Error()})
			return
		}
		out, err := do(r.Context(), in)
		if err != nil {
			WriteError(w, err)
			return
		}
		writeJSON(w, http.StatusOK, out)
	})
}

// fault is an error in JSON. Kind and RetryAfter are those of a *stack.Error.
type fault struct {
	Detail     string        `json:"detail"`
	Kind       stack.Kind    `json:"kind,omitempty"`
	RetryAfter time.Duration `json:"retry_after,omitempty"`
}

// WriteError answers a call with an error.
func WriteError(w http.ResponseWriter, err error) {
	f := fault{Detail: err.Error()}
	if known, ok := errors.AsType[*stack.Error](err); ok {
		f = fault{known.Detail, known.Kind, known.RetryAfter}
	}
	writeJSON(w, http.StatusUnprocessableEntity, f)
}

// Call calls another node with in as JSON, and reads the answer into out. It fails with
// a *stack.Error where the other node did.
func (p *Pool) Call(ctx context.Context, node, method, name string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	answer, err := p.Stream(ctx, node, method, name, bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer answer.Close()
	return json.NewDecoder(io.LimitReader(answer, maxCall)).Decode(out)
}

// Stream calls another node with a body of any size, nil for none, and returns the
// answer, which the caller closes. It fails as Call does.
func (p *Pool) Stream(ctx context.Context, node, method, name string, body io.Reader) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, method, "https://"+node+callPrefix+name, body)
	if err != nil {
		return nil, err
	}
	r.Header[wire.HeaderProtocol] = []string{strconv.Itoa(p.protocol(node))}
	answer, err := p.calls.Do(r)
	if err != nil {
		return nil, fmt.Errorf("call node %s: %w", p.cfg.Nodes.Name(node), err)
	}
	if answer.StatusCode == http.StatusOK {
		return answer.Body, nil
	}
	defer answer.Body.Close()
	return nil, p.readFault(node, answer)
}

// readFault returns the error that a node answered.
func (p *Pool) readFault(node string, answer *http.Response) error {
	var f fault
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxCall)).Decode(&f); err != nil {
		return fmt.Errorf("node %s answered %s", p.cfg.Nodes.Name(node), answer.Status)
	}
	if answer.StatusCode == http.StatusUnprocessableEntity && f.Kind != 0 {
		return &stack.Error{Kind: f.Kind, Detail: f.Detail, RetryAfter: f.RetryAfter}
	}
	return fmt.Errorf("node %s: %s", p.cfg.Nodes.Name(node), f.Detail)
}

// Pong is a node's answer to a ping.
type Pong struct {
	Node    string `json:"node"`
	Version string `json:"version"`
	Manager bool   `json:"manager"`
}

// AnswerPing answers pings. It tells asked which node sent one, and when. Whether that node
// gets the answer is not known here.
func (c Calls) AnswerPing(nodes Nodes, version string, asked func(node string, at time.Time)) {
	c.Handle(http.MethodGet, "ping", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked(nodeOf(*r.TLS), time.Now())
		writeJSON(w, http.StatusOK, Pong{nodes.Self(), version, nodes.Manager()})
	}))
}

// Ping asks a node who it is. If that fails for PoolConfig.Silence, Ping breaks off what the
// node has been asked.
func (p *Pool) Ping(ctx context.Context, node string) (Pong, error) {
	pong, err := p.ping(ctx, node)
	if errors.Is(ctx.Err(), context.Canceled) {
		return pong, err // it says nothing about the node
	}
	if p.standsStill(node, err == nil) && p.breakOff(node) {
		p.cfg.Log.Warn("node answers no pings, so what it was asked is broken off", "node", p.cfg.Nodes.Name(node), "error", err)
	}
	return pong, err
}

// standsStill notes whether a node has answered a ping, and reports whether it has answered none
// for too long. It does so once in that time.
func (p *Pool) standsStill(node string, answered bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	since, silent := p.silent[node]
	switch {
	case answered:
		delete(p.silent, node)
	case !silent:
		p.silent[node] = time.Now()
	case time.Since(since) >= p.cfg.Silence:
		p.silent[node] = time.Now()
		return true
	}
	return false
}

// breakOff closes the connections to a node, and reports whether there were any.
func (p *Pool) breakOff(node string) (had bool) {
	p.mu.Lock()
	lines := []*line{p.lines[node], p.called[node]}
	p.mu.Unlock()
	for _, l := range lines {
		had = l != nil && l.close() || had
	}
	return had
}

func (p *Pool) ping(ctx context.Context, node string) (pong Pong, err error) {
	answer, err := p.Stream(ctx, node, http.MethodGet, "ping", nil)
	if err != nil {
		return pong, err
	}
	defer answer.Close()
	err = json.NewDecoder(io.LimitReader(answer, maxCall)).Decode(&pong)
	return pong, err
}

// claimCall is a claim of a stack of another node.
type claimCall struct {
	Stack string `json:"stack"`
	Owner string `json:"owner"` // id of the account
	Email string `json:"email"`
}

// Claimer claims stacks; the supervisor claims those of this node.
type Claimer interface {
	Claim(ctx context.Context, id, owner, email string) (*stack.Stack, error)
}

// AnswerClaims makes host claim stacks of this node for other nodes.
func (c Calls) AnswerClaims(host Claimer) {
	c.Handle(http.MethodPost, "claim", Answer(func(ctx context.Context, in claimCall) (struct{}, error) {
		_, err := host.Claim(ctx, in.Stack, in.Owner, in.Email)
		return struct{}{}, err
	}))
}

// Claims claims the stacks of all nodes, through the node that owns each.
type Claims struct {
	Here   Claimer
	Owners Owners
	Self   string // this node
	Pool   *Pool
	Read   func(ctx context.Context, id string) (*stack.Stack, error) // as the store has it
}

// awayRetry is when to try again what needs a node that does not answer.
const awayRetry = 5 * time.Second

// Claim moves a stack into an account, as Claimer does. If its node has just given the stack to
// another, Claim asks that one.
func (c Claims) Claim(ctx context.Context, id, owner, email string) (*stack.Stack, error) {
	node, err := c.Owners.Owner(ctx, id)
	if err != nil {
		return nil, &stack.Error{Kind: stack.Unavailable, RetryAfter: awayRetry, Detail: "the node that runs this stack cannot be looked up in the database at the moment; claim it again shortly"}
	}
	st, err := c.claimOn(ctx, node, claimCall{id, owner, email})
	if stack.KindOf(err) != stack.Unavailable {
		return st, err
	}
	now, unread := c.Owners.Reread(ctx, id)
	if unread != nil || now == "" || now == node {
		return st, err
	}
	return c.claimOn(ctx, now, claimCall{id, owner, email})
}

// claimOn claims a stack on a node, "" for a stack that this one is to deny.
func (c Claims) claimOn(ctx context.Context, node string, call claimCall) (*stack.Stack, error) {
	if node == "" || node == c.Self {
		return c.Here.Claim(ctx, call.Stack, call.Owner, call.Email)
	}
	var none struct{}
	err := c.Pool.Call(ctx, node, http.MethodPost, "claim", call, &none)
	if _, known := errors.AsType[*stack.Error](err); err != nil && !known {
		c.Pool.cfg.Log.Info("claim not passed on", "stack", call.Stack, "error", err)
		return nil, &stack.Error{Kind: stack.Unreachable, RetryAfter: awayRetry, Detail: fmt.Sprintf(
			"node %s, which runs this stack, cannot be reached at the moment; claim it again shortly", c.Pool.cfg.Nodes.Name(node))}
	}
	if err != nil {
		return nil, err
	}
	return c.Read(ctx, call.Stack)
}
