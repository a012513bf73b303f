package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/docker"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/stack"
)

// snapshotDir is where a snapshot image holds the files of a $DATA_DIR.
const snapshotDir = "/snapshot"

// copyData copies a volume's files with their owners, modes and times, and
// compares what it made with what there was. First it asks whether there is room
// for the copy, which keeps the holes of files, and for the image, in which the
// engine fills them; its argument is the floor in MiB.
const copyData = `set -e
list() { cd "$1"; find . \( -type d -printf '%p d %m %U %G\n' \) -o -printf '%p %y %m %U %G %s %T@ %l\n' | LC_ALL=C sort | sha256sum; }
size() { du -sm "$@" ` + stack.DataDir + ` | cut -f 1; }
need=$(($(size) + $(size --apparent-size)))
room=$(($(df -m --output=avail / | tail -n 1) - $1))
if [ "$need" -gt "$room" ]; then echo "it takes $need MiB, and $room MiB are free above the floor"; exit ` + noRoom + `; fi
mkdir ` + snapshotDir + `
cp -a ` + stack.DataDir + `/. ` + snapshotDir + `/
[ "$(list ` + stack.DataDir + `)" = "$(list ` + snapshotDir + `)" ]`

// noRoom is how copyData ends that does not begin.
const noRoom = "28"

// errNoRoom is why a volume stays as it is.
var errNoRoom = errors.New("no room for a snapshot")

// roomAgain is when a volume whose snapshot had no room is measured again.
const roomAgain = time.Hour

// helperCaps are what reading and writing files of any owner takes.
var helperCaps = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER"}

// keepData turns the data volumes of an expired stack into snapshot images. It
// can be repeated: a volume goes only once its snapshot is there.
func (r *runner) keepData(ctx context.Context) {
	st, err := r.get(ctx)
	if err != nil || st.Status != stack.Expired {
		return
	}
	err = r.sup.outlast(ctx, func() error { return r.keepVolumes(ctx, st) })
	if err != nil && ctx.Err() == nil {
		r.log.Error("data of an expired stack not kept as a snapshot; the volume stays", "error", err)
	}
}

// keepVolumes makes a snapshot of every volume with data.
func (r *runner) keepVolumes(ctx context.Context, st *stack.Stack) error {
	volumes, err := r.cfg.Engine.Volumes(ctx, r.labels(""))
	if err != nil {
		return err
	}
	for _, v := range volumes {
		key := engine.KeyOf(v.Labels)
		switch {
		case v.Name != key.Data():
			err = errors.Join(err, r.cfg.Engine.RemoveVolume(ctx, v.Name)) // a package cache
		case st.Service(key.Service) != nil:
			err = errors.Join(err, r.snapshot(ctx, st, key))
		}
		// The data of a service that a redeploy dropped stays as it is.
	}
	return err
}

// snapshot commits a service's data as an image and removes the volume. Where
// there is no room for it the volume stays: the service can be brought back from
// that as well.
func (r *runner) snapshot(ctx context.Context, st *stack.Stack, key engine.Key) error {
	_, err := r.cfg.Engine.Image(ctx, key.Snapshot())
	if errors.Is(err, docker.ErrNotFound) {
		if r.isPutOff(st, key.Service) {
			return nil
		}
		err = r.makeSnapshot(ctx, st, key)
	}
	switch {
	case errors.Is(err, errNoRoom):
		return r.putOff(st, key.Service, err)
	case err != nil:
		return fmt.Errorf("snapshot of %s: %w", key.Service, err)
	}
	failpoint.Here("snapshot-committed")
	return r.cfg.Engine.RemoveVolume(ctx, key.Data())
}

// putOffPath is a file that tells since when and why a service's snapshot waits
// for room.
func (r *runner) putOffPath(st *stack.Stack, service string) string {
	return filepath.Join(r.cfg.Dir.Stack(r.id), service+".no-room")
}

func (r *runner) isPutOff(st *stack.Stack, service string) bool {
	info, err := os.Stat(r.putOffPath(st, service))
	return err == nil && time.Since(info.ModTime()) < roomAgain
}

// putOff has a snapshot wait, and says so the first time.
func (r *runner) putOff(st *stack.Stack, service string, cause error) error {
	path := r.putOffPath(st, service)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		r.log.Warn("data of an expired stack stays in its volume; it is measured again every hour", "service", service, "error", cause)
	}
	if err := os.WriteFile(path, []byte(cause.Error()+"\n"), 0o600); err != nil {
		return fmt.Errorf("put a snapshot off: %w", err)
	}
	return nil
}

func (r *runner) makeSnapshot(ctx context.Context, st *stack.Stack, key engine.Key) error {
	base, err := r.helperImage(ctx, st)
	if err != nil {
		return err
	}
	id, err := r.sup.create(ctx, docker.ContainerSpec{
		Name:    key.SnapshotCopy(),
		Image:   base,
		User:    "0:0",
		Cmd:     []string{"sh", "-c", copyData, "sh", strconv.FormatInt(r.cfg.DiskFloor>>20, 10)},
		Labels:  r.labels(key.Service),
		Volumes: map[string]string{stack.DataDir: key.Data()},
		Caps:    helperCaps,
		Pids:    r.cfg.Pids,
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
	_, err = r.cfg.Engine.Commit(context.WithoutCancel(ctx), id, key.Snapshot(), docker.CommitSpec{Labels: r.labels(key.Service)})
	return err
}

// runHelper runs a container of the host's own to its end.
func (r *runner) runHelper(ctx context.Context, id string, said *recent) error {
	if err := r.cfg.Engine.Start(ctx, id); err != nil {
		return err
	}
	if err := r.cfg.Engine.Follow(ctx, id, time.Time{}, func(_ time.Time, line []byte, _ bool) { said.add(line) }); err != nil {
		return err
	}
	c, err := r.cfg.Engine.Inspect(ctx, id)
	switch {
	case err != nil:
		return err
	case strconv.Itoa(c.ExitCode) == noRoom:
		return fmt.Errorf("%w: %s", errNoRoom, strings.Join(said.lines, " "))
	case c.Running || c.ExitCode != 0:
		return fmt.Errorf("the copy ended with code %d%s", c.ExitCode, said)
	}
	return nil
}

func (r *runner) removeHelper(id string) {
	if err := r.cfg.Engine.Remove(context.WithoutCancel(r.ctx), id); err != nil {
		r.log.Error("helper container not removed; the next start tries again", "error", err)
	}
}

// helperImage is a base image, whose programs no tenant could change.
func (r *runner) helperImage(ctx context.Context, st *stack.Stack) (string, error) {
	for i := range st.Services {
		if !st.Services[i].Spec.IsStatic() {
			return r.cfg.Builder.EnsureBase(ctx, st.Services[i].Spec.Runtime, io.Discard)
		}
	}
	return "", errors.New("no service of the stack has data")
}

// restoreData fills a new data volume from a service's snapshot, if it has one,
// and makes the snapshot a leftover: as long as there is one, no process has had
// the volume. The engine copies the files, owners and modes, when a container is
// created that has the volume where the image has the files.
func (g *generation) restoreData(ctx context.Context, s *stack.Service) error {
	key := g.key(s.Spec.Name)
	if _, err := g.cfg.Engine.Image(ctx, key.Snapshot()); errors.Is(err, docker.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	// What an earlier attempt left may be half of it.
	if err := errors.Join(g.cfg.Engine.Remove(ctx, key.Process(s.Replaced)), g.cfg.Engine.RemoveVolume(ctx, key.Data())); err != nil {
		return err
	}
	id, err := g.runner.sup.create(ctx, docker.ContainerSpec{
		Name:    key.RestoreCopy(),
		Image:   key.Snapshot(),
		User:    "0:0",
		Cmd:     []string{"true"},
		Labels:  g.runner.labels(s.Spec.Name),
		Volumes: map[string]string{snapshotDir: key.Data()},
	})
	if err != nil {
		return err
	}
	failpoint.Here("data-restored")
	ctx = context.WithoutCancel(ctx)
	if err := g.cfg.Engine.Remove(ctx, id); err != nil {
		return err
	}
	// A second name makes removing the first one quick, however large the data is.
	if err := g.cfg.Engine.TagImage(ctx, key.Snapshot(), key.Restored()); err != nil {
		return err
	}
	err = g.cfg.Engine.RemoveImage(ctx, key.Snapshot())
	failpoint.Here("snapshot-removed")
	return err
}

// checkData returns the failure of a service that was served before and whose data
// is gone: there is neither its volume nor a snapshot. Its process must not begin
// again with an empty folder.
func (g *generation) checkData(ctx context.Context, s *stack.Service) error {
	if s.Spec.IsStatic() {
		return nil
	}
	key := g.key(s.Spec.Name)
	volumes, err := g.cfg.Engine.Volumes(ctx, g.runner.labels(s.Spec.Name))
	if err != nil || slices.ContainsFunc(volumes, func(v docker.Volume) bool { return v.Name == key.Data() }) {
		return err
	}
	_, err = g.cfg.Engine.Image(ctx, key.Snapshot())
	if errors.Is(err, docker.ErrNotFound) {
		return serviceError(s, "its data is no longer on this host; ask the operator, or upload the source again to begin without data")
	}
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
		if err := g.cfg.Engine.RemoveImage(context.WithoutCancel(ctx), g.key(g.services[i].Spec.Name).Restored()); err != nil {
			g.log.Error("restored snapshot not removed; trying again later", "error", err)
		}
	}
}
