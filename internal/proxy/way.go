package proxy

import (
	"net/http"
	"time"

	"github.com/berth-host/berth/internal/exchange"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/wire"
)

// Way is where a request for a host goes at once: to a process of this node, or to the node
// that runs the stack. Or the answer is ready. Serve must be called, or End once the answer has
// been sent, since the target waits for that.
type Way struct {
	target *Target
	ready  wire.Ready
	prompt bool  // ready is the answer
	peer   *Peer // nil for a process
	of     exchange.Tenant
	meter  *meter
	began  time.Time
}

// Way returns the way of a request for a host, written as in Entry.Hosts, which a caller has
// sent. There is none if the request has to wait, or is answered by something else than a
// process and without an answer that is ready: then Routes.Serve answers. The way may change
// the target of the request.
func (t *Routes) Way(host string, r *wire.Request, hops int) (w Way, ok bool) {
	w = Way{of: exchange.Tenant{Host: host}, meter: &unknown, began: time.Now()}
	if to, has := t.domain(host); has {
		host, w.of.Domain = to, true
	}
	p := t.find(host)
	switch {
	case p.entry == nil || p.entry.Hold:
		return Way{}, false
	case p.entry.Peer != nil:
		w.peer, w.target = p.entry.Peer, p.entry.Peer.target
		return w, hops == 0 && !w.peer.lost() && w.target.acquire()
	case t.MayServe != nil && !t.MayServe():
		return Way{}, false
	}
	w.of.NoIndex = p.entry.Unclaimed && !w.of.Domain
	p, target, prefix := p.follow(r.Target)
	if !p.known || p.entry.Status != stack.Live || p.service.Closed != "" || p.service.Target == nil {
		return Way{}, false
	}
	w.of.Prefix, w.target = prefix, p.service.Target
	if p.service.meter != nil {
		w.meter = p.service.meter
	}
	if !w.target.acquire() {
		return Way{}, false
	}
	if w.target.up == nil && !w.prepare(r, target) {
		w.End()
		return Way{}, false
	}
	r.Target = target
	return w, true
}

// prepare gets the answer of a handler that has it ready.
func (w *Way) prepare(r *wire.Request, target string) bool {
	if w.target.prompt != nil {
		w.ready, w.prompt = w.target.prompt.Ready(r, target)
		w.ready.NoIndex = w.of.NoIndex
	}
	return w.prompt
}

// Ready returns the answer if it is ready, else nil.
func (w *Way) Ready() *wire.Ready {
	if !w.prompt {
		return nil
	}
	return &w.ready
}

// End says that the answer that was ready has been sent.
func (w *Way) End() { w.target.release() }

// Serve carries the request there and its answer back.
func (w *Way) Serve(call exchange.Call) *exchange.Failure {
	defer w.target.release()
	return w.target.up.Serve(call, w.of)
}

// Refuse answers a request that failed; of r it reads what a browser accepts.
func (w *Way) Refuse(to http.ResponseWriter, r *http.Request, f *exchange.Failure) {
	if w.of.Domain {
		to.Header()["X-Robots-Tag"] = nil
	}
	cut := unreachablePage
	if w.peer != nil {
		if cut = cutOffPage; f.Kind == exchange.NoConnection && !f.Begun {
			cut = awayPage(w.peer.name())
		}
	}
	writePage(to, r, failurePage(f, cut))
}

// Answered counts the request by the status of its answer, of which the head is there.
func (w *Way) Answered(status int) {
	w.meter.answers[min(status/100, classes-1)].Add(1)
	w.meter.firstFor.Add(time.Since(w.began))
}

// Unanswered counts a request whose caller left before the answer.
func (w *Way) Unanswered() { w.meter.answers[0].Add(1) }

// Passed counts bytes of bodies, from the caller and to it.
func (w *Way) Passed(in, out int) {
	if in > 0 {
		w.meter.in.Add(uint64(in))
	}
	if out > 0 {
		w.meter.out.Add(uint64(out))
	}
}
