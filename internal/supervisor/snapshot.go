package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/berth-host/berth/internal/build"
	"github.com/berth-host/berth/internal/docker"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/stack"
)

// snapshotDir is where a snapshot image holds the files of a $DATA_DIR.
const snapshotDir = "/snapshot"

// snapshotRef is the image that keeps a service's data while its stack is
// expired.
func snapshotRef(st *stack.Stack, service string) string {
	return "berth/" + st.Hex() + "-" + service + ":data"
}

// restoredRef is what a snapshot is called once its data is back in a volume: a
// leftover.
func restoredRef(st *stack.Stack, service string) string {
	return "berth/" + st.Hex() + "-" + service + restoredTag
}

const restoredTag = ":restored"

// copyData copies a volume's files with their owners, modes and times, and
// compares what it made with what there was.
const copyData = `set -e
list() { cd "$1"; find . \( -type d -printf '%p d %m %U %G\n' \) -o -printf '%p %y %m %U %G %s %T@ %l\n' | LC_ALL=C sort | sha256sum; }
mkdir ` + snapshotDir + `
cp -a ` + build.DataDir + `/. ` + snapshotDir + `/
[ "$(list ` + build.DataDir + `)" = "$(list ` + snapshotDir + `)" ]`

// helperCaps are what reading and writing files of any owner takes.
var helperCaps = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER"}

// keepData turns the data volumes of an expired stack into snapshot images. It
// can be repeated: a volume goes only once its snapshot is there.
func (r *runner) keepData(ctx context.Context) {
	st, err := r.get(ctx)
	if err != nil || st.Status != stack.Expired {
		return
	}
	err = r.outlast(ctx, func() error { return r.keepVolumes(ctx, st) })
	if err != nil && ctx.Err() == nil {
		r.Log.Error("data of an expired stack not kept as a snapshot; the volume stays", "stack", r.id, "error", err)
	}
}

// keepVolumes makes a snapshot of every volume with data.
func (r *runner) keepVolumes(ctx context.Context, st *stack.Stack) error {
	volumes, err := r.Engine.Volumes(ctx, r.labels(st, ""))
	if err != nil {
		return err
	}
	for _, v := range volumes {
		service := v.Labels[build.LabelService]
		switch {
		case v.Name != dataVolume(st, service):
			err = errors.Join(err, r.Engine.RemoveVolume(ctx, v.Name)) // a package cache
		case st.Service(service) != nil:
			err = errors.Join(err, r.snapshot(ctx, st, service))
		}
		// The data of a service that a redeploy dropped stays as it is.
	}
	return err
}

// snapshot commits a service's data as an image and removes the volume.
func (r *runner) snapshot(ctx context.Context, st *stack.Stack, service string) error {
	ref := snapshotRef(st, service)
	if _, err := r.Engine.Image(ctx, ref); errors.Is(err, docker.ErrNotFound) {
		if err := r.makeSnapshot(ctx, st, service, ref); err != nil {
			return fmt.Errorf("snapshot of %s: %w", service, err)
		}
	} else if err != nil {
		return err
	}
	failpoint.Here("snapshot-committed")
	return r.Engine.RemoveVolume(ctx, dataVolume(st, service))
}

func (r *runner) makeSnapshot(ctx context.Context, st *stack.Stack, service, ref string) error {
	base, err := r.helperImage(ctx, st)
	if err != nil {
		return err
	}
	id, err := r.create(ctx, docker.ContainerSpec{
		Name:    "berth-" + st.Hex() + "-" + service + "-snapshot",
		Image:   base,
		User:    "0:0",
		Cmd:     []string{"sh", "-c", copyData},
		Labels:  r.labels(st, service),
		Volumes: map[string]string{build.DataDir: dataVolume(st, service)},
		Caps:    helperCaps,
		Pids:    r.Pids,
	})
	if err != nil {
		return err
	}
	defer r.removeHelper(id)
	var said recent
	if err := r.runHelper(ctx, id, &said); err != nil {
		return err
	}
	failpoint.Here("snapshot-copied")
	_, err = r.Engine.Commit(context.WithoutCancel(ctx), id, ref, docker.CommitSpec{Labels: r.labels(st, service)})
	return err
}

// runHelper runs a container of the host's own to its end.
func (r *runner) runHelper(ctx context.Context, id string, said *recent) error {
	if err := r.Engine.Start(ctx, id); err != nil {
		return err
	}
	if err := r.Engine.Follow(ctx, id, time.Time{}, func(_ time.Time, line []byte, _ bool) { said.add(line) }); err != nil {
		return err
	}
	c, err := r.Engine.Inspect(ctx, id)
	if err == nil && (c.Running || c.ExitCode != 0) {
		err = fmt.Errorf("the copy ended with code %d%s", c.ExitCode, said)
	}
	return err
}

func (r *runner) removeHelper(id string) {
	if err := r.Engine.Remove(context.WithoutCancel(r.ctx), id); err != nil {
		r.Log.Error("helper container not removed; the next start tries again", "stack", r.id, "error", err)
	}
}

// helperImage is a base image, whose programs no tenant could change.
func (r *runner) helperImage(ctx context.Context, st *stack.Stack) (string, error) {
	for i := range st.Services {
		if !st.Services[i].IsStatic() {
			return r.Builder.EnsureBase(ctx, st.Services[i].Runtime, io.Discard)
		}
	}
	return "", errors.New("no service of the stack has data")
}

// restoreData fills a new data volume from a service's snapshot, if it has one,
// and makes the snapshot a leftover: as long as there is one, no process has had
// the volume. The engine copies the files, owners and modes, when a container is
// created that has the volume where the image has the files.
func (g *generation) restoreData(ctx context.Context, s *stack.Service) error {
	ref := snapshotRef(g.st, s.Name)
	if _, err := g.Engine.Image(ctx, ref); errors.Is(err, docker.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	// What an earlier attempt left may be half of it.
	name := containerName(g.st, s.Name, g.number)
	if err := errors.Join(g.Engine.Remove(ctx, name), g.Engine.RemoveVolume(ctx, dataVolume(g.st, s.Name))); err != nil {
		return err
	}
	id, err := g.create(ctx, docker.ContainerSpec{
		Name:    "berth-" + g.st.Hex() + "-" + s.Name + "-restore",
		Image:   ref,
		User:    "0:0",
		Cmd:     []string{"true"},
		Labels:  g.labels(g.st, s.Name),
		Volumes: map[string]string{snapshotDir: dataVolume(g.st, s.Name)},
	})
	if err != nil {
		return err
	}
	failpoint.Here("data-restored")
	ctx = context.WithoutCancel(ctx)
	if err := g.Engine.Remove(ctx, id); err != nil {
		return err
	}
	// A second name makes removing the first one quick, however large the data is.
	if err := g.Engine.TagImage(ctx, ref, restoredRef(g.st, s.Name)); err != nil {
		return err
	}
	err = g.Engine.RemoveImage(ctx, ref)
	failpoint.Here("snapshot-removed")
	return err
}

// dropRestored removes the snapshots whose data is back, unless ctx has ended:
// then a delete removes them, or the next server. What has begun is finished, as
// whoever comes next must not meet an image that is half removed.
func (g *generation) dropRestored(ctx context.Context) {
	for i := range g.services {
		if ctx.Err() != nil {
			return
		}
		if err := g.Engine.RemoveImage(context.WithoutCancel(ctx), restoredRef(g.st, g.services[i].Name)); err != nil {
			g.Log.Error("restored snapshot not removed; trying again later", "stack", g.id, "error", err)
		}
	}
}
