package supervisor

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
)

// route points the stack's public URLs at a generation, nil for none, and returns the
// targets that nothing leads to any more, for the caller to drain. A service without a
// target answers that it is not up. route does nothing once the runner has ended, since
// the stack may be deleted.
func (r *runner) route(st *stack.Stack, g *generation) []*proxy.Target {
	entry := proxy.Entry{
		Status:    st.Status,
		Restoring: st.Restoring(),
		Name:      st.Name,
		Hosts:     map[string]proxy.Service{},
		Wildcard:  r.cfg.URLs.Hostname(st, "*"),
		ClaimURL:  r.cfg.URLs.Claim(""),
		Unclaimed: !st.Claimed(),
	}
	r.routing.Lock()
	defer r.routing.Unlock()
	for _, name := range st.ServiceNames() {
		service := proxy.Service{Name: name}
		if spec := &st.Service(name).Spec; spec.Database() != nil {
			service.Closed = fmt.Sprintf("%s is a database, %s, which the services of its stack reach at %s:%d inside the stack, and nobody from outside", name, spec.Database().Title, name, spec.Database().Port)
		}
		if g != nil {
			service.Target = g.target(name)
		}
		entry.Hosts[r.cfg.URLs.Hostname(st, name)] = service
	}
	if r.ctx.Err() != nil {
		return nil
	}
	return r.cfg.Routes.Set(st.ID, entry)
}

// unroute makes the public URLs of a deleted stack unknown, or those of a lost one lead to the
// node that owns it, and cuts the requests that are still open.
func (r *runner) unroute() {
	r.routing.Lock()
	remove := r.cfg.Routes.Remove
	if r.lost.Load() && !r.deleted.Load() && r.cfg.Elsewhere != nil {
		remove = r.cfg.Elsewhere
	}
	targets := remove(r.id)
	r.routing.Unlock()
	cut(targets)
}

// cut ends targets at once.
func cut(targets []*proxy.Target) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for _, t := range targets {
		_ = t.Drain(over) // the error counts the requests it cut: all there were
	}
}

// drainAll gives the open requests of targets time to finish.
func (r *runner) drainAll(targets []*proxy.Target) { r.drainFor(r.cfg.Drain, targets) }

// drainFor is drainAll within a limit.
func (r *runner) drainFor(limit time.Duration, targets []*proxy.Target) {
	ctx, cancel := context.WithTimeout(r.ctx, min(limit, r.cfg.Drain))
	defer cancel()
	var group errgroup.Group
	for _, t := range targets {
		group.Go(func() error { return t.Drain(ctx) })
	}
	if err := group.Wait(); err != nil {
		r.log.Info("requests cut", "error", err)
	}
}
