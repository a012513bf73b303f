package supervisor

import (
	"context"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/berth-host/berth/internal/builder"
	"github.com/berth-host/berth/internal/datadir"
	"github.com/berth-host/berth/internal/logfile"
	"github.com/berth-host/berth/internal/manifest"
	"github.com/berth-host/berth/internal/stack"
)

// build makes every service's image or folder. A service that would be built the same
// way again takes over the served generation's. What build read and published is on
// disk when it returns.
func (d *deployment) build(ctx context.Context) error {
	// With the deploy's context, since that of the builds ends with them. Whoever needs
	// the network later waits for it and gets the error.
	beginNetwork := func() {
		if d.gen.needsNetwork() {
			d.after.Go(func() { _ = d.gen.makeNetwork(ctx) })
		}
	}
	group, building := errgroup.WithContext(ctx)
	group.Go(func() error { return d.gen.cfg.Dir.Sync(building, d.source, true) })
	group.Go(func() error {
		return d.gen.inOrder(building, func(ctx context.Context, s *stack.Service) error {
			return d.buildService(ctx, s, beginNetwork)
		})
	})
	return group.Wait()
}

// buildService builds one service once it has a slot. While the source is copied,
// beginNetwork makes the network, if the generation needs one.
func (d *deployment) buildService(ctx context.Context, s *stack.Service, beginNetwork func()) error {
	g := d.gen
	log, err := logfile.Create(g.cfg.Dir.Log(g.st.ID, s.Spec.Name, datadir.BuildLog), g.cfg.LogMax, "== earlier output is left out: the log is full\n")
	if err != nil {
		return err
	}
	defer log.Close()
	if err := manifest.WritePlan(log, s.Spec); err != nil {
		return err
	}
	job := d.job(s, log)
	release, err := g.cfg.Builder.Acquire(ctx, job)
	if err != nil {
		return err
	}
	release = sync.OnceFunc(release)
	defer release()
	if err := g.cfg.Admission.CheckRoom(); err != nil {
		return err
	}
	beginNetwork()
	if err := g.recordEvent(ctx, stack.ServiceBuilding(s.Spec.Name, g.number)); err != nil {
		return err
	}
	result, cleanUp, err := g.cfg.Builder.Build(ctx, job)
	release() // other builds need not wait for the disk
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.cleanUps = append(d.cleanUps, cleanUp)
	d.mu.Unlock()
	s.Image, s.Fingerprint = result.Image, result.Fingerprint
	if s.Spec.IsStatic() {
		s.Site = g.number
		// Without commands its files are the source's own, under further names.
		return g.cfg.Dir.Sync(ctx, g.cfg.Dir.Site(g.st.ID, s.Spec.Name, s.Site), s.Spec.Builds())
	}
	return nil
}

func (d *deployment) job(s *stack.Service, log io.Writer) builder.Job {
	g := d.gen
	job := builder.Job{
		Stack:      g.st,
		Spec:       &s.Spec,
		Generation: g.number,
		Source:     d.source,
		Others:     d.otherRoots(s),
		Site:       g.cfg.Dir.Site(g.st.ID, s.Spec.Name, g.number),
		Network:    g.makeNetwork,
		Env:        g.environment().Build(&s.Spec),
		Log:        log,
	}
	if old := g.st.Service(s.Spec.Name); old != nil && g.st.Status == stack.Live {
		job.Previous = builder.Result{Image: old.Image, Fingerprint: old.Fingerprint}
		job.PreviousSite = g.cfg.Dir.Site(g.st.ID, s.Spec.Name, old.Site)
	}
	return job
}

// otherRoots returns the folders of the other services, which do not belong to this
// one's source.
func (d *deployment) otherRoots(s *stack.Service) []string {
	var roots []string
	for i := range d.gen.services {
		if other := &d.gen.services[i]; other.Spec.Name != s.Spec.Name {
			roots = append(roots, other.Spec.Root)
		}
	}
	return roots
}
