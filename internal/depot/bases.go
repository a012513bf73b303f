package depot

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/berth-host/berth/internal/engine"
)

// FetchBase brings a base image from the registry. The error is engine.ErrNotFound if it does
// not have it.
func (d *Depot) FetchBase(ctx context.Context, ref string) error {
	there, err := d.cfg.Registry.HasShared(ctx, ref)
	if err == nil && !there {
		err = fmt.Errorf("%s: %w", ref, engine.ErrNotFound)
	}
	if err != nil {
		return err
	}
	return d.cfg.Engine.Fetch(ctx, d.cfg.Registry.SharedImage(ref), ref, d.cfg.Registry.Login())
}

// OfferBase has a base image of this engine put into the registry, unless it is there. It
// does not wait.
func (d *Depot) OfferBase(ref string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bases[ref] {
		return
	}
	d.bases[ref] = true
	select {
	case d.offered <- struct{}{}:
	default: // it is about to look
	}
}

// offers returns the base images that were offered.
func (d *Depot) offers() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.bases))
}

// keepBase puts a base image into the registry unless it is there.
func (d *Depot) keepBase(ctx context.Context, ref string) error {
	there, err := d.cfg.Registry.HasShared(ctx, ref)
	if err != nil || there {
		return err
	}
	return d.cfg.Engine.Push(ctx, ref, d.cfg.Registry.SharedImage(ref), d.cfg.Registry.Login())
}
