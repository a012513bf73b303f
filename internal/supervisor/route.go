package supervisor

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
)

// routed is what the routes of a stack were made of.
type routed struct {
	st stack.Stack
	to *generation // nil for none
}

// route points the stack's public URLs at a generation, nil for none, and returns the
// targets that nothing leads to any more, for the caller to drain. A service without a
// target answers that it is not up, as all do while another node may take the stack. route does
// nothing once the runner has ended, since the stack may be deleted.
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
	r.routed.Store(&routed{*st, g})
	if r.isolated.Load() {
		g = nil
	}
	for i := range st.Generation.Services {
		spec := &st.Generation.Services[i].Spec
		service := proxy.Service{Name: spec.Name, Paths: r.paths(st, spec)}
		if db := spec.Database(); db != nil {
			service.Closed = fmt.Sprintf("the service %s is a database that speaks the protocol of %s; the services of its stack reach it at %s:%d inside the stack, and nobody from outside", spec.Name, db.Title, spec.Name, db.Port)
		}
		if g != nil {
			service.Target = g.target(spec.Name)
		}
		entry.Hosts[r.cfg.URLs.Hostname(st, spec.Name)] = service
	}
	if r.ctx.Err() != nil {
		return nil
	}
	return r.cfg.Routes.Set(st.ID, entry)
}

// paths returns the paths of a service that lead to other services.
func (r *runner) paths(st *stack.Stack, spec *stack.Spec) []proxy.Path {
	var paths []proxy.Path
	for prefix, to := range spec.Paths {
		paths = append(paths, proxy.Path{Prefix: prefix, Host: r.cfg.URLs.Hostname(st, to.Service), Strip: to.Strip})
	}
	return paths
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
