package docker

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/lastlines"
)

// A helper has a service's data at dataDir, and a snapshot image has it at snapshotDir.
const (
	dataDir     = "/data"
	snapshotDir = "/snapshot"
)

// copyData runs twice. First it prints in MiB what a volume's files take on the disk, which is
// what a copy takes that keeps their holes, what an image of them takes, which has the holes in
// full, and what is free. Then it copies the files with their owners, modes and times, and
// compares the copy with the original.
const copyData = `set -e
size() { du -sm "$@" ` + dataDir + ` | cut -f 1; }
if [ ! -e /measured ]; then
	echo $(size) $(size --apparent-size) $(df -m --output=avail / | tail -n 1)
	touch /measured
	exit
fi
rm /measured
list() { cd "$1"; find . \( -type d -printf '%p d %m %U %G\n' \) -o -printf '%p %y %m %U %G %s %T@ %l\n' | LC_ALL=C sort | sha256sum; }
mkdir ` + snapshotDir + `
cp -a ` + dataDir + `/. ` + snapshotDir + `/
[ "$(list ` + dataDir + `)" = "$(list ` + snapshotDir + `)" ]`

// helperCaps are the capabilities that reading and writing files of any owner takes.
var helperCaps = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER"}

// Snapshot implements engine.Driver.
func (d *Driver) Snapshot(ctx context.Context, key engine.Key, spec engine.SnapshotSpec) error {
	return d.making.alone(ctx, key.Data(), func() error {
		there, err := d.HasImage(ctx, key.Snapshot())
		if err == nil && !there {
			err = d.makeSnapshot(ctx, key.WithoutGeneration(), spec)
		}
		if err != nil {
			return err
		}
		failpoint.Here("snapshot-committed")
		return d.removeData(ctx, key)
	})
}

// removeData removes the data volume of a service whose data is in its snapshot, with
// those containers of the host's own that an attempt which broke off may have left: they
// have the volume.
func (d *Driver) removeData(ctx context.Context, key engine.Key) error {
	err := errors.Join(d.Remove(ctx, key.SnapshotCopy()), d.Remove(ctx, key.RestoreCopy()))
	if err != nil {
		return err
	}
	return busy(d.removeVolume(ctx, key.Data()))
}

// makeSnapshot copies a volume that exists. A missing one must not become the snapshot of
// an empty one, which would hide that the data is gone.
func (d *Driver) makeSnapshot(ctx context.Context, key engine.Key, spec engine.SnapshotSpec) error {
	helper := d.helper(&engine.Spec{
		Name:    key.SnapshotCopy(),
		Key:     key,
		Image:   spec.Image,
		User:    "0:0",
		Cmd:     []string{"sh", "-c", copyData},
		Volumes: map[string]string{dataDir: key.Data()},
		Pids:    spec.Pids,
	})
	helper.host.CapAdd = helperCaps
	id, err := d.replace(ctx, helper, d.stopAndRemove)
	if err != nil {
		return err
	}
	defer d.removeHelper(key, id)
	done, err := d.reserveCopy(ctx, id, spec.Floor)
	if err != nil {
		return err
	}
	defer done()
	if _, err := d.runHelper(ctx, id); err != nil {
		return err
	}
	failpoint.Here("snapshot-copied")
	return d.commit(ctx, id, key.Snapshot(), &container.Config{Labels: d.labels(key)})
}

// helper describes a container of the host's own, which runs under the engine's own
// runtime.
func (d *Driver) helper(spec *engine.Spec) unit {
	u := d.unit(spec)
	u.host.Runtime = ""
	return u
}

// exitError is the end of a helper that failed.
type exitError struct {
	code int
	last *lastlines.Buffer
}

func (e exitError) Error() string {
	return fmt.Sprintf("the helper ended with code %d%s", e.code, e.last.Phrase())
}

// Unwrap returns engine.ErrExit.
func (exitError) Unwrap() error { return engine.ErrExit }

// runHelper runs a container of the host's own to its end, and returns the end of what it
// prints. The error is an exitError if it exits with another code than 0.
func (d *Driver) runHelper(ctx context.Context, id string) (string, error) {
	if err := d.Start(ctx, id); err != nil {
		return "", err
	}
	last := lastlines.OfOutput(failureTail)
	err := d.Follow(ctx, id, time.Time{}, func(_ time.Time, line []byte) { fmt.Fprintf(last, "%s\n", line) })
	if err != nil {
		return "", err
	}
	c, err := d.Look(ctx, id)
	if err == nil && (c.Running || c.ExitCode != 0) {
		err = exitError{c.ExitCode, last}
	}
	return last.String(), err
}

// removeHelper removes a helper. Nobody waits for that.
func (d *Driver) removeHelper(key engine.Key, id string) {
	if err := d.Remove(context.Background(), id); err != nil {
		d.engine.log.Error("helper container not removed; the next start tries again", "stack", key.Stack, "error", err)
	}
}

// HasData implements engine.Driver. The engine reads the volume, so that a container which
// does not run will do.
func (d *Driver) HasData(ctx context.Context, key engine.Key, container, image string) (bool, error) {
	if container != "" {
		return d.hasFiles(ctx, container)
	}
	if _, err := d.volume(ctx, key.Data()); err != nil {
		return false, notMissing(err)
	}
	key = key.WithoutGeneration()
	id, err := d.replace(ctx, d.helper(&engine.Spec{
		Name: key.DataLook(), Key: key, Image: image, User: "0:0", Cmd: []string{"true"}, Volumes: map[string]string{dataDir: key.Data()},
	}), d.stopAndRemove)
	if err != nil {
		return false, err
	}
	defer d.removeHelper(key, id)
	return d.hasFiles(ctx, id)
}

// hasFiles reports whether there is anything in the data folder of a container.
func (d *Driver) hasFiles(ctx context.Context, id string) (bool, error) {
	files, _, err := d.api.CopyFromContainer(ctx, id, dataDir)
	if err != nil {
		return false, wrap(err, "read the data of container %s", id)
	}
	defer files.Close()
	entries := tar.NewReader(files)
	_, err = entries.Next() // the folder itself
	if err == nil {
		_, err = entries.Next()
	}
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	return err == nil, wrap(err, "read the data of container %s", id)
}

// notMissing returns nil for an object that is missing, and other errors as they are.
func notMissing(err error) error {
	if errors.Is(err, engine.ErrNotFound) {
		return nil
	}
	return err
}

// Restore implements engine.Driver. The engine copies the files, owners and modes when a
// container is created that has the volume where the image has the files. As long as there
// is a snapshot, no process has had the volume.
func (d *Driver) Restore(ctx context.Context, key engine.Key, process string) error {
	return d.making.alone(ctx, key.Data(), func() error {
		there, err := d.HasImage(ctx, key.Snapshot())
		if err != nil || !there {
			return err
		}
		if err := d.Remove(ctx, process); err != nil {
			return err
		}
		if err := d.removeData(ctx, key); err != nil { // an earlier attempt may have left half of it
			return err
		}
		if err := d.fillFromSnapshot(ctx, key.WithoutGeneration()); err != nil {
			return err
		}
		ctx, done := toFinish(ctx)
		defer done()
		// A second name makes removing the first one quick, however large the data is.
		if err := d.Tag(ctx, key.Snapshot(), key.Restored()); err != nil {
			return err
		}
		err = d.removeImage(ctx, key.Snapshot())
		failpoint.Here("snapshot-removed")
		return err
	})
}

// fillFromSnapshot makes a data volume with what a snapshot has.
func (d *Driver) fillFromSnapshot(ctx context.Context, key engine.Key) error {
	id, err := d.create(ctx, d.helper(&engine.Spec{
		Name:    key.RestoreCopy(),
		Key:     key,
		Image:   key.Snapshot(),
		User:    "0:0",
		Cmd:     []string{"true"},
		Volumes: map[string]string{snapshotDir: key.Data()},
	}), d.stopAndRemove)
	if err != nil {
		return err
	}
	failpoint.Here("data-restored")
	return d.Remove(context.WithoutCancel(ctx), id)
}
