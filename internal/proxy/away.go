package proxy

import (
	"net/http"
	"time"
)

// holdLimit is how long a request waits for a stack that is moving.
const holdLimit = 10 * time.Second

// Lead makes the hosts that a wildcard covers lead to the node that runs the stack. What
// Set gave the stack here no longer counts.
func (t *Routes) Lead(id, wildcard string, p *Peer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.recordOf(id)
	if r.away != nil && r.away.Peer == p {
		return
	}
	r.away = &Entry{Wildcard: wildcard, Peer: p}
	t.settle(id, r)
}

// Keep makes the hosts of a stack lead where Set says, since this node runs it. Requests
// wait until Set has said so once.
func (t *Routes) Keep(id, wildcard string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.recordOf(id)
	switch {
	case r.local != nil:
		r.away = nil
	case r.away == nil || !r.away.Hold:
		r.away = &Entry{Wildcard: wildcard, Hold: true}
	}
	t.settle(id, r)
}

// Forget makes the hosts of a stack lead to no other node any more: it was deleted.
func (t *Routes) Forget(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.stacks[id]; r != nil {
		r.away = nil
		t.settle(id, r)
	}
}

// Hold makes new requests for a stack of this node wait until its next entry. Its targets
// stay as they are.
func (t *Routes) Hold(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.stacks[id]; r != nil && r.local != nil {
		e := *r.local
		e.Hold = true
		r.local = &e
		t.settle(id, r)
	}
}

// findSettled returns the place of a host once it is known for sure, or the page that
// says why it cannot be.
func (t *Routes) findSettled(r *http.Request, host string) (place, page) {
	p := t.find(host)
	if t.Refresh != nil && (p.entry == nil || p.entry.Peer != nil && callerOf(r).Hops > 0) {
		fresh := t.Refresh(r.Context(), host)
		if p = t.find(host); p.entry == nil && !fresh {
			return p, unsurePage
		}
	}
	if p.entry == nil || !p.entry.Hold {
		return p, page{}
	}
	limit := time.NewTimer(holdLimit)
	defer limit.Stop()
	for ; p.entry != nil && p.entry.Hold; p = t.find(host) {
		select {
		case <-p.entry.next:
		case <-limit.C:
			return p, movingPage
		case <-r.Context().Done():
			return p, movingPage
		}
	}
	return p, page{}
}
