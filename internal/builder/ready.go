package builder

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
)

// Ready is the container of a build that has not begun yet: an engine takes half a second
// to make and start one. Nothing of a tenant runs in it before the build: the build command
// is begun there, and waits for the source.
type Ready struct {
	box   *box
	cache string        // the volume with the build caches
	build *begun        // the build command
	done  chan struct{} // closed once the container has been started, or could not be
	err   error         // why it could not be
	taken atomic.Bool
}

// Ready starts to make the container in which the build command of a service will run
// again, if it can be known what that begins from; nil if there is nothing to make. The
// job's Source is the served one, and its key is that of the network. All of it goes on
// until ctx ends or Abandon is called.
func (b *Builder) Ready(ctx context.Context, job Job) (*Ready, error) {
	if job.Spec.Build == "" || !b.cfg.Engine.TakesFiles() {
		return nil, nil //nolint:nilnil // that is an answer
	}
	base, err := b.EnsureBase(ctx, job.Spec.Base(), io.Discard)
	if err != nil {
		return nil, err
	}
	image := base
	if job.Layer.Inputs != nil && job.Layer.Whole == "" {
		if image, _, err = b.beginBuild(ctx, &job, job.Layer, base); err != nil {
			return nil, err
		}
	}
	x := &box{cfg: &b.cfg, job: job, name: job.key().Build(), base: base, image: image, bare: image == base, files: only(nil), runs: true}
	r := &Ready{
		box:   x,
		cache: job.key().Cache(job.Stack.CachesDropped),
		build: newBegun(ctx, x.command(stack.PhaseBuild, job.Spec.Build)),
		done:  make(chan struct{}),
	}
	go func() {
		r.err = x.open(ctx)
		failpoint.Here("build-container-ready")
		close(r.done)
		if r.err == nil {
			r.build.run(b.cfg.Engine, x.id)
		}
	}()
	return r, nil
}

// Abandon ends a command that still waits for its source, and returns the id of the
// container once it has been made, or "".
func (r *Ready) Abandon() string {
	r.build.abandon()
	<-r.done
	return r.box.id
}

// command returns the build command if that does cmd; otherwise it ends it and returns nil.
func (r *Ready) command(cmd engine.Cmd) *begun {
	if r.build.does(cmd) {
		return r.build
	}
	r.build.abandon()
	return nil
}

// take returns the id of the container if it is one that x would make, and runs; "" if x
// has to make its own. It can be taken once.
func (r *Ready) take(ctx context.Context, x *box) string {
	if r == nil || !r.fits(x) || r.taken.Swap(true) {
		return ""
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		return ""
	}
	if r.err != nil {
		return ""
	}
	c, err := x.cfg.Engine.Look(ctx, r.box.id)
	if err != nil || !c.Running {
		return ""
	}
	return c.ID
}

// fits reports whether the container is as x would make it.
func (r *Ready) fits(x *box) bool {
	had := r.box
	return x.runs && x.name == had.name && x.image == had.image && x.bare == had.bare && x.dir() == had.dir() &&
		x.job.key().Cache(x.job.Stack.CachesDropped) == r.cache
}

// beginBuild returns the image that the build command begins from where a layer has what
// install leaves, and what of the source is to be copied in.
func (b *Builder) beginBuild(ctx context.Context, job *Job, layer stack.Layer, base string) (string, selection, error) {
	c := Copy{Dir: job.Source, Digest: job.Digest, Layer: layer, Listing: job.Listing}
	c.Installed, _ = layer.Installed()
	if c.Layer.Image == "" {
		c.Layer.Image = base
	}
	src, err := source.Load(c.Dir, c.Digest)
	if err != nil {
		return "", nil, err
	}
	return b.begin(ctx, &c, src)
}
