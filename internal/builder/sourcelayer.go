package builder

import (
	"archive/tar"
	"context"
	"io"
	"path"

	"github.com/berth-host/berth/internal/archive"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
)

// Copy is a source that is to be in a container of a layer.
type Copy struct {
	Dir    string // folder of the source; see package source
	Digest string
	UID    int
	Layer  stack.Layer

	Installed []string // files of it that the layer has as they were installed, sorted
	Listing   string   // folder of the listing of the layer's own source
}

// load returns the source, if it is as it was kept.
func (c *Copy) load() (*source.Source, error) {
	src, err := source.Load(c.Dir, c.Digest)
	if err != nil {
		return nil, err
	}
	return src, src.Check()
}

// Begin returns the image to make a container from, and what writes the rest of the
// source, as a tar for the root of the container: the layer and all that is not
// installed, or the layer with a source and what differs from that. A source that is not
// as it was kept is an error of kind Conflict.
func (b *Builder) Begin(ctx context.Context, c Copy) (image string, write func(context.Context, io.Writer) error, err error) {
	src, err := c.load()
	if err != nil {
		return "", nil, err
	}
	image, files, err := b.begin(ctx, &c, src)
	return image, func(ctx context.Context, w io.Writer) error { return c.writeTree(ctx, w, files) }, err
}

// begin returns the image to begin with, and what of the source is to be copied in.
func (b *Builder) begin(ctx context.Context, c *Copy, src *source.Source) (string, selection, error) {
	whole := without(c.Installed)
	if c.Layer.Source.Image == "" {
		return c.Layer.Image, whole, nil
	}
	had, err := source.Load(c.Listing, c.Layer.Source.Digest)
	if err != nil {
		return c.Layer.Image, whole, nil //nolint:nilerr // it is copied whole then
	}
	changed, ok := changes(had.Entries(), src.Entries(), whole)
	if !ok {
		return c.Layer.Image, whole, nil
	}
	there, err := b.cfg.Engine.HasImage(ctx, c.Layer.Source.Image)
	if !there || err != nil {
		return c.Layer.Image, whole, err
	}
	return c.Layer.Source.Image, only(changed), nil
}

// changes returns the paths of the entries that differ from those that an image has, and
// reports whether copying these is enough: a copy removes nothing.
func changes(had, wanted []source.Entry, counts selection) (changed []string, ok bool) {
	before := make(map[string]*source.Entry, len(had))
	for i := range had {
		if e := &had[i]; counts(e.Path, e.Mode.IsDir()) {
			before[e.Path] = e
		}
	}
	for i := range wanted {
		e := &wanted[i]
		if !counts(e.Path, e.Mode.IsDir()) {
			continue
		}
		old := before[e.Path]
		switch {
		case old == nil || *old != *e && old.Mode.Type() == e.Mode.Type():
			changed = append(changed, e.Path)
		case old.Mode.Type() != e.Mode.Type():
			return nil, false
		}
		delete(before, e.Path)
	}
	return changed, len(before) == 0
}

// writeTree writes the selected part of the source as containers of a stack have it.
func (c *Copy) writeTree(ctx context.Context, w io.Writer, files selection) error {
	tw := tar.NewWriter(w)
	if err := archive.WritePart(ctx, tw, source.Tree(c.Dir), sourcePrefix, c.UID, c.UID, files); err != nil {
		return err
	}
	return tw.Close()
}

// A source with more files or bytes than these is worth a layer: a smaller one is copied
// in less time than an engine takes for anything.
const (
	largeFiles = 500
	largeBytes = 4 << 20
)

// WantsSourceLayer reports whether the next build or start gains from a layer with the
// source: it is large, and what differs from the source that the layer has is, too. A
// source that is not as it was kept is an error of kind Conflict.
func (b *Builder) WantsSourceLayer(ctx context.Context, c Copy) (bool, error) {
	src, err := c.load()
	if err != nil {
		return false, err
	}
	_, files, err := b.begin(ctx, &c, src)
	if err != nil {
		return false, err
	}
	count, size := 0, int64(0)
	for _, e := range src.Entries() {
		if e.Mode.IsRegular() && files(e.Path, false) {
			count++
			size += e.Size
		}
	}
	return count > largeFiles || size > largeBytes, nil
}

// MakeSourceLayer makes the image of a service's layer with the source, in a container
// that is never started, and calls made before it removes that. A source that changes
// meanwhile is an error of kind Conflict.
func (b *Builder) MakeSourceLayer(ctx context.Context, st *stack.Stack, spec *stack.Spec, c Copy, ref string, made func() error) error {
	key := engine.Key{Stack: st.ID, Service: spec.Name, Generation: st.Generation.Number}
	x := &box{cfg: &b.cfg, job: Job{Stack: st, Spec: spec, Generation: key.Generation, Source: c.Dir}, name: key.SourceCopy(), image: c.Layer.Image, files: without(c.Installed)}
	if x.image == "" {
		base, err := b.EnsureBase(ctx, spec.Base(), io.Discard)
		if err != nil {
			return err
		}
		x.image, x.bare = base, true
	}
	id, err := b.cfg.Engine.Prepare(ctx, engine.Spec{
		Key: key.WithoutGeneration(), Name: x.name, Image: x.image, User: x.user(), Dir: path.Join(AppDir, spec.Root), Cmd: []string{"true"},
	})
	if err != nil {
		return err
	}
	x.id = id
	defer x.removeContainer()
	if err := x.fill(ctx); err != nil {
		return err
	}
	if _, err := c.load(); err != nil {
		return err // the generation of the source may have been replaced
	}
	if err := x.commit(ctx, ref); err != nil {
		return err
	}
	failpoint.Here("source-layer-made")
	return made()
}
