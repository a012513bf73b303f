package supervisor

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/stack"
)

// trimPause is how long after the last deploy of a stack the build caches are trimmed: the
// next deploy is often close behind.
const trimPause = 10 * time.Second

// trimLater trims the build caches that a deploy has filled, if any. What is not trimmed
// then is left to watchLeftovers.
func (r *runner) trimLater() {
	r.deployed.Store(time.Now().UnixNano())
	if len(r.cfg.Dir.Filled(r.id)) == 0 {
		return
	}
	r.sup.jobs.Go(func() {
		if pause.For(r.ctx, trimPause) {
			r.startTrim()
		}
	})
}

// startTrim starts to trim build caches if any may be too large, nothing is being done with
// the stack and its last deploy was a while ago. A deploy does not wait for it.
func (r *runner) startTrim() {
	quiet := time.Since(time.Unix(0, r.deployed.Load())) >= trimPause
	if quiet && len(r.cfg.Dir.Filled(r.id)) > 0 {
		r.startYielding(r.trimCaches)
	}
}

// trimCaches is the job that trims the build caches that may be too large.
func (r *runner) trimCaches(ctx context.Context) {
	st, err := r.get(ctx)
	if err != nil || st.Deploying != 0 {
		return
	}
	for _, service := range r.cfg.Dir.Filled(r.id) {
		if err := r.trimCache(ctx, st, service); err != nil && ctx.Err() == nil {
			r.log.Warn("build caches not trimmed; trying again later", "service", service, "error", err)
		}
	}
}

// trimCache trims the build caches of a service, and removes them if they cannot be trimmed:
// what a build left in them must not make them grow for ever.
func (r *runner) trimCache(ctx context.Context, st *stack.Stack, service string) error {
	key := engine.Key{Stack: r.id, Service: service}
	volumes, err := r.cfg.Engine.Volumes(ctx, key)
	if err != nil {
		return err
	}
	cache := engine.Volume{Name: key.Cache(st.CachesDropped), Key: key}
	if slices.Contains(volumes, cache) {
		err = r.cfg.Builder.TrimCache(ctx, st, service, trimmer(st, service), func(ctx context.Context) error {
			return r.forgetCached(ctx, service)
		})
	}
	if err != nil && ctx.Err() == nil && !isOfHost(err) {
		r.log.Warn("build caches that cannot be trimmed are removed", "service", service, "error", err)
		err = r.cfg.Engine.Discard(ctx, engine.Objects{Volumes: []engine.Volume{cache}})
	}
	if err != nil {
		return err
	}
	r.trims.Add(1)
	failpoint.Here("cache-trimmed")
	return r.cfg.Dir.UnmarkFilled(r.id, service)
}

// forgetCached drops the layer of a service whose install may have left all in the caches:
// the next build installs again.
func (r *runner) forgetCached(ctx context.Context, service string) error {
	_, err := r.update(ctx, func(st *stack.Stack) ([]stack.Event, error) {
		if st.Layers[service].Image == "" {
			st.Keep(service, stack.Layer{})
		}
		return nil, nil
	})
	return err
}

// trimmer returns the runtime whose base image trims the caches of a service: the
// service's own, or another's of the stack if the service was never served.
func trimmer(st *stack.Stack, service string) stack.Runtime {
	if s := st.Service(service); s != nil {
		return s.Spec.Base()
	}
	for i := range st.Generation.Services {
		if base := st.Generation.Services[i].Spec.Base(); base.Version != "" {
			return base
		}
	}
	return stack.Runtime{}
}

// reclaimWait is how long Reclaim may take: requests wait for it.
const reclaimWait = 30 * time.Second

// Reclaim removes what earlier builds left for later ones, until enough reports true: of
// the stacks that nothing is being done with, the one deployed longest ago first.
func (s *Supervisor) Reclaim(enough func() bool) {
	ctx, cancel := context.WithTimeout(s.ctx, reclaimWait)
	defer cancel()
	stacks, err := s.cfg.Store.Kept(ctx, s.cfg.Node)
	there, listErr := s.takeInventory(ctx, "")
	if err := errors.Join(err, listErr); err != nil {
		s.cfg.Log.Warn("no room made on the disk", "error", err)
		return
	}
	slices.SortFunc(stacks, func(a, b *stack.Stack) int { return a.DeployedAt.Compare(b.DeployedAt) })
	for _, st := range stacks {
		isCache := func(v engine.Volume) bool { _, isData := v.Key.DataNumber(v.Name); return !isData }
		if !st.HasUnusedLayer() && !slices.ContainsFunc(there[st.ID].Volumes, isCache) {
			continue
		}
		if r := s.lookup(st.ID); r != nil {
			r.reclaim(ctx)
		}
		if ctx.Err() != nil || enough() {
			return
		}
	}
}

// reclaim removes what earlier builds of the stack left for later ones, unless something
// else is being done with it. It returns when that is done or ctx ends.
func (r *runner) reclaim(ctx context.Context) {
	r.doIdle(ctx, func(ctx context.Context) {
		st, err := r.update(ctx, func(st *stack.Stack) ([]stack.Event, error) {
			st.DropKept()
			return nil, nil
		})
		there, listErr := r.inventory(ctx)
		failpoint.Here("kept-dropped")
		if err := errors.Join(err, listErr); err != nil {
			return // the stack is deleted, the server stops, or watchLeftovers does it later
		}
		r.removeLeftovers(ctx, st, there)
		r.log.Info("build caches and layers removed for want of room on the disk")
	})
}
