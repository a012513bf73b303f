package enginetest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/engine"
)

// What a container in memory uses: some memory, and a tenth of a core.
const (
	usedMemory = 20 << 20
	usedShare  = 10
)

// Measure implements engine.Driver.
func (d *Driver) Measure(ctx context.Context, id string) (read func() (engine.Usage, error), err error) {
	began := time.Now()
	read = func() (engine.Usage, error) {
		d.engine.mu.Lock()
		defer d.engine.mu.Unlock()
		if c := d.engine.find(id); c == nil || !c.running {
			return engine.Usage{}, engine.ErrNotRunning
		}
		return engine.Usage{CPU: time.Since(began) / usedShare, Memory: usedMemory}, nil
	}
	err = d.retry(ctx, "Measure", id, func() error {
		c := d.engine.find(id)
		switch {
		case c == nil:
			return notFound("container", id)
		case !c.running:
			return fmt.Errorf("measure %s: %w", id, engine.ErrNotRunning)
		}
		return nil
	})
	return read, err
}

// VolumeSize implements engine.Driver.
func (d *Driver) VolumeSize(volume string, step func() error) (bytes int64, err error) {
	d.engine.mu.Lock()
	v := d.engine.volumes[volume]
	var sizes []int64
	if v != nil {
		for _, text := range v.files {
			sizes = append(sizes, int64(len(text)))
		}
	}
	d.engine.mu.Unlock()
	if v == nil {
		return 0, notFound("volume", volume)
	}
	for _, size := range sizes {
		if err := step(); err != nil {
			return 0, err
		}
		bytes += size
	}
	return bytes, nil
}

// LayerSize implements engine.Driver.
func (d *Driver) LayerSize(ctx context.Context, id string) (size func(step func() error) (int64, error), err error) {
	err = d.retry(ctx, "LayerSize", id, func() error {
		if d.engine.find(id) == nil {
			return notFound("container", id)
		}
		return nil
	})
	return func(step func() error) (bytes int64, err error) {
		d.engine.mu.Lock()
		defer d.engine.mu.Unlock()
		c := d.engine.find(id)
		if c == nil {
			return 0, notFound("container", id)
		}
		had := map[string]string{}
		if i := d.engine.images[c.spec.Image]; i != nil {
			had = i.files
		}
		for path, content := range c.files {
			if err := step(); err != nil {
				return 0, err
			}
			if content != had[path] {
				bytes += int64(len(content))
			}
		}
		return bytes, nil
	}, err
}

// ImagesSize implements engine.Driver. A file takes what is in it, unless an image of no stack
// has the same.
func (d *Driver) ImagesSize(ctx context.Context, refs []string) (bytes int64, err error) {
	type file struct{ path, content string }
	err = d.retry(ctx, "ImagesSize", strings.Join(refs, " "), func() error {
		files := map[file]bool{}
		for _, ref := range refs {
			if i := d.engine.images[ref]; i != nil {
				for path, content := range i.files {
					files[file{path, content}] = true
				}
			}
		}
		for _, i := range d.engine.images {
			for path, content := range i.files {
				if i.key.Stack == "" {
					delete(files, file{path, content})
				}
			}
		}
		bytes = 0
		for f := range files {
			bytes += int64(len(f.content))
		}
		return nil
	})
	return bytes, err
}
