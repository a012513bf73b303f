package supervisor

import (
	"context"
	"errors"
	"slices"

	"github.com/berth-host/berth/internal/docker"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/site"
	"github.com/berth-host/berth/internal/stack"
)

// interrupted fails a first build that an earlier server did not finish.
func (r *runner) interrupted(ctx context.Context) error {
	st, err := r.update(ctx, func(st *stack.Stack) ([]stack.Event, error) {
		return st.DeployFailed(errInterrupted(st.Deploying))
	})
	if err != nil {
		return err
	}
	r.route(st, nil)
	return r.removeGenerations(ctx, st, 0)
}

// adopt serves a live stack again. Services whose containers still run are
// routed at once, their processes untouched; a stack of which every service is
// there is restored before adopt returns, another one in the background.
func (r *runner) adopt(ctx context.Context, st *stack.Stack) error {
	g := r.generation(st, st.Generation)
	for i := range g.services {
		if err := g.adoptService(ctx, &g.services[i]); err != nil {
			return err
		}
	}
	g.keep(g.processes)
	g.route(st, g.targets)
	if len(g.targets) == len(g.services) {
		_, err := g.restored(ctx)
		return err
	}
	r.start(g.restore)
	return nil
}

// adoptService routes one service that is there: a site, or a container that
// runs.
func (g *generation) adoptService(ctx context.Context, s *stack.Service) error {
	if s.IsStatic() {
		target, err := g.openSite(g.st, s)
		if err != nil {
			return err
		}
		g.targets[s.Name] = target
		return nil
	}
	c, err := g.Engine.Inspect(ctx, containerName(g.st, s.Name, g.number))
	if errors.Is(err, docker.ErrNotFound) || (err == nil && !c.Running) {
		return nil
	}
	if err != nil {
		return err
	}
	p := g.process(g.st, s, c.ID)
	if err := p.adopt(c); err != nil {
		return err
	}
	g.processes[s.Name] = p
	g.targets[s.Name] = p.target()
	return nil
}

// restore starts the services that did not survive, from their images, and
// records that the stack serves again.
func (g *generation) restore(ctx context.Context) {
	err := g.inOrder(ctx, g.revive)
	if err == nil {
		g.keep(g.processes)
		g.route(g.st, g.targets)
		_, err = g.restored(ctx)
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	st, updateErr := g.update(ctx, func(st *stack.Stack) ([]stack.Event, error) {
		return st.RestoreFailed(g.explain(err))
	})
	if updateErr != nil {
		g.Log.Error("failed restore not recorded", "stack", g.id, "error", errors.Join(updateErr, err))
		return
	}
	g.route(st, nil)
	g.abandon()
}

// revive brings up one service that was not adopted.
func (g *generation) revive(ctx context.Context, s *stack.Service) error {
	g.mu.Lock()
	there := g.targets[s.Name] != nil
	g.mu.Unlock()
	if there {
		return nil
	}
	p, err := g.bringUp(ctx, s)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.targets[s.Name] = p
	return nil
}

func (g *generation) restored(ctx context.Context) (*stack.Stack, error) {
	return g.update(ctx, func(st *stack.Stack) ([]stack.Event, error) { return st.Restored(g.URLs) })
}

// generation is the handle of one generation of the stack, with nothing
// brought up yet.
func (r *runner) generation(st *stack.Stack, number int) *generation {
	g := &generation{
		runner:    r,
		st:        st,
		number:    number,
		services:  slices.Clone(st.Services),
		processes: map[string]*process{},
		targets:   map[string]*proxy.Target{},
	}
	g.network = once(func(ctx context.Context) error { return g.ensureNetwork(ctx, st) })
	return g
}

// openSite is the target of a static service.
func (r *runner) openSite(st *stack.Stack, s *stack.Service) (*proxy.Target, error) {
	opened, err := site.Open(r.siteDir(st, s.Name, s.Site), site.Options{SPA: string(s.SPA)})
	if err != nil {
		return nil, err
	}
	return proxy.NewHandler(opened), nil
}
