package supervisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/stack"
)

// dataCopy is a snapshot that is being taken of a stack.
type dataCopy struct {
	runner  *runner
	gen     *generation // that is served
	st      *stack.Stack
	image   string            // of helpers
	helpers map[string]string // containers that have the data volumes, by service; no program of theirs runs
	next    stack.Snapshot
}

// look finds out what data there is, also of services that a deploy has dropped, and reports
// whether it has changed since the last snapshot, as far as engine.DataState shows. A state
// that the next change may not show is not noted, so that the next snapshot is taken anyway.
func (c *dataCopy) look(ctx context.Context) (changed bool, err error) {
	r := c.runner
	volumes, err := r.cfg.Engine.Volumes(ctx, engine.Key{Stack: r.id})
	if err != nil {
		return false, err
	}
	c.next = stack.Snapshot{Attempt: c.st.Generation.Attempt, Services: servicesWithData(c.st, engine.Objects{Volumes: volumes})}
	if c.image, err = r.sup.helperImage(ctx, c.st); err != nil {
		return false, err
	}
	all, quiet := sha256.New(), true
	for _, service := range c.next.Services {
		state, err := r.cfg.Engine.DataState(ctx, dataKey(c.st, service), c.image)
		if err != nil {
			return false, err
		}
		fmt.Fprintf(all, "%s %s\n", service, state.Digest)
		quiet = quiet && state.Quiet
	}
	state := hex.EncodeToString(all.Sum(nil))
	if quiet {
		c.next.State = state
	}
	return !c.st.HasSnapshot() || c.st.Snapshot.State != state, nil
}

// makeHelpers makes a container for each data volume, so that the engine does not have to
// while the stack is paused.
func (c *dataCopy) makeHelpers(ctx context.Context) error {
	for _, service := range c.next.Services {
		key := dataKey(c.st, service)
		id, err := c.runner.cfg.Engine.Prepare(ctx, engine.Spec{
			Name: key.SnapshotCopy(), Key: key, Image: c.image, Volumes: map[string]string{stack.DataDir: key.Data()},
		})
		if err != nil {
			return err
		}
		c.helpers[service] = id
	}
	return nil
}

func (c *dataCopy) removeHelpers() {
	ctx := context.WithoutCancel(c.runner.ctx)
	helpers := slices.Collect(maps.Values(c.helpers))
	if err := sideBySide(helpers, func(id string) error { return c.runner.cfg.Engine.Remove(ctx, id) }); err != nil {
		c.runner.log.Warn("helper container not removed; trying again later", "error", err)
	}
}

// read writes the data of a service.
func (c *dataCopy) read(ctx context.Context, service string, w io.Writer) error {
	counted := &counter{to: w}
	err := c.runner.cfg.Engine.ReadData(ctx, dataKey(c.st, service), c.helpers[service], c.image, counted)
	c.next.Bytes += counted.n
	return err
}

// tempFile is a file without a name.
type tempFile interface {
	io.ReadWriteSeeker
	io.Closer
}

// slowData is how many bytes of data are copied while the stack runs, without another attempt
// to pause it, if the last attempt failed.
const slowData = 256 << 20

// put puts the data into the archive: as it was while the stack was paused, or else as it is
// read while the stack runs.
func (c *dataCopy) put(ctx context.Context) error {
	if last := c.st.Snapshot; !last.InMotion || last.Bytes < slowData {
		c.next.At = stack.Now()
		files, err := c.copyPaused(ctx, pauseMax)
		defer closeFiles(files)
		if err == nil {
			return c.putFiles(ctx, files)
		}
		if ctx.Err() != nil {
			return err
		}
		c.runner.log.Info("data of the stack not copied while it was paused; copying it while the stack runs", "error", err)
	}
	c.next.At, c.next.Bytes, c.next.InMotion = stack.Now(), 0, true
	for _, service := range c.next.Services {
		err := c.putOne(ctx, service, func(ctx context.Context, w io.Writer) error { return c.read(ctx, service, w) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *dataCopy) putOne(ctx context.Context, service string, write func(context.Context, io.Writer) error) error {
	return c.runner.cfg.Archive.Put(ctx, c.st, liveName(c.next, service), write)
}

// copyPaused copies the data of each service to a file while the stack is paused, for a time at
// most. The caller closes the files, also after an error.
func (c *dataCopy) copyPaused(ctx context.Context, limit time.Duration) (files map[string]tempFile, err error) {
	files = map[string]tempFile{}
	for _, service := range c.next.Services {
		if files[service], err = c.runner.cfg.Dir.TempFile(); err != nil {
			delete(files, service)
			return files, err
		}
	}
	return files, c.gen.whilePaused(ctx, limit, func(ctx context.Context) error {
		for service, f := range files {
			if err := c.read(ctx, service, c.runner.cfg.Admission.RoomWriter(f)); err != nil {
				return err
			}
		}
		return nil
	})
}

func closeFiles(files map[string]tempFile) {
	for _, f := range files {
		_ = f.Close() // it has no name, and nobody reads it again
	}
}

func (c *dataCopy) putFiles(ctx context.Context, files map[string]tempFile) error {
	for service, f := range files {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		err := c.putOne(ctx, service, func(_ context.Context, w io.Writer) error {
			_, err := io.Copy(w, f)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// counter counts the bytes that it passes on.
type counter struct {
	to io.Writer
	n  int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.n += int64(n)
	return n, err
}
