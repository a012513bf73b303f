package docker

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
)

// Containers is engine.Driver's.
func (d *Driver) Containers(ctx context.Context, key engine.Key) ([]engine.Container, error) {
	found, err := d.engine.list(ctx, d.labels(key))
	list := make([]engine.Container, len(found))
	for i, c := range found {
		list[i] = described(c)
	}
	return list, err
}

// Volumes is engine.Driver's.
func (d *Driver) Volumes(ctx context.Context, key engine.Key) ([]engine.Volume, error) {
	found, err := d.engine.volumes(ctx, d.labels(key))
	list := make([]engine.Volume, len(found))
	for i, v := range found {
		list[i] = engine.Volume{Name: v.Name, Key: engine.KeyOf(v.Labels)}
	}
	return list, err
}

// Networks is engine.Driver's.
func (d *Driver) Networks(ctx context.Context, key engine.Key) ([]engine.Network, error) {
	found, err := d.engine.networks(ctx, d.labels(key))
	list := make([]engine.Network, len(found))
	for i, n := range found {
		list[i] = engine.Network{Name: n.Name, Key: engine.KeyOf(n.Labels)}
	}
	return list, err
}

// Inventory is engine.Driver's.
func (d *Driver) Inventory(ctx context.Context, stack string) (map[string]engine.Objects, error) {
	there, key := map[string]engine.Objects{}, engine.Key{Stack: stack}
	note := func(key engine.Key, add func(*engine.Objects)) {
		if key.Stack != "" {
			o := there[key.Stack]
			add(&o)
			there[key.Stack] = o
		}
	}
	containers, err1 := d.Containers(ctx, key)
	for _, c := range containers {
		note(c.Key, func(o *engine.Objects) { o.Containers = append(o.Containers, c) })
	}
	images, err2 := d.engine.images(ctx, d.labels(key))
	for _, i := range images {
		image := engine.Image{ID: i.ID, Key: engine.KeyOf(i.Labels), Tags: i.Tags}
		note(image.Key, func(o *engine.Objects) { o.Images = append(o.Images, image) })
	}
	volumes, err3 := d.Volumes(ctx, key)
	for _, v := range volumes {
		note(v.Key, func(o *engine.Objects) { o.Volumes = append(o.Volumes, v) })
	}
	networks, err4 := d.Networks(ctx, key)
	for _, n := range networks {
		note(n.Key, func(o *engine.Objects) { o.Networks = append(o.Networks, n) })
	}
	return there, errors.Join(err1, err2, err3, err4)
}

// Discard is engine.Driver's.
func (d *Driver) Discard(ctx context.Context, o engine.Objects) error {
	var errs []error
	for _, c := range o.Containers {
		errs = append(errs, d.engine.remove(ctx, c.ID))
		failpoint.Here("container-removed")
	}
	for _, image := range o.Images {
		errs = append(errs, d.discardImage(ctx, image))
	}
	for _, v := range o.Volumes {
		errs = append(errs, d.engine.removeVolume(ctx, v.Name))
	}
	for _, n := range o.Networks {
		errs = append(errs, d.engine.removeNetwork(ctx, n.Name))
	}
	return errors.Join(errs...)
}

// discardImage removes an image by each of its names; by its id when it has none.
func (d *Driver) discardImage(ctx context.Context, image engine.Image) error {
	if len(image.Tags) == 0 {
		return d.engine.removeImage(ctx, image.ID)
	}
	var errs []error
	for _, tag := range image.Tags {
		errs = append(errs, d.engine.removeImage(ctx, tag))
	}
	return errors.Join(errs...)
}

// ImageUser is engine.Driver's.
func (d *Driver) ImageUser(ctx context.Context, id string) (int, error) {
	image, err := d.engine.image(ctx, id)
	user, _, _ := strings.Cut(image.User, ":")
	uid, _ := strconv.Atoi(user) // root's is empty, or a name
	return uid, err
}
