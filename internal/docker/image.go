package docker

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"

	"github.com/berth-host/berth/internal/engine"
)

// HasImage implements engine.Driver.
func (d *Driver) HasImage(ctx context.Context, ref string) (bool, error) {
	found, err := d.image(ctx, ref)
	return err == nil && found.Size > 0, unlessGone(err)
}

// ImageUser implements engine.Driver.
func (d *Driver) ImageUser(ctx context.Context, id string) (int, error) {
	found, err := d.image(ctx, id)
	if err != nil || found.Config == nil {
		return 0, err
	}
	user, _, _ := strings.Cut(found.Config.User, ":")
	uid, _ := strconv.Atoi(user) // root's is empty, or a name
	return uid, nil
}

// image returns what the engine knows of an image, by reference or id.
func (d *Driver) image(ctx context.Context, ref string) (image.InspectResponse, error) {
	return retryGet(ctx, func() (image.InspectResponse, error) { return d.api.ImageInspect(ctx, ref) }, "inspect image %s", ref)
}

// untagged is how older engines write that an image has no name.
const untagged = "<none>:<none>"

// images returns the images of a key, nameless ones included, without the layers that
// only other images need.
func (d *Driver) images(ctx context.Context, key engine.Key) ([]engine.Image, error) {
	found, err := retryGet(ctx, func() ([]image.Summary, error) {
		return d.api.ImageList(ctx, image.ListOptions{Filters: d.of(key)})
	}, "list images")
	return each(found, func(f image.Summary) engine.Image {
		tags := slices.DeleteFunc(f.RepoTags, func(tag string) bool { return tag == untagged })
		return engine.Image{ID: f.ID, Key: engine.KeyOf(f.Labels), Tags: tags}
	}), err
}

// removeImage removes a reference, and with an image's last reference the image and the
// layers below it. The error is errConflict while a container, running or not, needs it.
func (d *Driver) removeImage(ctx context.Context, ref string) error {
	return retryRemoval(ctx, func(ctx context.Context) error {
		_, err := d.api.ImageRemove(ctx, ref, image.RemoveOptions{PruneChildren: true})
		return wrap(err, "remove image %s", ref)
	})
}

// Tag implements engine.Driver.
func (d *Driver) Tag(ctx context.Context, source, ref string) error {
	return retry(ctx, func() error {
		return wrap(d.api.ImageTag(ctx, source, ref), "tag image %s as %s", source, ref)
	})
}

// Commit implements engine.Driver. Nothing runs in the container when its files are counted, so
// that a process that a command has left running can neither add a hole to a file after that
// nor cut off one that the engine reads.
func (d *Driver) Commit(ctx context.Context, id, ref string, key engine.Key, config engine.ImageConfig) error {
	own := &container.Config{
		Labels: d.labels(key), Env: config.Env, User: config.User, WorkingDir: config.Dir,
	}
	if err := d.quieten(ctx, id); err != nil {
		return err
	}
	done, err := d.reserve(ctx, id, config.Floor)
	if err != nil {
		return err
	}
	defer done()
	return d.commit(ctx, id, ref, own)
}

// quieten keeps everything in a container from running for good: it is paused, which is quicker,
// or killed if the kernel does not freeze it, as where the machine has too much to do.
func (d *Driver) quieten(ctx context.Context, id string) error {
	err := d.Pause(ctx, id)
	switch {
	case err == nil, errors.Is(err, engine.ErrNotRunning):
		return nil
	case !errors.Is(err, engine.ErrNotFrozen):
		return err
	}
	now := 0 // seconds until the kill
	return retryLong(ctx, func() error {
		return wrap(d.api.ContainerStop(ctx, id, container.StopOptions{Timeout: &now}), "kill container %s", id)
	})
}

// commit makes an image of a container's file system, without its volumes. What config
// leaves unset stays the container's. When the answer is lost, the image is the one that
// has got the reference.
func (d *Driver) commit(ctx context.Context, id, ref string, config *container.Config) error {
	ctx, done := toFinish(ctx)
	defer done()
	before, err := d.image(ctx, ref)
	if unlessGone(err) != nil {
		return err
	}
	_, err = d.api.ContainerCommit(ctx, id, container.CommitOptions{Reference: ref, Config: config})
	err = wrap(err, "commit container %s as %s", id, ref)
	if !errors.Is(err, engine.ErrUnreachable) {
		return err
	}
	if now, lookErr := d.image(ctx, ref); lookErr == nil && now.ID != before.ID {
		return nil
	}
	return err
}
