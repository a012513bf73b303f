package supervisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/berth-host/berth/internal/build"
	"github.com/berth-host/berth/internal/logfile"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
)

// deploy builds the stack's first generation and brings it up. Whatever goes
// wrong, the stack ends live or failed; when the context ends, because the
// stack was deleted or the server stops, it is left to whoever ended it.
func (r *runner) deploy(ctx context.Context) {
	st, err := r.Store.Get(ctx, r.id)
	if err == nil {
		err = r.generation(st, st.Deploying).deploy(ctx)
	}
	if err == nil || ctx.Err() != nil || gone(err) {
		return
	}
	r.failed(ctx, err)
}

// gone tells whether an error means that the stack was deleted.
func gone(err error) bool {
	var own *stack.Error
	return errors.As(err, &own) && own.Kind == stack.NotFound
}

// failed ends a deploy that did not work.
func (r *runner) failed(ctx context.Context, cause error) {
	st, err := r.update(ctx, func(st *stack.Stack) ([]stack.Event, error) {
		return st.DeployFailed(r.explain(cause))
	})
	if err != nil {
		r.Log.Error("failed deploy not recorded", "stack", r.id, "error", errors.Join(err, cause))
		return
	}
	r.route(st, nil)
	// A delete waits for this, so that it never meets a removal half done.
	ctx = context.WithoutCancel(ctx)
	err = errors.Join(r.removeGenerations(ctx, st, 0), r.Engine.RemoveNetwork(ctx, build.NetworkName(st)))
	if err != nil {
		r.Log.Error("failed generation not removed; the next start tries again", "stack", r.id, "error", err)
	}
}

// explain is what the owner reads of an error: its own words when it is theirs
// to mend, otherwise that it is not.
func (r *runner) explain(err error) string {
	var own *stack.Error
	if errors.As(err, &own) {
		return own.Detail
	}
	r.Log.Error("deploy failed for a reason of the host", "stack", r.id, "error", err)
	return "the host could not finish the deploy; this is not the fault of your source: try again in a minute"
}

// generation is one generation on its way to being served.
type generation struct {
	*runner
	st       *stack.Stack
	number   int
	services []stack.Service

	network   func(context.Context) error
	after     sync.WaitGroup // work that the deploy does not wait for, only its end
	mu        sync.Mutex
	later     []func() // clean-up for when the generation serves, or has failed
	processes map[string]*process
	targets   map[string]*proxy.Target
}

// deploy is the whole way: build all, start all, switch, clean up.
func (g *generation) deploy(ctx context.Context) error {
	defer g.cleanUp()
	if g.needsNetwork() {
		// Made beside the copying of the source, not before it. Whoever needs the
		// network asks again and gets the error.
		g.after.Go(func() { _ = g.network(ctx) })
	}
	err := g.build(ctx)
	if err == nil {
		err = g.start(ctx)
	}
	if err == nil {
		err = g.serve(ctx)
	}
	if err != nil {
		g.abandon()
		return err
	}
	return nil
}

// cleanUpLater keeps clean-up off the way to serving.
func (g *generation) cleanUpLater(do func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.later = append(g.later, do)
}

func (g *generation) needsNetwork() bool {
	return slices.ContainsFunc(g.services, func(s stack.Service) bool { return !s.IsStatic() || s.Builds() })
}

// inOrder runs do for every service side by side, each once those that it
// depends on are done.
func (g *generation) inOrder(ctx context.Context, do func(context.Context, *stack.Service) error) error {
	done := map[string]chan struct{}{}
	specs := make([]stack.Spec, len(g.services))
	for i, s := range g.services {
		specs[i] = s.Spec
		done[s.Name] = make(chan struct{})
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, i := range stack.InOrder(specs) {
		s := &g.services[i]
		group.Go(func() error {
			for _, dependency := range s.DependsOn {
				select {
				case <-done[dependency]:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			if err := do(ctx, s); err != nil {
				return err
			}
			close(done[s.Name])
			return nil
		})
	}
	return group.Wait()
}

// build makes every service's image or folder.
func (g *generation) build(ctx context.Context) error {
	return g.inOrder(ctx, func(ctx context.Context, s *stack.Service) error {
		log, err := logfile.Create(g.logPath(g.st, s.Name, "build"), g.LogMax, "== earlier output is left out: the log is full\n")
		if err != nil {
			return err
		}
		defer log.Close()
		if err := source.WritePlan(log, s.Spec); err != nil {
			return err
		}
		result, err := g.Builder.Build(ctx, build.Job{
			Stack:      g.st,
			Spec:       &s.Spec,
			Generation: g.number,
			Source:     g.sourceDir(g.st),
			Site:       g.siteDir(g.st, s.Name, g.number),
			Network:    g.network,
			Env:        g.env(s),
			Labels:     g.labels(g.st, s.Name),
			Log:        log,
			After:      g.cleanUpLater,
			Started:    func() error { return g.record(ctx, stack.ServiceBuilding(s.Name, g.number)) },
		})
		if err != nil {
			return err
		}
		s.Image = result.Image
		if s.IsStatic() {
			s.Site = g.number
		}
		return nil
	})
}

// record writes one event of the deploy.
func (g *generation) record(ctx context.Context, event stack.Event) error {
	_, err := g.update(ctx, func(*stack.Stack) ([]stack.Event, error) { return []stack.Event{event}, nil })
	return err
}

// start brings every service up and waits until each is healthy.
func (g *generation) start(ctx context.Context) error {
	return g.inOrder(ctx, func(ctx context.Context, s *stack.Service) error {
		target, err := g.bringUp(ctx, s)
		if err != nil {
			return err
		}
		g.mu.Lock()
		g.targets[s.Name] = target
		g.mu.Unlock()
		_, err = g.update(ctx, func(st *stack.Stack) ([]stack.Event, error) {
			return []stack.Event{st.Ready(s.Name, g.URLs.Service(st, s.Name))}, nil
		})
		return err
	})
}

// bringUp returns the target of a service that is ready to serve.
func (g *generation) bringUp(ctx context.Context, s *stack.Service) (*proxy.Target, error) {
	if s.IsStatic() {
		return g.openSite(g.st, s)
	}
	if err := g.network(ctx); err != nil {
		return nil, err
	}
	if s.Release != "" {
		if err := g.runRelease(ctx, s); err != nil {
			return nil, err
		}
	}
	p, err := g.run(ctx, s)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	g.processes[s.Name] = p
	g.mu.Unlock()
	if err := p.waitHealthy(ctx); err != nil {
		return nil, err
	}
	return p.target(), nil
}

// serve sends the traffic to the generation and records that it is live.
func (g *generation) serve(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	g.keep(g.processes)
	st, err := g.update(ctx, func(st *stack.Stack) ([]stack.Event, error) {
		events, err := st.Deployed(g.services, g.URLs, stack.Now())
		if err == nil {
			g.route(st, g.targets)
		}
		return events, err
	})
	if err != nil {
		g.route(g.st, nil)
		return err
	}
	g.Log.Info("stack is live", "stack", g.id, "generation", st.Generation)
	return nil
}

// abandon takes down what a failed deploy had brought up. What it leaves when
// the engine does not answer is removed with the generation.
func (g *generation) abandon() {
	ctx := context.WithoutCancel(g.ctx)
	for _, p := range g.processes {
		if err := p.remove(ctx, 0); err != nil {
			g.Log.Error("process of a failed deploy not removed", "stack", g.id, "service", p.service.Name, "error", err)
		}
	}
}

// cleanUp removes what only the build needed, and waits for what goes on beside
// the deploy.
func (g *generation) cleanUp() {
	for _, do := range g.later {
		g.after.Go(do)
	}
	g.after.Wait()
	if err := os.RemoveAll(g.sourceDir(g.st)); err != nil {
		g.Log.Error("source of a finished build not removed", "stack", g.id, "error", err)
	}
}

// once makes fn run a single time, when it is first called; every caller waits
// for it and gets its error.
func once(fn func(context.Context) error) func(context.Context) error {
	var (
		do  sync.Once
		err error
	)
	return func(ctx context.Context) error {
		do.Do(func() { err = fn(ctx) })
		return err
	}
}

// labels are those of everything made for a service; of the whole stack when
// service is empty.
func (s *Supervisor) labels(st *stack.Stack, service string) map[string]string {
	labels := maps.Clone(s.Labels)
	labels[build.LabelStack] = st.ID
	if service != "" {
		labels[build.LabelService] = service
	}
	return labels
}

// errInterrupted is why a build failed that a dead server left.
func errInterrupted(generation int) string {
	return fmt.Sprintf("the server was restarted while generation %d was being built; upload the source again", generation)
}
