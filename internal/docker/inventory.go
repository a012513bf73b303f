package docker

import (
	"context"
	"errors"

	"github.com/docker/docker/api/types/volume"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
)

// Inventory implements engine.Driver.
func (d *Driver) Inventory(ctx context.Context, stack string) (map[string]engine.Objects, error) {
	key, there := engine.Key{Stack: stack}, map[string]engine.Objects{}
	add := func(key engine.Key, to func(*engine.Objects)) {
		o := there[key.Stack]
		to(&o)
		there[key.Stack] = o
	}
	containers, err1 := d.Containers(ctx, key)
	for _, c := range containers {
		add(c.Key, func(o *engine.Objects) { o.Containers = append(o.Containers, c) })
	}
	images, err2 := d.images(ctx, key)
	for _, i := range images {
		add(i.Key, func(o *engine.Objects) { o.Images = append(o.Images, i) })
	}
	volumes, err3 := d.Volumes(ctx, key)
	for _, v := range volumes {
		add(v.Key, func(o *engine.Objects) { o.Volumes = append(o.Volumes, v) })
	}
	networks, err4 := d.Networks(ctx, key)
	for _, n := range networks {
		add(n.Key, func(o *engine.Objects) { o.Networks = append(o.Networks, n) })
	}
	delete(there, "") // objects of no stack
	return there, errors.Join(err1, err2, err3, err4)
}

// Discard implements engine.Driver. An image goes by each of its names, or by its id when it
// has none.
func (d *Driver) Discard(ctx context.Context, o engine.Objects) error {
	var errs []error
	for _, c := range o.Containers {
		errs = append(errs, d.Remove(ctx, c.ID))
		failpoint.Here("container-removed")
	}
	for _, i := range o.Images {
		if len(i.Tags) == 0 {
			errs = append(errs, unlessUsed(d.removeImage(ctx, i.ID)))
		}
		for _, tag := range i.Tags {
			errs = append(errs, unlessUsed(d.removeImage(ctx, tag)))
		}
	}
	for _, v := range o.Volumes {
		errs = append(errs, d.removeVolume(ctx, v.Name))
	}
	for _, n := range o.Networks {
		errs = append(errs, d.removeNetwork(ctx, n.Name))
	}
	return errors.Join(errs...)
}

// ensureVolume makes a volume, or finds the one of that name, and reports whether it was
// missing. A volume that does not carry the labels belongs to somebody else: errConflict.
func (d *Driver) ensureVolume(ctx context.Context, name string, labels engine.Labels) (isNew bool, err error) {
	found, err := d.volume(ctx, name)
	if isNew = errors.Is(err, engine.ErrNotFound); isNew {
		found, err = d.createVolume(ctx, name, labels)
	}
	if err == nil && !carries(found.Labels, labels) {
		return false, &failure{op: "create volume " + name, class: errConflict, cause: errForeign}
	}
	return isNew, err
}

// volume returns what the engine knows of a volume.
func (d *Driver) volume(ctx context.Context, name string) (volume.Volume, error) {
	return retryGet(ctx, func() (volume.Volume, error) { return d.api.VolumeInspect(ctx, name) }, "inspect volume %s", name)
}

// createVolume makes a volume. If there is one of that name, the engine returns that.
func (d *Driver) createVolume(ctx context.Context, name string, labels engine.Labels) (volume.Volume, error) {
	ctx, done := toFinish(ctx)
	defer done()
	return retryGet(ctx, func() (volume.Volume, error) {
		return d.api.VolumeCreate(ctx, volume.CreateOptions{Name: name, Labels: labels})
	}, "create volume %s", name)
}

// removeVolume removes a volume with its files. The error is errConflict while a
// container, running or not, has it.
func (d *Driver) removeVolume(ctx context.Context, name string) error {
	return retryRemoval(ctx, func(ctx context.Context) error {
		return wrap(d.api.VolumeRemove(ctx, name, false), "remove volume %s", name)
	})
}

// Volumes implements engine.Driver.
func (d *Driver) Volumes(ctx context.Context, key engine.Key) ([]engine.Volume, error) {
	found, err := retryGet(ctx, func() (volume.ListResponse, error) {
		return d.api.VolumeList(ctx, volume.ListOptions{Filters: d.of(key)})
	}, "list volumes")
	return each(found.Volumes, func(v *volume.Volume) engine.Volume {
		return engine.Volume{Name: v.Name, Key: engine.KeyOf(v.Labels)}
	}), err
}

// each returns what as makes of the elements of a list.
func each[T, U any](list []T, as func(T) U) []U {
	made := make([]U, len(list))
	for i, element := range list {
		made[i] = as(element)
	}
	return made
}
