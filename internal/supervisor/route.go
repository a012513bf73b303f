package supervisor

import (
	"context"

	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
)

// route points the stack's public URLs at targets, by service; a service
// without one answers that it is not up yet. Targets that are no longer pointed
// at get the drain time in the background.
func (r *runner) route(st *stack.Stack, targets map[string]*proxy.Target) {
	entry := proxy.Entry{
		Status:    st.Status,
		Name:      st.Name,
		Targets:   map[string]*proxy.Target{},
		ClaimURL:  r.URLs.Claim(""),
		Unclaimed: !st.Claimed(),
	}
	for _, name := range st.ServiceNames() {
		entry.Targets[name] = targets[name]
	}
	for _, old := range r.Routes.Set(st.Hex(), entry) {
		r.jobs.Go(func() { r.drain(old) })
	}
}

// unroute makes the public URLs of a deleted stack unknown and cuts what is
// still open on them.
func (r *runner) unroute(st *stack.Stack) {
	at, cancel := context.WithCancel(context.Background())
	cancel()
	for _, old := range r.Routes.Remove(st.Hex()) {
		_ = old.Drain(at) // how many requests it cut: all there were
	}
}

// drain gives the open requests of a target their time to finish.
func (s *Supervisor) drain(target *proxy.Target) {
	ctx, cancel := context.WithTimeout(s.ctx, s.Drain)
	defer cancel()
	if err := target.Drain(ctx); err != nil {
		s.Log.Info("requests cut", "error", err)
	}
}
