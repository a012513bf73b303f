package docker

import (
	"context"

	"github.com/docker/docker/api/types/volume"
)

// Volume is a named volume of the engine.
type Volume struct {
	Name   string
	Labels Labels
}

// ensureVolume makes a volume, or finds the one of that name. One that does
// not carry the labels belongs to somebody else: ErrConflict.
func (e *Engine) ensureVolume(ctx context.Context, name string, labels Labels) error {
	made, err := answered(ctx, func() (volume.Volume, error) {
		made, err := e.api.VolumeCreate(ctx, volume.CreateOptions{Name: name, Labels: labels})
		return made, wrap(err, "create volume %s", name)
	})
	if err != nil {
		return err
	}
	if !carries(made.Labels, labels) {
		return &failure{op: "create volume " + name, class: ErrConflict, cause: errForeign}
	}
	return nil
}

// removeVolume removes a volume and its files; ErrConflict while a container,
// running or not, has it.
func (e *Engine) removeVolume(ctx context.Context, name string) error {
	return insist(ctx, func(ctx context.Context) error {
		return unlessGone(wrap(e.api.VolumeRemove(ctx, name, false), "remove volume %s", name))
	})
}

// volumes returns the volumes that carry the labels.
func (e *Engine) volumes(ctx context.Context, labels Labels) ([]Volume, error) {
	found, err := answered(ctx, func() (volume.ListResponse, error) {
		found, err := e.api.VolumeList(ctx, volume.ListOptions{Filters: byLabel(labels)})
		return found, wrap(err, "list volumes")
	})
	if err != nil {
		return nil, err
	}
	list := make([]Volume, len(found.Volumes))
	for i, v := range found.Volumes {
		list[i] = Volume{Name: v.Name, Labels: v.Labels}
	}
	return list, nil
}
