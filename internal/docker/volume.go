package docker

import (
	"context"

	"github.com/docker/docker/api/types/volume"

	"github.com/berth-host/berth/internal/engine"
)

// ensureVolume makes a volume, or finds the one of that name. A volume that does not
// carry the labels belongs to somebody else: errConflict.
func (d *Driver) ensureVolume(ctx context.Context, name string, labels engine.Labels) error {
	made, err := retryGet(ctx, func() (volume.Volume, error) {
		return d.api.VolumeCreate(ctx, volume.CreateOptions{Name: name, Labels: labels})
	}, "create volume %s", name)
	if err == nil && !carries(made.Labels, labels) {
		return &failure{op: "create volume " + name, class: errConflict, cause: errForeign}
	}
	return err
}

// removeVolume removes a volume with its files. The error is errConflict while a
// container, running or not, has it.
func (d *Driver) removeVolume(ctx context.Context, name string) error {
	return retryRemoval(ctx, func(ctx context.Context) error {
		return wrap(d.api.VolumeRemove(ctx, name, false), "remove volume %s", name)
	})
}

// Volumes is engine.Driver's.
func (d *Driver) Volumes(ctx context.Context, key engine.Key) ([]engine.Volume, error) {
	found, err := retryGet(ctx, func() (volume.ListResponse, error) {
		return d.api.VolumeList(ctx, volume.ListOptions{Filters: d.of(key)})
	}, "list volumes")
	list := make([]engine.Volume, len(found.Volumes))
	for i, v := range found.Volumes {
		list[i] = engine.Volume{Name: v.Name, Key: engine.KeyOf(v.Labels)}
	}
	return list, err
}
