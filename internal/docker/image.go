package docker

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"

	"github.com/berth-host/berth/internal/engine"
)

// ImageInfo is what the engine knows of an image.
type ImageInfo struct {
	ID     string
	Tags   []string // empty for one that lost its name
	Labels Labels
	User   string // that its containers run as unless they say otherwise; only image reads it
}

// CommitSpec overrides the configuration that a committed image takes over
// from its container. What is unset stays the container's.
type CommitSpec struct {
	Labels Labels   // on top of the container's
	Env    []string // KEY=value, on top of the container's
	User   string
	Dir    string
}

// untagged is how older engines write that an image has no name.
const untagged = "<none>:<none>"

// image looks up one image by reference or id.
func (e *Engine) image(ctx context.Context, ref string) (ImageInfo, error) {
	found, err := answered(ctx, func() (image.InspectResponse, error) {
		found, err := e.api.ImageInspect(ctx, ref)
		return found, wrap(err, "inspect image %s", ref)
	})
	if err != nil {
		return ImageInfo{}, err
	}
	info := ImageInfo{ID: found.ID, Tags: found.RepoTags}
	if found.Config != nil {
		info.Labels, info.User = found.Config.Labels, found.Config.User
	}
	return info, nil
}

// images returns the images that carry the labels, nameless ones included,
// and not the layers that only other images need.
func (e *Engine) images(ctx context.Context, labels Labels) ([]ImageInfo, error) {
	found, err := answered(ctx, func() ([]image.Summary, error) {
		found, err := e.api.ImageList(ctx, image.ListOptions{Filters: byLabel(labels)})
		return found, wrap(err, "list images")
	})
	if err != nil {
		return nil, err
	}
	list := make([]ImageInfo, len(found))
	for i := range found {
		tags := slices.DeleteFunc(found[i].RepoTags, func(tag string) bool { return tag == untagged })
		list[i] = ImageInfo{ID: found[i].ID, Tags: tags, Labels: found[i].Labels}
	}
	return list, nil
}

// removeImage removes a reference, and the image with the layers below it when
// that was its last one; ErrConflict while a container, running or not, needs it.
func (e *Engine) removeImage(ctx context.Context, ref string) error {
	return insist(ctx, func(ctx context.Context) error {
		_, err := e.api.ImageRemove(ctx, ref, image.RemoveOptions{PruneChildren: true})
		return unlessGone(wrap(err, "remove image %s", ref))
	})
}

// tagImage gives an image one more reference.
func (e *Engine) tagImage(ctx context.Context, source, ref string) error {
	return again(ctx, func() error {
		return wrap(e.api.ImageTag(ctx, source, ref), "tag image %s as %s", source, ref)
	})
}

// commit makes an image of a container's file system, without its volumes. A running
// container is paused meanwhile. When the answer is lost, the image that has got the
// reference is the one.
func (e *Engine) commit(ctx context.Context, id, ref string, spec CommitSpec) error {
	before, err := e.image(ctx, ref)
	if unlessGone(err) != nil {
		return err
	}
	_, err = e.api.ContainerCommit(ctx, id, container.CommitOptions{
		Reference: ref,
		Pause:     true,
		Config: &container.Config{
			Labels: spec.Labels, Env: spec.Env, User: spec.User, WorkingDir: spec.Dir,
		},
	})
	err = wrap(err, "commit container %s as %s", id, ref)
	if !errors.Is(err, engine.ErrUnreachable) {
		return err
	}
	if now, lookErr := e.image(ctx, ref); lookErr == nil && now.ID != before.ID {
		return nil
	}
	return err
}

// pull fetches an image from its registry and writes the steps to out.
func (e *Engine) pull(ctx context.Context, ref string, out io.Writer) error {
	body, err := e.api.ImagePull(ctx, ref, image.PullOptions{})
	if err != nil {
		return wrap(err, "pull image %s", ref)
	}
	defer body.Close() // only read
	return wrap(relay(out, body), "pull image %s", ref)
}

// importImage makes an image of one layer from a tar of a file system. Changes are
// Dockerfile instructions for its configuration, as in `WORKDIR /app`.
func (e *Engine) importImage(ctx context.Context, ref string, tar io.Reader, changes []string) error {
	source := image.ImportSource{Source: tar, SourceName: "-"}
	body, err := e.api.ImageImport(ctx, source, ref, image.ImportOptions{Changes: changes})
	if err != nil {
		return wrap(err, "import image %s", ref)
	}
	defer body.Close() // only read
	return wrap(relay(io.Discard, body), "import image %s", ref)
}
