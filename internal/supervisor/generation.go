package supervisor

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/berth-host/berth/internal/builder"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/site"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// generation is one generation of a stack: about to be served, served, or about to end.
type generation struct {
	runner  *runner
	cfg     *Config
	log     *slog.Logger
	st      *stack.Stack // as it was when the handle was created
	made    stack.Generation
	absence int64 // the engine's last one before the handle was created

	progress *progress // of its deploy; nil if there is none

	ahead            bool                        // its deploy has not begun: it takes over nothing
	network          string                      // its name
	makeNetwork      func(context.Context) error // makes the network, the first time
	makeBuildNetwork func(context.Context) error // makes that of the builds, the first time

	reopened map[*stack.Service]*site.Site // sites whose trees are still to be read

	unnoticed bool // another process took the server's place, of which nobody is told

	restored store.Tries // the change that records that it serves again

	// before has the databases that go on from it, until the generation has them. It is nil
	// before the switch, and after.
	before atomic.Pointer[generation]

	mu        sync.Mutex
	volumes   map[string]int // numbers of data volumes by service, as in the row
	processes map[string]*process
	targets   map[string]*proxy.Target
}

// generation returns the handle of one generation of the stack. Nothing of it is
// brought up yet.
func (r *runner) generation(st *stack.Stack, made stack.Generation) *generation {
	made.Services = slices.Clone(made.Services)
	g := &generation{
		runner:    r,
		cfg:       r.cfg,
		log:       r.log,
		st:        st,
		made:      made,
		absence:   r.sup.absences.Load(),
		network:   engine.Key{Stack: st.ID, Generation: made.Number}.Network(),
		volumes:   maps.Clone(st.DataVolumes),
		processes: map[string]*process{},
		targets:   map[string]*proxy.Target{},
		reopened:  map[*stack.Service]*site.Site{},
	}
	g.makeNetwork = once(g.ensureNetwork)
	g.makeBuildNetwork = once(g.ensureBuildNetwork)
	return g
}

// inOrder runs do for all services side by side, each service after the ones it depends on.
func (g *generation) inOrder(ctx context.Context, do func(context.Context, *stack.Service) error) error {
	done := map[string]chan struct{}{}
	specs := make([]stack.Spec, len(g.made.Services))
	for i, s := range g.made.Services {
		specs[i] = s.Spec
		done[s.Spec.Name] = make(chan struct{})
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, i := range stack.InOrder(specs) {
		s := &g.made.Services[i]
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

// recordReady records that a service serves again.
func (g *generation) recordReady(ctx context.Context, s *stack.Service) error {
	_, err := g.runner.update(ctx, func(st *stack.Stack) ([]stack.Event, error) {
		return []stack.Event{g.ready(st, s)}, nil
	})
	return err
}

// ready notes in the row that a service serves, and returns the event.
func (g *generation) ready(st *stack.Stack, s *stack.Service) stack.Event {
	return st.Ready(s.Spec.Name, g.cfg.URLs.Service(st, s.Spec.Name))
}

// bringUp starts a service and waits until it can serve. If the generation is new, the
// release command runs before the process starts.
func (g *generation) bringUp(ctx context.Context, s *stack.Service, isNew bool) error {
	if s.Spec.IsStatic() {
		opened, err := g.openSite(s, site.Open)
		if err == nil {
			s.SiteFiles, s.SiteBytes = opened.Extent().Files, opened.Extent().Bytes
		}
		return err
	}
	var network sync.WaitGroup
	network.Go(func() { _ = g.makeNetwork(ctx) }) // while the container is made, which awaits it
	defer network.Wait()
	if err := g.restoreData(ctx, s); err != nil {
		return err
	}
	if isNew && s.Spec.Release != "" {
		if err := g.runRelease(ctx, s); err != nil {
			return err
		}
		g.progress.enter(s.Spec.Name, stack.PhaseStart)
	}
	p, err := g.startProcess(ctx, s, s.Spec.Name)
	if err != nil {
		return err
	}
	g.setProcess(p)
	failpoint.Here("process-started")
	g.progress.enter(s.Spec.Name, stack.PhaseHealth)
	if err := p.waitHealthy(ctx); err != nil {
		return err
	}
	failpoint.Here("process-healthy")
	p.becomeTarget()
	return nil
}

// openSite makes a static service a target; open opens its folder.
func (g *generation) openSite(s *stack.Service, open func(string, site.Options) (*site.Site, error)) (*site.Site, error) {
	dir, hidden, err := g.siteFolder(s)
	if err != nil {
		return nil, g.attributeSite(s, err)
	}
	opened, err := open(dir, site.Options{
		SPA:       string(s.Spec.SPA),
		Hidden:    hidden,
		Published: site.Extent{Files: s.SiteFiles, Bytes: s.SiteBytes},
		Log:       g.cfg.Log,
	})
	if err != nil {
		return nil, g.attributeSite(s, err)
	}
	g.setTarget(s.Spec.Name, proxy.NewHandler(opened))
	return opened, nil
}

// siteFolder returns the folder that a static service serves, and the names in it that
// are not served.
func (g *generation) siteFolder(s *stack.Service) (dir string, hidden []string, err error) {
	dir = g.cfg.Dir.Site(g.st.ID, s.Spec.Name, s.Site)
	if !s.Linked {
		return dir, nil, nil
	}
	return builder.Linked(dir, g.cfg.Dir.Source(g.st.ID, g.made.Source.Folder))
}

// attributeSite returns why a site cannot be served: its files are to blame unless the
// host is.
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

// dropTarget removes the target of a service if it is the given one.
func (g *generation) dropTarget(service string, target *proxy.Target) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.targets[service] == target {
		g.targets[service] = nil
	}
}

// target returns where a service's requests go; nil while nothing serves them.
func (g *generation) target(service string) *proxy.Target {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.targets[service]
}

// process returns a service's process, or nil if it has none.
func (g *generation) process(service string) *process {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.processes[service]
}

// allProcesses returns the processes that there are.
func (g *generation) allProcesses() []*process {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.processes))
}

// watchAll watches every process, as watch does.
func (g *generation) watchAll() {
	for _, p := range g.allProcesses() {
		p.watch()
	}
}

// letGo leaves the processes running, but nobody watches them or follows their logs any
// more. They may be adopted.
func (g *generation) letGo() {
	for _, p := range g.unwatchAll() {
		p.letGo()
	}
}

// endAll stops every process and removes the containers.
func (g *generation) endAll(ctx context.Context) error {
	return endInTurn(g.unwatchAll(), (*process).isDatabase, func(p *process) error { return p.endAndRemove(ctx) })
}

// abandon removes what a failed deploy has made, release commands included. If ctx ends
// first, whoever ended it removes the rest.
func (g *generation) abandon(ctx context.Context) {
	log := g.log.With("generation", g.made.Number)
	g.runner.sup.finishOnEngine(ctx, log, "failed generation not removed; the next start tries again", func() error {
		return errors.Join(g.endAll(ctx), g.runner.sup.stopContainers(ctx, g.key("")), g.discard(context.WithoutCancel(ctx), g.ownObjects()))
	})
}

// discard removes the network of the generation, and the images, sites and source that it
// need not share with another one.
func (g *generation) discard(ctx context.Context, left leftovers) error {
	left.objects.Networks = append(left.objects.Networks, engine.Network{Name: g.network})
	return g.runner.sup.discardLeftovers(ctx, left)
}

// ownObjects returns what the build of the generation made itself: images, sites and the
// network of the builds.
func (g *generation) ownObjects() (left leftovers) {
	left.objects.Networks = []engine.Network{{Name: g.buildNetwork()}}
	for i := range g.made.Services {
		name := g.made.Services[i].Spec.Name
		left.objects.Images = append(left.objects.Images, engine.Image{Tags: []string{g.key(name).Image(g.made.Attempt)}})
		left.files = append(left.files, g.cfg.Dir.Site(g.st.ID, name, g.made.Attempt))
	}
	return left
}

// notIn returns the images and sites of the generation that the row does not name any
// more.
func (g *generation) notIn(row *stack.Stack) (left leftovers) {
	for i := range g.made.Services {
		s := &g.made.Services[i]
		switch {
		case s.Spec.IsStatic() && !row.Generation.UsesSite(s.Spec.Name, s.Site):
			left.files = append(left.files, g.cfg.Dir.Site(g.st.ID, s.Spec.Name, s.Site))
		case s.Spec.Database() != nil: // its image is not the stack's
		case !s.Spec.IsStatic() && !row.KeepsImage(s.Image):
			left.objects.Images = append(left.objects.Images, engine.Image{Tags: []string{s.Image}})
		}
	}
	return left
}

// data returns the key of a service with the number of its data volume.
func (g *generation) data(service string) engine.Key {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := g.key(service)
	key.Volume = g.volumes[service]
	return key
}

// setVolume gives the next processes of a service a data volume by its number, and returns
// the number of the one before.
func (g *generation) setVolume(service string, number int) (before int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.volumes == nil {
		g.volumes = map[string]int{}
	}
	before, g.volumes[service] = g.volumes[service], number
	return before
}

// key returns the key of the objects of a service in this generation. The service ""
// stands for what the services share.
func (g *generation) key(service string) engine.Key {
	return engine.Key{Stack: g.runner.id, Service: service, Generation: g.made.Number}
}
