package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/engine"
)

// walkData prints the time, that of the last change of a file in the folder that is its
// argument, and a digest of the names and the inodes of all. A file that goes meanwhile is
// no error: its folder has changed then, and the digest is not that of a later walk.
const walkData = `set -e
date +%s
cd "$1"
find . -printf '%C@ %y %s %i %p\0' >/tmp/walk 2>/dev/null || true
LC_ALL=C sort -z -o /tmp/walk /tmp/walk
tail -z -n 1 /tmp/walk | cut -d . -f 1 | tr '\0' '\n'
sha256sum </tmp/walk`

// DataState implements engine.Driver.
func (d *Driver) DataState(ctx context.Context, key engine.Key, image string) (state engine.DataState, err error) {
	key = key.WithoutGeneration()
	err = d.making.alone(ctx, key.DataLook(), func() error {
		if _, err := d.volume(ctx, key.Data()); err != nil {
			return err // before the helper, which would make an empty one
		}
		helper := d.helper(&engine.Spec{
			Name: key.DataLook(), Key: key, Image: image, User: "0:0",
			Cmd: []string{"sh", "-c", walkData, "sh", dataDir}, Volumes: map[string]string{dataDir: key.Data()},
		})
		helper.host.CapAdd = helperCaps
		id, err := d.replace(ctx, helper, d.stopAndRemove)
		if err != nil {
			return err
		}
		defer d.removeHelper(key, id)
		state, err = d.walk(ctx, id)
		return err
	})
	return state, err
}

// walk runs a helper with walkData.
func (d *Driver) walk(ctx context.Context, id string) (state engine.DataState, err error) {
	var out strings.Builder
	if err := d.Start(ctx, id); err != nil {
		return state, err
	}
	if err := d.Follow(ctx, id, time.Time{}, func(_ time.Time, line []byte) { fmt.Fprintf(&out, "%s\n", line) }); err != nil {
		return state, err
	}
	var began, changed int64 // seconds of the same clock
	if _, err := fmt.Sscanf(out.String(), "%d\n%d\n%s", &began, &changed, &state.Digest); err != nil {
		return state, fmt.Errorf("look at the data: %w", errors.Join(err, errors.New(out.String())))
	}
	state.Quiet = time.Duration(began-changed)*time.Second > engine.DataQuiet
	return state, nil
}
