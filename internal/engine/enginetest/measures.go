package enginetest

import (
	"context"
	"fmt"
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

// DataSize implements engine.Driver.
func (d *Driver) DataSize(key engine.Key, step func() error) (bytes int64, err error) {
	d.engine.mu.Lock()
	v := d.engine.volumes[key.Data()]
	var sizes []int64
	if v != nil {
		for _, text := range v.files {
			sizes = append(sizes, int64(len(text)))
		}
	}
	d.engine.mu.Unlock()
	if v == nil {
		return 0, notFound("volume", key.Data())
	}
	for _, size := range sizes {
		if err := step(); err != nil {
			return 0, err
		}
		bytes += size
	}
	return bytes, nil
}
