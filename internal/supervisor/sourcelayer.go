package supervisor

import (
	"context"

	"github.com/berth-host/berth/internal/builder"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/stack"
)

// layerSource makes layers with the source that a deploy has served, for all services that
// gain from one. A layer is finished beside the deploy that follows: if each deploy ended
// it, a stack that is edited quickly would never have one.
func (r *runner) layerSource(ctx context.Context) {
	if r.layering.Acquire(ctx, 1) != nil {
		return
	}
	defer r.layering.Release(1)
	st := r.settled(ctx)
	if st == nil {
		return
	}
	for i := range st.Generation.Services {
		s := &st.Generation.Services[i]
		if err := r.layerSourceOf(ctx, st, s); err != nil && ctx.Err() == nil {
			r.log.Warn("no layer made with the source; the next deploy copies all of it", "service", s.Spec.Name, "error", err)
		}
	}
}

func (r *runner) layerSourceOf(ctx context.Context, st *stack.Stack, s *stack.Service) error {
	layer := st.Layers[s.Spec.Name]
	installed, ok := layer.Installed()
	if !ok {
		return nil
	}
	src := st.Generation.Source
	c := builder.Copy{
		Dir: r.cfg.Dir.Source(r.id, src.Folder), Digest: src.Digest, UID: st.UID(), Layer: layer, Installed: installed,
		Listing: r.cfg.Dir.Listing(r.id, layer.Source.Digest),
	}
	wanted, err := r.cfg.Builder.WantsSourceLayer(ctx, c)
	if err != nil || !wanted || r.cfg.Admission.CheckRoom() != nil {
		return err
	}
	ref := engine.Key{Stack: r.id, Service: s.Spec.Name}.SourceLayer(st.Generation.Attempt)
	if err := r.cfg.Dir.KeepListing(r.id, src.Folder, src.Digest); err != nil {
		return err
	}
	return r.cfg.Builder.MakeSourceLayer(ctx, st, &s.Spec, c, ref, func() error {
		return r.keepSourceLayer(ctx, st, s.Spec.Name, stack.SourceLayer{Image: ref, Digest: src.Digest})
	})
}

// keepSourceLayer records a layer with a source in place of the one before, which goes.
func (r *runner) keepSourceLayer(ctx context.Context, before *stack.Stack, service string, made stack.SourceLayer) error {
	var replaced string
	st, err := r.update(ctx, func(st *stack.Stack) ([]stack.Event, error) {
		layer := st.Layers[service]
		if layer.Image == before.Layers[service].Image && st.CachesDropped == before.CachesDropped {
			replaced = layer.Source.Image
			layer.Source = made
			st.Keep(service, layer)
		}
		return nil, nil
	})
	failpoint.Here("source-layer-kept")
	if err != nil {
		return err
	}
	old := leftovers{files: r.cfg.Dir.Listings(r.id, func(digest string) bool { return !st.KeepsListing(digest) })}
	if replaced != "" && !st.KeepsImage(replaced) {
		old.objects.Images = []engine.Image{{Tags: []string{replaced}}}
	}
	return r.sup.discardLeftovers(context.WithoutCancel(ctx), old)
}
