package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/berth-host/berth/internal/peer"
	"github.com/berth-host/berth/internal/supervisor"
)

// The calls of a move, which take a stack from node to node (supervisor.Peer): the stack, the
// service and the offer are in the query, and the body is a stream of files or data.
const (
	callPrepare = "moves/prepare"
	callFill    = "moves/fill"
	callFetch   = "moves/fetch"
	callStart   = "moves/start"
	callTake    = "moves/take"
	callDrop    = "moves/drop"
)

// targets are the other nodes as targets of moves.
type targets struct{ pool *peer.Pool }

// Peer implements supervisor.Peers.
func (t targets) Peer(node string) (supervisor.Peer, error) { return target{t.pool, node}, nil }

// target is one of them.
type target struct {
	pool *peer.Pool
	node string
}

// Prepare implements supervisor.Peer.
func (t target) Prepare(ctx context.Context, offer supervisor.Offer, files io.Reader) error {
	text, err := json.Marshal(offer)
	if err != nil {
		return err
	}
	return t.call(ctx, callPrepare, url.Values{"offer": {string(text)}}, files)
}

// Fill implements supervisor.Peer.
func (t target) Fill(ctx context.Context, id, service string, data io.Reader) error {
	return t.call(ctx, callFill, url.Values{"stack": {id}, "service": {service}}, data)
}

// Fetch implements supervisor.Peer.
func (t target) Fetch(ctx context.Context, id, service string) error {
	return t.call(ctx, callFetch, url.Values{"stack": {id}, "service": {service}}, nil)
}

// Start implements supervisor.Peer.
func (t target) Start(ctx context.Context, id string, logs io.Reader) error {
	return t.call(ctx, callStart, url.Values{"stack": {id}}, logs)
}

// Take implements supervisor.Peer.
func (t target) Take(ctx context.Context, id string) error {
	return t.call(ctx, callTake, url.Values{"stack": {id}}, nil)
}

// Drop implements supervisor.Peer.
func (t target) Drop(ctx context.Context, id string) error {
	return t.call(ctx, callDrop, url.Values{"stack": {id}}, nil)
}

func (t target) call(ctx context.Context, name string, query url.Values, body io.Reader) error {
	answer, err := t.pool.Stream(ctx, t.node, http.MethodPost, name+"?"+query.Encode(), body)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer)
	return errors.Join(err, answer.Close())
}

// answerMoves makes this node the target of moves.
func answerMoves(calls peer.Calls, receiver supervisor.Peer) {
	handle := func(name string, do func(r *http.Request, id string) error) {
		calls.Handle(http.MethodPost, name, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := do(r, r.URL.Query().Get("stack")); err != nil {
				peer.WriteError(w, err)
			}
		}))
	}
	handle(callPrepare, func(r *http.Request, _ string) error {
		var offer supervisor.Offer
		if err := json.Unmarshal([]byte(r.URL.Query().Get("offer")), &offer); err != nil {
			return err
		}
		return receiver.Prepare(r.Context(), offer, r.Body)
	})
	handle(callFill, func(r *http.Request, id string) error {
		return receiver.Fill(r.Context(), id, r.URL.Query().Get("service"), r.Body)
	})
	handle(callFetch, func(r *http.Request, id string) error {
		return receiver.Fetch(r.Context(), id, r.URL.Query().Get("service"))
	})
	handle(callStart, func(r *http.Request, id string) error { return receiver.Start(r.Context(), id, r.Body) })
	handle(callTake, func(r *http.Request, id string) error { return receiver.Take(r.Context(), id) })
	handle(callDrop, func(r *http.Request, id string) error { return receiver.Drop(r.Context(), id) })
}
