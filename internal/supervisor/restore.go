package supervisor

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/docker"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/site"
	"github.com/berth-host/berth/internal/stack"
)

// adopt serves a live stack again after the server was restarted. Services
// whose containers still run are routed at once, their processes untouched; a
// stack of which every service is there is restored before adopt returns,
// another one in the background, once what would be in its way is gone.
func (r *runner) adopt(ctx context.Context, st *stack.Stack, there objects) error {
	g := r.generation(st, st.Generation, st.Services)
	if err := g.adoptAll(there); err != nil {
		return err
	}
	r.route(st, g)
	served := g.complete()
	if served {
		if err := g.restored(ctx); err != nil {
			return err
		}
	}
	if served && leftovers(st, there).none() {
		return nil
	}
	r.start(func(ctx context.Context) {
		r.removeLeftovers(ctx, st, there)
		if !served {
			r.bringBack(ctx, g)
		}
	})
	return nil
}

// adoptAll makes targets of all services that are there, on the network that is
// there.
func (g *generation) adoptAll(there objects) error {
	g.network = networkOf(g.st, there)
	for i := range g.services {
		s := &g.services[i]
		if err := g.adoptService(s, there.container(containerName(g.st, s.Name, g.number))); err != nil {
			return err
		}
	}
	return nil
}

// adoptService makes a target of a service that is there: a site, or a
// container that runs.
func (g *generation) adoptService(s *stack.Service, c docker.Container) error {
	if s.IsStatic() {
		return g.openSite(s, site.Reopen)
	}
	if !c.Running {
		return nil
	}
	p := g.newProcess(s, c.ID)
	if err := p.adopt(c); err != nil {
		return err
	}
	g.add(p)
	g.setTarget(s.Name, p.newTarget())
	return nil
}

// complete tells whether every service has a target.
func (g *generation) complete() bool {
	for i := range g.services {
		if g.target(g.services[i].Name) == nil {
			return false
		}
	}
	return true
}

// bringBack starts the services of a live stack that are not there, from their
// images, and records that the stack serves again.
func (r *runner) bringBack(ctx context.Context, g *generation) {
	err := g.inOrder(ctx, func(ctx context.Context, s *stack.Service) error {
		if g.target(s.Name) != nil {
			return nil
		}
		return g.bringUp(ctx, s, false)
	})
	if err == nil {
		err = g.restored(ctx)
	}
	r.attempted(ctx, g, err, r.recover)
}

// attempted sees to the end of an attempt to bring a stack back. One that failed
// since the engine went away is made again once it answers.
func (r *runner) attempted(ctx context.Context, g *generation, err error, again func(context.Context)) {
	switch {
	case err == nil:
	case ctx.Err() == nil && r.left(ctx, g.absence):
		g.release()
		if r.awaitEngine(ctx) {
			again(ctx)
		}
	default:
		r.restoreFailed(ctx, g, err)
	}
}

// hostRetry is when what a fault of the host kept from being done is tried again.
const hostRetry = 5 * time.Second

// restored records that the generation serves again, and routes to it.
func (g *generation) restored(ctx context.Context) error {
	st, err := g.update(ctx, func(st *stack.Stack) ([]stack.Event, error) { return st.Restored(g.URLs) })
	if err != nil {
		return err
	}
	failpoint.Here("restore-committed")
	g.swap(g)
	g.drainAll(g.route(st, g))
	g.watch()
	return nil
}

// restoreFailed ends a stack that could not be brought back, unless the context
// ended: then it is left to whoever ended it.
func (r *runner) restoreFailed(ctx context.Context, g *generation, cause error) {
	if ctx.Err() != nil || gone(cause) {
		g.release()
		return
	}
	r.Log.Info("stack not brought back", "stack", r.id, "generation", g.number, "error", cause)
	reason := r.explain(cause)
	st, err := r.update(ctx, func(st *stack.Stack) ([]stack.Event, error) { return st.RestoreFailed(reason) })
	if err != nil {
		r.Log.Error("failed restore not recorded", "stack", r.id, "error", errors.Join(err, cause))
		return
	}
	r.swap(g)
	r.takeDown(ctx, st)
}

// restore brings a claimed stack back from what was kept of it: data, images
// and sites. Nothing is built.
func (r *runner) restore(ctx context.Context) {
	st, err := r.get(ctx)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		r.Log.Error("restore not begun", "stack", r.id, "error", err)
		return
	}
	g := r.generation(st, st.Generation, st.Services)
	r.attempted(ctx, g, g.comeBack(ctx), r.restore)
	g.dropRestored(ctx) // after all else: the engine makes no container meanwhile
}

// notBuilt is why a stack without a build that succeeded cannot be brought back.
const notBuilt = "no build of the stack had succeeded when it expired, so there is nothing to bring back; upload the source again"

func (g *generation) comeBack(ctx context.Context) error {
	if !g.st.Built() {
		return stack.NewError(stack.Conflict, strings.TrimPrefix(g.st.Error+"\n"+notBuilt, "\n"))
	}
	err := g.inOrder(ctx, func(ctx context.Context, s *stack.Service) error {
		if err := g.bringUp(ctx, s, false); err != nil {
			return err
		}
		failpoint.Here("service-restored")
		return g.ready(ctx, s)
	})
	if err != nil {
		return err
	}
	return g.restored(ctx)
}
