package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/berth-host/berth/internal/builder"
	"github.com/berth-host/berth/internal/datadir"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/logfile"
	"github.com/berth-host/berth/internal/manifest"
	"github.com/berth-host/berth/internal/stack"
)

// build makes the missing images and folders of services. A service that would
// be built the same way again takes over the served generation's. What build read and
// published is on disk when it returns. The network may still be made then, until longer ends.
func (d *deployment) build(ctx, longer context.Context) error {
	if d.gen.made.Built() {
		return nil
	}
	// Whoever needs the network later waits for it and gets the error.
	beginNetwork := func() {
		if d.gen.needsNetwork() {
			d.after.Go(func() { _ = d.gen.makeNetwork(longer) })
		}
	}
	group, building := errgroup.WithContext(ctx)
	group.Go(func() error { return d.syncSource(building) })
	group.Go(func() error {
		return d.gen.inOrder(building, func(ctx context.Context, s *stack.Service) error {
			if s.Built() {
				return nil
			}
			return d.inPhase(ctx, s, stack.PhaseQueued, func() error { return d.buildService(ctx, s, beginNetwork) })
		})
	})
	return group.Wait()
}

// buildService builds one service once it has a slot. Meanwhile beginNetwork makes the
// network of the services, if the generation needs one: after that of the builds, which comes
// first where there are any.
func (d *deployment) buildService(ctx context.Context, s *stack.Service, beginNetwork func()) error {
	g := d.gen
	log, err := g.buildLog(s, logfile.Create)
	if err != nil {
		return err
	}
	defer log.Close()
	if err := manifest.WritePlan(log, d.gen.withNeededHints(s.Spec)); err != nil {
		return err
	}
	job := d.job(s, log)
	job.Network = func(ctx context.Context) error {
		defer beginNetwork()
		return g.makeBuildNetwork(ctx)
	}
	release, err := g.cfg.Builder.Acquire(ctx, job)
	if err != nil {
		return err
	}
	release = sync.OnceFunc(release)
	defer release()
	if err := d.makeRoom(ctx, s, &job.Layer); err != nil {
		return err
	}
	if s.Spec.Builds() {
		if err := g.cfg.Dir.MarkFilled(g.st.ID, s.Spec.Name); err != nil {
			return err
		}
	}
	if !s.Spec.Builds() {
		beginNetwork()
	}
	if err := d.recordBuilding(ctx, s); err != nil {
		return err
	}
	result, cleanUp, err := g.cfg.Builder.Build(ctx, job)
	release() // other builds need not wait for the disk
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.cleanUps = append(d.cleanUps, cleanUp)
	if result.Unlayered {
		d.unlayered = append(d.unlayered, s.Spec.Name)
		d.replaces(s)
	}
	d.mu.Unlock()
	takeBuild(s, result)
	return d.syncSite(ctx, s)
}

// buildLog opens the log of a service's builds.
func (g *generation) buildLog(s *stack.Service, open func(path string, max int64, header string) (*logfile.File, error)) (*logfile.File, error) {
	return open(g.cfg.Dir.Log(g.st.ID, s.Spec.Name, datadir.BuildLog), g.cfg.LogMax, "== the log is full: output before this line may be left out\n")
}

// takeBuild makes a service what a build has made of it.
func takeBuild(s *stack.Service, made builder.Result) {
	s.Image, s.Copied, s.Installed = made.Image, made.Copied, made.Installed
	s.Site, s.Linked, s.Fingerprint = made.Site, made.Linked, made.Fingerprint
}

// recordBuilding records that the install and build of a service begin.
func (d *deployment) recordBuilding(ctx context.Context, s *stack.Service) error {
	d.gen.progress.enter(s.Spec.Name, firstPhase(&s.Spec))
	return d.record(ctx, func(*stack.Stack) stack.Event {
		return stack.ServiceBuilding(s.Spec.Name, d.gen.made.Number, d.gen.made.Attempt)
	})
}

// firstPhase returns the first phase of a service's build.
func firstPhase(spec *stack.Spec) stack.Phase {
	if spec.Install != "" {
		return stack.PhaseInstall
	}
	return stack.PhaseBuild
}

// makeRoom returns nil if there is room for the build of a service. Its own caches and
// layers, which no container has yet, go last; layer is then the zero one if it lay in
// the caches.
func (d *deployment) makeRoom(ctx context.Context, s *stack.Service, layer *stack.Layer) error {
	g := d.gen
	short := g.cfg.Admission.CheckRoom()
	if short == nil {
		return nil
	}
	if d.ready != nil {
		d.ready.discardContainers() // which have the caches
	}
	own := engine.Objects{Volumes: []engine.Volume{{Name: g.key(s.Spec.Name).Cache(g.st.CachesDropped)}}}
	if unused := g.st.UnusedLayers(s.Spec.Name); len(unused) > 0 {
		own.Images = []engine.Image{{Tags: unused}}
	}
	if layer.Image == "" {
		*layer = stack.Layer{}
		if err := g.runner.forgetCached(ctx, s.Spec.Name); err != nil {
			return err
		}
	}
	if err := g.cfg.Engine.Discard(ctx, own); err != nil {
		return errors.Join(short, err)
	}
	return g.cfg.Admission.CheckRoom()
}

// syncSite returns once the folder that the build of a service has published, if any, is
// on disk. What is in the source is left to syncSource.
func (d *deployment) syncSite(ctx context.Context, s *stack.Service) error {
	dir := d.gen.cfg.Dir.Site(d.gen.st.ID, s.Spec.Name, s.Site)
	switch {
	case s.Site != d.gen.made.Attempt:
		return nil
	case s.Linked:
		return d.gen.cfg.Dir.SyncName(dir)
	}
	return d.gen.cfg.Dir.Sync(ctx, dir)
}

// syncSource returns once the source is on disk.
func (d *deployment) syncSource(ctx context.Context) error {
	if d.synced {
		return d.gen.cfg.Dir.SyncName(d.source())
	}
	return d.gen.cfg.Dir.Sync(ctx, d.source())
}

// source returns the folder of the source that is built.
func (d *deployment) source() string {
	return d.gen.cfg.Dir.Source(d.gen.st.ID, d.gen.made.Source.Folder)
}

func (d *deployment) job(s *stack.Service, log io.Writer) builder.Job {
	g := d.gen
	job := builder.Job{
		Stack:      g.st,
		Spec:       &s.Spec,
		Generation: g.made.Number,
		Attempt:    g.made.Attempt,
		Source:     d.source(),
		Digest:     g.made.Source.Digest,
		Others:     d.otherRoots(s),
		Site:       g.cfg.Dir.Site(g.st.ID, s.Spec.Name, g.made.Attempt),
		Env:        g.environment().Build(&s.Spec),
		Log:        log,
		Begin:      func(phase stack.Phase) { g.progress.enter(s.Spec.Name, phase) },
		Ready:      d.readyFor(s),
		Layer:      g.st.Layers[s.Spec.Name],
		Listing:    g.listing(s),
		Keep:       func(ctx context.Context, layer stack.Layer) error { return d.keepLayer(ctx, s, layer) },
	}
	if old := g.st.Service(s.Spec.Name); old != nil && g.st.Status == stack.Live {
		job.Previous = builder.Result{
			Image: old.Image, Copied: old.Copied, Installed: old.Installed, Site: old.Site, Fingerprint: old.Fingerprint,
		}
		job.PreviousSite = g.cfg.Dir.Site(g.st.ID, s.Spec.Name, old.Site)
	}
	return job
}

// keepLayer records what was installed for a service, also for the next attempt if this
// one fails. If the layers were dropped since the build began, this one is not kept.
func (d *deployment) keepLayer(ctx context.Context, s *stack.Service, layer stack.Layer) error {
	_, err := d.gen.runner.update(ctx, func(st *stack.Stack) ([]stack.Event, error) {
		if st.CachesDropped == d.gen.st.CachesDropped {
			st.Keep(s.Spec.Name, layer)
		}
		return nil, nil
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.replaces(s)
	return err
}

// replaces notes that the layer of before is not needed any more. The caller holds mu.
func (d *deployment) replaces(s *stack.Service) {
	old := d.gen.st.Layers[s.Spec.Name]
	for _, ref := range []string{old.Source.Image, old.Image} {
		if ref != "" {
			d.replaced = append(d.replaced, ref)
		}
	}
}

// otherRoots returns the folders of the other services, which do not belong to this
// one's source.
func (d *deployment) otherRoots(s *stack.Service) []string {
	var roots []string
	for i := range d.gen.made.Services {
		if other := &d.gen.made.Services[i]; other.Spec.Name != s.Spec.Name && other.Spec.Database() == nil {
			roots = append(roots, other.Spec.Root)
		}
	}
	return roots
}

// bringUpAgain brings up a service whose image is gone, as on a machine that a backup was
// restored on: from another one, built from the kept source.
func (g *generation) bringUpAgain(ctx context.Context, s *stack.Service) error {
	d := &deployment{gen: g}
	defer d.cleanUp()
	if err := d.buildAgain(ctx, s); err != nil {
		if ctx.Err() != nil || isOfHost(err) {
			return err
		}
		g.log.Error("image of a stack is gone, and cannot be built again", "service", s.Spec.Name, "error", err)
		if stack.KindOf(err) == stack.Conflict { // of the source
			return serviceError(s, "its image is no longer on this host; upload the source again")
		}
		return serviceError(s, "its image is no longer on this host, and was not built again; upload the source again: %s", g.runner.explain(err))
	}
	return g.bringUp(ctx, s, false)
}

// buildAgain builds a service as its source is kept, without what earlier builds left, and
// records the image in the row. Its log follows that of the earlier build.
func (d *deployment) buildAgain(ctx context.Context, s *stack.Service) error {
	g := d.gen
	if err := g.runner.sup.checkKept(g.st.ID, &stack.Generation{Source: g.made.Source, Services: []stack.Service{{Spec: s.Spec}}}); err != nil {
		return err
	}
	g.log.Info("image of a stack is gone; building it again", "service", s.Spec.Name)
	log, err := g.buildLog(s, logfile.Continue)
	if err != nil {
		return err
	}
	defer log.Close()
	job := d.job(s, log)
	job.Previous, job.PreviousSite, job.Layer = builder.Result{}, "", stack.Layer{}
	job.Network = g.makeBuildNetwork
	release, err := g.cfg.Builder.Acquire(ctx, job)
	if err != nil {
		return err
	}
	defer release()
	if err := d.makeRoom(ctx, s, &job.Layer); err != nil {
		return err
	}
	if err := g.cfg.Dir.MarkFilled(g.st.ID, s.Spec.Name); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(log, "== the image of %s is gone; it is built again from the kept source\n", s.Spec.Name); err != nil {
		return err
	}
	result, cleanUp, err := g.cfg.Builder.Build(ctx, job)
	if err != nil {
		return err
	}
	d.cleanUps = append(d.cleanUps, cleanUp)
	takeBuild(s, result)
	_, err = g.runner.update(ctx, func(st *stack.Stack) ([]stack.Event, error) {
		if st.Generation.Attempt == g.made.Attempt {
			takeBuild(st.Service(s.Spec.Name), result)
		}
		return nil, nil
	})
	return err
}
