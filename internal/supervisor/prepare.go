package supervisor

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/berth-host/berth/internal/builder"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/stack"
)

const (
	preparePause = 200 * time.Millisecond // between attempts to begin
	prepareTries = 300

	// readyWait is how long containers are ready for the builds of the next deploy. Whoever
	// edits a program deploys it again within that, or thinks for longer than they save.
	readyWait = 2 * time.Minute
	// maxReady is how many stacks may have such containers at once.
	maxReady = 4
)

// prepareLater prepares for the next deploy, once nothing else is being done with the
// stack. No deploy waits for that.
func (r *runner) prepareLater() {
	r.sup.jobs.Go(func() {
		for range prepareTries {
			if !pause.For(r.ctx, preparePause) || r.startYielding(r.prepare) {
				return
			}
		}
	})
}

// prepare is the job that does ahead what the next deploy would have to do. Any other job
// stops it.
func (r *runner) prepare(ctx context.Context) {
	layered := make(chan struct{})
	r.goAside(func() {
		defer close(layered)
		r.layerSource(r.ctx)
	})
	select {
	case <-layered:
		r.holdReady(ctx)
	case <-ctx.Done():
	}
}

// settled returns the stack if it is live with a source that the next deploy may build on;
// nil otherwise. It tries once: what it is asked for can wait for the next deploy.
func (r *runner) settled(ctx context.Context) *stack.Stack {
	st, err := r.cfg.Store.Get(ctx, r.id)
	if err != nil || st.Status != stack.Live || st.Deploying != 0 || st.Generation.Source.Folder == "" {
		return nil
	}
	return st
}

// errDeployFollows is why a job that yields ends, if what follows is a deploy.
var errDeployFollows = errors.New("a deploy follows")

// holdReady makes containers for the next builds, and waits for a deploy to use them.
// It removes them if something else follows, or nothing does for a while. A first deploy
// is often the last, so only a later one has them made.
func (r *runner) holdReady(ctx context.Context) {
	st := r.settled(ctx)
	if st == nil || st.Generation.Number == 1 || !r.sup.ready.TryAcquire(1) {
		return
	}
	defer r.sup.ready.Release(1)
	next := r.makeReady(st)
	if len(next.builds) == 0 {
		return
	}
	r.holding.Store(next)
	defer r.holding.Store(nil)
	if pause.For(ctx, trimPause) {
		r.trimCaches(ctx)
		pause.For(ctx, readyWait-trimPause)
	}
	if context.Cause(ctx) == errDeployFollows { //nolint:errorlint // it is never wrapped
		r.ready = next
		return
	}
	next.discard()
}

// ready are containers for the builds of the next deploy.
type ready struct {
	generation *generation               // the next; only its networks exist
	builds     map[string]*builder.Ready // by service
}

// makeReady starts to make the containers of the services that are built by a command.
func (r *runner) makeReady(st *stack.Stack) *ready {
	made := st.Generation
	made.Number++
	g := r.generation(st, made)
	g.ahead = true
	next := &ready{generation: g, builds: map[string]*builder.Ready{}}
	for i := range g.made.Services {
		s := &g.made.Services[i]
		build, err := r.cfg.Builder.Ready(r.ctx, builder.Job{
			Stack:      st,
			Spec:       &s.Spec,
			Generation: g.made.Number,
			Source:     r.cfg.Dir.Source(r.id, st.Generation.Source.Folder),
			Digest:     st.Generation.Source.Digest,
			Network:    g.makeNetworks,
			Env:        g.environment().Build(&s.Spec),
			Log:        io.Discard,
			Layer:      st.Layers[s.Spec.Name],
			Listing:    g.listing(s),
		})
		if err != nil {
			r.log.Warn("no container made ahead for the next build", "service", s.Spec.Name, "error", err)
		}
		if build != nil {
			next.builds[s.Spec.Name] = build
		}
	}
	return next
}

// discard removes the containers, and the networks that were made with them.
func (n *ready) discard() {
	n.discardObjects(engine.Objects{Networks: []engine.Network{{Name: n.generation.buildNetwork()}, {Name: n.generation.network}}})
}

// discardContainers removes the containers, even if builds have used them.
func (n *ready) discardContainers() { n.discardObjects(engine.Objects{}) }

// discardObjects removes the containers, then what else objects has. Of a deleted stack all
// is removed anyway, once nothing is being made any more.
func (n *ready) discardObjects(objects engine.Objects) {
	r := n.generation.runner
	for _, build := range n.builds {
		if id := build.Abandon(); id != "" {
			objects.Containers = append(objects.Containers, engine.Container{ID: id})
		}
	}
	r.discardOfBuilds(objects)
}

// discardOfBuilds removes what only builds need.
func (r *runner) discardOfBuilds(objects engine.Objects) {
	if r.deleted.Load() {
		return
	}
	if err := r.cfg.Engine.Discard(context.WithoutCancel(r.ctx), objects); err != nil {
		r.log.Warn("containers or networks of builds not removed; trying again later", "error", err)
	}
}

// discardReady gives back the networks of what is held for the next deploys.
func (s *Supervisor) discardReady(ctx context.Context) {
	for _, r := range s.everyRunner() {
		if r.holding.Load() != nil {
			r.doIdle(ctx, func(context.Context) {}) // a job that holds something yields to any other
		}
	}
}

// exceptReady leaves out what is held for the builds of the next deploy.
func (r *runner) exceptReady(there engine.Objects) engine.Objects {
	held := r.holding.Load()
	if held == nil {
		return there
	}
	there.Containers = slices.DeleteFunc(slices.Clone(there.Containers), func(c engine.Container) bool {
		key := engine.Key{Stack: r.id, Service: c.Key.Service}
		return held.builds[key.Service] != nil && c.Name == key.Build()
	})
	there.Networks = slices.DeleteFunc(slices.Clone(there.Networks), func(n engine.Network) bool {
		return n.Name == held.generation.network || n.Name == held.generation.buildNetwork()
	})
	return there
}
