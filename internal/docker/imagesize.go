package docker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/docker/docker/api/types/image"

	"github.com/berth-host/berth/internal/engine"
)

// layered is an image as far as its size goes. It never changes.
type layered struct {
	layers []string  // digests, from the lowest one
	size   int64     // bytes of all of them
	came   time.Time // when it was made, or got its last name
}

// baseImages are the images that belong to no stack, as they were listed last.
type baseImages struct {
	mu     sync.Mutex
	listed time.Time
	byID   map[string]layered
}

// ImagesSize implements engine.Driver.
func (d *Driver) ImagesSize(ctx context.Context, refs []string) (int64, error) {
	var images []layered
	var newest time.Time
	for _, ref := range refs {
		i, err := d.layersOf(ctx, ref)
		if errors.Is(err, engine.ErrNotFound) {
			continue
		}
		if err != nil {
			return 0, err
		}
		images = append(images, i)
		if i.came.After(newest) {
			newest = i.came
		}
	}
	bases, err := d.basesBefore(ctx, newest)
	return addSizes(images, bases), err
}

// addSizes returns how many bytes images take beside others. Each takes what it is larger than
// the largest one that it begins with.
func addSizes(images, others []layered) (bytes int64) {
	below := slices.Clone(others)
	slices.SortStableFunc(images, func(a, b layered) int { return cmp.Compare(len(a.layers), len(b.layers)) })
	for _, i := range images {
		var there int64
		for _, b := range below {
			if len(b.layers) <= len(i.layers) && slices.Equal(b.layers, i.layers[:len(b.layers)]) {
				there = max(there, b.size)
			}
		}
		bytes += i.size - there
		below = append(below, i)
	}
	return bytes
}

// layersOf returns an image, by reference or id.
func (d *Driver) layersOf(ctx context.Context, ref string) (layered, error) {
	found, err := d.image(ctx, ref)
	if err != nil {
		return layered{}, err
	}
	made, _ := time.Parse(time.RFC3339Nano, found.Created) // an image may have no time
	i := layered{layers: found.RootFS.Layers, size: found.Size, came: made}
	if tagged := found.Metadata.LastTagTime; tagged.After(made) {
		i.came = tagged
	}
	return i, nil
}

// basesBefore returns the images that belong to no stack, with all that were there at a time.
func (d *Driver) basesBefore(ctx context.Context, t time.Time) ([]layered, error) {
	b := &d.bases
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.listed.After(t) {
		if err := d.listBases(ctx); err != nil {
			return nil, err
		}
	}
	all := make([]layered, 0, len(b.byID))
	for _, i := range b.byID {
		all = append(all, i)
	}
	return all, nil
}

// listBases lists the images that belong to no stack, also those without a name on which others
// are based. The caller holds the lock of bases.
func (d *Driver) listBases(ctx context.Context) error {
	began := time.Now()
	found, err := retryGet(ctx, func() ([]image.Summary, error) {
		return d.api.ImageList(ctx, image.ListOptions{All: true})
	}, "list all images")
	if err != nil {
		return err
	}
	bases := map[string]layered{}
	for i := range found {
		if engine.KeyOf(found[i].Labels).Stack != "" {
			continue
		}
		known, ok := d.bases.byID[found[i].ID]
		if !ok {
			known, err = d.layersOf(ctx, found[i].ID)
			if errors.Is(err, engine.ErrNotFound) {
				continue // it has just been removed
			}
			if err != nil {
				return err
			}
		}
		bases[found[i].ID] = known
	}
	d.bases.listed, d.bases.byID = began, bases
	return nil
}
