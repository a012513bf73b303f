package supervisor

import (
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/stack"
)

// In a cluster each stack is owned by one node, which its row names with an epoch that counts
// the owners. A runner has the epoch in which its node took the stack, and passes it with
// every change. If the row has another one, the change is refused, and the runner lets the
// stack go: it touches neither the row nor the routes any more, and its containers end.

// disown ends the loop of a stack that another node owns.
func (r *runner) disown() {
	if !r.lost.Swap(true) {
		r.log.Warn("another node owns the stack by now; it is let go")
	}
	r.cancel()
}

// owns reports whether a row has the owner that the runner works for.
func (r *runner) owns(st *stack.Stack) bool {
	return st.Node == r.cfg.Node && st.Epoch == r.epoch
}

// leave removes what this node runs of a stack that another one owns. What cannot be removed
// now is left to watchLeftovers.
func (r *runner) leave() {
	r.sup.finishOnEngine(r.sup.ctx, r.log, "stack of another node not stopped; trying again later", func() error {
		return r.sup.stopContainers(r.sup.ctx, engine.Key{Stack: r.id})
	})
	r.forget()
}

// forget makes the supervisor forget the runner, which has ended.
func (r *runner) forget() {
	r.sup.mu.Lock()
	defer r.sup.mu.Unlock()
	if r.sup.runners[r.id] == r {
		delete(r.sup.runners, r.id)
	}
}
