package supervisor

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/site"
	"github.com/berth-host/berth/internal/stack"
)

// generation is one generation of a stack: on its way to being served, served,
// or on its way out.
type generation struct {
	runner   *runner
	cfg      *Config
	log      *slog.Logger
	st       *stack.Stack // as it was when the handle was made
	number   int
	services []stack.Service
	absence  int64 // of the engine, the last one before the handle was made

	source      string                      // folder of the unpacked archive while it is built
	network     string                      // the name of its network
	makeNetwork func(context.Context) error // when it is first needed

	reopened map[*stack.Service]*site.Site // whose trees are still to be read

	mu        sync.Mutex
	processes map[string]*process
	targets   map[string]*proxy.Target
}

// generation is the handle of one generation of the stack, with nothing
// brought up yet.
func (r *runner) generation(st *stack.Stack, number int, services []stack.Service) *generation {
	g := &generation{
		runner:    r,
		cfg:       r.cfg,
		log:       r.log,
		st:        st,
		number:    number,
		services:  slices.Clone(services),
		absence:   r.sup.absences.Load(),
		network:   engine.Key{Stack: st.ID, Generation: number}.Network(),
		processes: map[string]*process{},
		targets:   map[string]*proxy.Target{},
		reopened:  map[*stack.Service]*site.Site{},
	}
	g.makeNetwork = once(g.ensureNetwork)
	return g
}

// inOrder runs do for every service side by side, each once those that it
// depends on are done.
func (g *generation) inOrder(ctx context.Context, do func(context.Context, *stack.Service) error) error {
	done := map[string]chan struct{}{}
	specs := make([]stack.Spec, len(g.services))
	for i, s := range g.services {
		specs[i] = s.Spec
		done[s.Spec.Name] = make(chan struct{})
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, i := range stack.InOrder(specs) {
		s := &g.services[i]
		group.Go(func() error {
			for _, dependency := range s.Spec.DependsOn {
				select {
				case <-done[dependency]:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			if err := do(ctx, s); err != nil {
				return err
			}
			close(done[s.Spec.Name])
			return nil
		})
	}
	return group.Wait()
}

// recordEvent writes one event of the deploy.
func (g *generation) recordEvent(ctx context.Context, event stack.Event) error {
	_, err := g.runner.update(ctx, func(*stack.Stack) ([]stack.Event, error) { return []stack.Event{event}, nil })
	return err
}

// recordReady records that a service serves.
func (g *generation) recordReady(ctx context.Context, s *stack.Service) error {
	_, err := g.runner.update(ctx, func(st *stack.Stack) ([]stack.Event, error) {
		return []stack.Event{st.Ready(s.Spec.Name, g.cfg.URLs.Service(st, s.Spec.Name))}, nil
	})
	return err
}

// bringUp starts a service and waits until it can serve. The release command
// comes before its process when the generation is new.
func (g *generation) bringUp(ctx context.Context, s *stack.Service, isNew bool) error {
	if s.Spec.IsStatic() {
		opened, err := g.openSite(s, site.Open)
		if err == nil {
			s.SiteFiles, s.SiteBytes = opened.Extent().Files, opened.Extent().Bytes
		}
		return err
	}
	if err := g.prepare(ctx, s); err != nil {
		return err
	}
	if isNew && s.Spec.Release != "" {
		if err := g.runRelease(ctx, s); err != nil {
			return err
		}
	}
	p, err := g.startProcess(ctx, s, s.Spec.Name)
	if err != nil {
		return err
	}
	g.setProcess(p)
	failpoint.Here("process-started")
	if err := p.waitHealthy(ctx); err != nil {
		return err
	}
	failpoint.Here("process-healthy")
	g.setTarget(s.Spec.Name, p.newTarget())
	return nil
}

// prepare makes what the service's containers need: the network and the data.
func (g *generation) prepare(ctx context.Context, s *stack.Service) error {
	var group errgroup.Group
	group.Go(func() error { return ofHost(g.makeNetwork(ctx)) })
	group.Go(func() error { return g.restoreData(ctx, s) })
	return group.Wait()
}

// openSite makes a static service a target, opening its folder as open does.
func (g *generation) openSite(s *stack.Service, open func(string, site.Options) (*site.Site, error)) (*site.Site, error) {
	opened, err := open(g.cfg.Dir.Site(g.st.ID, s.Spec.Name, s.Site), site.Options{
		SPA:       string(s.Spec.SPA),
		Published: site.Extent{Files: s.SiteFiles, Bytes: s.SiteBytes},
		Log:       g.cfg.Log,
	})
	if err != nil {
		return nil, g.attributeSite(s, err)
	}
	g.setTarget(s.Spec.Name, proxy.NewHandler(opened))
	return opened, nil
}

// attributeSite returns why a site cannot be served: unless the host is at fault, its
// files are.
func (g *generation) attributeSite(s *stack.Service, err error) error {
	if isOfHost(err) {
		return err
	}
	g.log.Error("published files of a stack are missing or broken", "service", s.Spec.Name, "error", err)
	return serviceError(s, "the files that it publishes are missing or broken on this host; upload the source again")
}

func (g *generation) setProcess(p *process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.processes[p.service.Spec.Name] = p
}

func (g *generation) setTarget(service string, target *proxy.Target) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.targets[service] = target
}

// dropTarget makes a service that has the target have none.
func (g *generation) dropTarget(service string, target *proxy.Target) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.targets[service] == target {
		g.targets[service] = nil
	}
}

// target is where a service's requests go; nil while it serves none.
func (g *generation) target(service string) *proxy.Target {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.targets[service]
}

// process is a service's process; nil when it has none.
func (g *generation) process(service string) *process {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.processes[service]
}

// allProcesses are the processes there are.
func (g *generation) allProcesses() []*process {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.processes))
}

// watchAll has every process restarted when it crashes, from now on.
func (g *generation) watchAll() {
	for _, p := range g.allProcesses() {
		p.watch()
	}
}

// letGo lets go of the processes without ending them: nobody restarts them
// or follows their logs any more.
func (g *generation) letGo() {
	for _, p := range g.unwatchAll() {
		p.unfollow()
	}
}

// endAll stops every process and removes the containers.
func (g *generation) endAll(ctx context.Context) error {
	return removeAll(ctx, g.unwatchAll())
}

// abandon takes down what a failed deploy had made, release commands included.
// When ctx ends before, whoever ended it takes down the rest.
func (g *generation) abandon(ctx context.Context) {
	err := g.runner.sup.retryEngine(ctx, func() error {
		return errors.Join(removeAll(ctx, g.allProcesses()), g.runner.sup.stopContainers(ctx, g.key("")), g.discardObjects(context.WithoutCancel(ctx)))
	})
	if err != nil && ctx.Err() == nil {
		g.log.Error("failed generation not removed; the next start tries again", "generation", g.number, "error", err)
	}
}

// discardObjects removes the network, the images and the sites of the generation.
func (g *generation) discardObjects(ctx context.Context) error {
	left := engine.Objects{Networks: []engine.Network{{Name: g.network}}}
	var errs []error
	for i := range g.services {
		name := g.services[i].Spec.Name
		left.Images = append(left.Images, engine.Image{Tags: []string{g.key(name).Image()}})
		errs = append(errs, os.RemoveAll(g.cfg.Dir.Site(g.st.ID, name, g.number)))
	}
	return errors.Join(append(errs, g.cfg.Engine.Discard(ctx, left))...)
}

// key says whose the objects of a service of the generation are; with service "",
// those that its services share.
func (g *generation) key(service string) engine.Key {
	return engine.Key{Stack: g.runner.id, Service: service, Generation: g.number}
}
