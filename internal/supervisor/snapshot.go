package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/stack"
)

// roomAgain is how long to wait before measuring again a volume whose snapshot had no
// room.
const roomAgain = time.Hour

// keepData turns the data volumes of an expired stack into snapshot images, and in a cluster the
// files of a backup, too: other nodes get the data from there. It can be repeated: a volume or a
// file is removed only once what follows it is there.
func (r *runner) keepData(ctx context.Context) {
	st, err := r.get(ctx)
	if err != nil || st.Status != stack.Expired {
		return
	}
	r.sup.finishOnEngine(ctx, r.log, "data of an expired stack not kept as a snapshot; the volume stays", func() error {
		var err error
		if r.cfg.Archive != nil {
			err = r.restoreBackups(ctx, st)
		}
		return errors.Join(err, r.keepVolumes(ctx, st))
	})
	r.startMeasure()
	r.keepApartLater()
}

// keepVolumes makes a snapshot of every volume with data. The build caches and the layers
// go first, to make room. The data of a service that a redeploy dropped stays as it is.
func (r *runner) keepVolumes(ctx context.Context, st *stack.Stack) error {
	volumes, err := r.cfg.Engine.Volumes(ctx, engine.Key{Stack: r.id})
	if err != nil {
		return err
	}
	caches := slices.DeleteFunc(slices.Clone(volumes), func(v engine.Volume) bool { return isNeeded(st, v, volumes) })
	err = r.cfg.Engine.Discard(ctx, engine.Objects{Volumes: caches, Images: unneededLayers(st)})
	_ = r.cfg.Admission.CheckRoom() // makes room, if it can, before a snapshot finds none
	for _, v := range volumes {
		key := dataKey(st, v.Key.Service)
		if v.Name == key.Data() && st.Service(v.Key.Service) != nil {
			err = errors.Join(err, r.snapshotVolume(ctx, st, key))
		}
	}
	return err
}

// unneededLayers returns the layers that the row still has and the stack does not need.
func unneededLayers(st *stack.Stack) (images []engine.Image) {
	for _, layer := range st.Layers {
		for _, ref := range []string{layer.Source.Image, layer.Image} {
			if ref != "" && !st.KeepsImage(ref) {
				images = append(images, engine.Image{Tags: []string{ref}})
			}
		}
	}
	return images
}

// snapshotVolume commits a service's data as an image and removes the volume. If there
// is no room for the image the volume stays: the service can be brought back from it as
// well.
func (r *runner) snapshotVolume(ctx context.Context, st *stack.Stack, key engine.Key) error {
	spec := engine.SnapshotSpec{Floor: r.cfg.DiskFloor, Pids: r.cfg.Pids}
	made, err := r.cfg.Engine.HasImage(ctx, key.Snapshot())
	if err == nil && !made {
		if time.Since(r.cfg.Dir.LastPutOff(r.id, key.Service)) < roomAgain {
			return nil
		}
		spec.Image, err = r.sup.helperImage(ctx, st)
	}
	if err == nil {
		err = r.cfg.Engine.Snapshot(ctx, key, spec)
	}
	switch {
	case errors.Is(err, engine.ErrNoRoom):
		return r.putOff(key.Service, err)
	case err != nil:
		return fmt.Errorf("snapshot of %s: %w", key.Service, err)
	}
	return nil
}

// putOff makes a snapshot wait, and logs that the first time.
func (r *runner) putOff(service string, cause error) error {
	if r.cfg.Dir.LastPutOff(r.id, service).IsZero() {
		r.log.Warn("data of an expired stack stays in its volume; room for it is checked every hour", "service", service, "error", cause)
	}
	return r.cfg.Dir.PutOff(r.id, service, cause)
}

// helperImage returns a base image, whose programs no tenant could change. A stack of sites may
// still have the data of a service that it dropped.
func (s *Supervisor) helperImage(ctx context.Context, st *stack.Stack) (string, error) {
	for i := range st.Generation.Services {
		if !st.Generation.Services[i].Spec.IsStatic() {
			return s.cfg.Builder.EnsureBase(ctx, st.Generation.Services[i].Spec.Runtime, io.Discard)
		}
	}
	return s.cfg.Builder.EnsureDebian(ctx, io.Discard)
}

// restoreData fills a new data volume from the service's snapshot, or from a backup, if there
// is one.
func (g *generation) restoreData(ctx context.Context, s *stack.Service) error {
	from, err := g.cfg.Dir.BackedUp(g.st.ID, s.Spec.Name)
	if err != nil {
		return err
	}
	if from != nil {
		return g.restoreBackup(ctx, s, from)
	}
	return g.cfg.Engine.Restore(ctx, g.data(s.Spec.Name), g.processName(s))
}

// checkData returns an error if a service has been served before and its data is gone, neither
// in a volume nor in a snapshot or a backup: its process must not begin again with an empty
// folder.
func (g *generation) checkData(ctx context.Context, s *stack.Service) error {
	if s.Spec.IsStatic() {
		return nil
	}
	key := g.data(s.Spec.Name)
	volumes, err := g.cfg.Engine.Volumes(ctx, key.WithoutGeneration())
	if err != nil || hasVolume(volumes, key) {
		return err
	}
	kept, err := g.runner.sup.isKeptApart(ctx, key)
	if err == nil && !kept {
		return serviceError(s, "its data is no longer on this host; ask the operator, or upload the source again to begin without data")
	}
	return err
}

// isKeptApart reports whether the data of a service that has no volume is in a snapshot or a
// backup, from which its next process begins.
func (s *Supervisor) isKeptApart(ctx context.Context, key engine.Key) (bool, error) {
	if from, err := s.cfg.Dir.BackedUp(key.Stack, key.Service); err != nil || from != nil {
		return err == nil, err
	}
	return s.cfg.Engine.HasImage(ctx, key.Snapshot())
}

// dropRestored removes the snapshots whose data is back, unless ctx has ended: then a
// delete removes them, or the next server. It finishes each removal that it began,
// so that whoever comes next does not meet an image that is half removed.
func (g *generation) dropRestored(ctx context.Context) {
	for i := range g.made.Services {
		if ctx.Err() != nil {
			return
		}
		restored := engine.Image{Tags: []string{g.key(g.made.Services[i].Spec.Name).Restored()}}
		if err := g.cfg.Engine.Discard(context.WithoutCancel(ctx), engine.Objects{Images: []engine.Image{restored}}); err != nil {
			g.log.Error("restored snapshot not removed; trying again later", "error", err)
		}
	}
}
