package enginetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-host/berth/internal/engine"
)

// Containers implements engine.Driver.
func (d *Driver) Containers(ctx context.Context, key engine.Key) (found []engine.Container, err error) {
	err = d.retry(ctx, "Containers", key.Stack, func() error {
		found = d.containers(key)
		return nil
	})
	return found, err
}

// containers returns those of a key. The lock is held.
func (d *Driver) containers(key engine.Key) []engine.Container {
	var found []engine.Container
	for _, c := range d.engine.containers {
		if c.owner == d.opts.Instance && matches(key, c.spec.Key) {
			found = append(found, c.described())
		}
	}
	slices.SortFunc(found, func(a, b engine.Container) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// Volumes implements engine.Driver.
func (d *Driver) Volumes(ctx context.Context, key engine.Key) (found []engine.Volume, err error) {
	err = d.retry(ctx, "Volumes", key.Stack, func() error {
		found = d.volumes(key)
		return nil
	})
	return found, err
}

// volumes returns those of a key. The lock is held.
func (d *Driver) volumes(key engine.Key) []engine.Volume {
	var found []engine.Volume
	for _, name := range slices.Sorted(maps.Keys(d.engine.volumes)) {
		if v := d.engine.volumes[name]; v.owner == d.opts.Instance && matches(key, v.key) {
			found = append(found, engine.Volume{Name: name, Key: v.key})
		}
	}
	return found
}

// Networks implements engine.Driver.
func (d *Driver) Networks(ctx context.Context, key engine.Key) (found []engine.Network, err error) {
	err = d.retry(ctx, "Networks", key.Stack, func() error {
		found = d.networks(key)
		return nil
	})
	return found, err
}

// networks returns those of a key. The lock is held.
func (d *Driver) networks(key engine.Key) []engine.Network {
	var found []engine.Network
	for _, name := range slices.Sorted(maps.Keys(d.engine.networks)) {
		if n := d.engine.networks[name]; n.owner == d.opts.Instance && matches(key, n.key) {
			found = append(found, engine.Network{Name: name, Key: n.key})
		}
	}
	return found
}

// matches reports whether a search for want finds an object of a key.
func matches(want, key engine.Key) bool {
	return (want.Stack == "" || want.Stack == key.Stack) &&
		(want.Service == "" || want.Service == key.Service) &&
		(want.Generation == 0 || want.Generation == key.Generation)
}

// Inventory implements engine.Driver.
func (d *Driver) Inventory(ctx context.Context, stack string) (map[string]engine.Objects, error) {
	there := map[string]engine.Objects{}
	err := d.retry(ctx, "Inventory", stack, func() error {
		clear(there)
		note := func(owner string, key engine.Key, add func(*engine.Objects)) {
			if owner == d.opts.Instance && key.Stack != "" && matches(engine.Key{Stack: stack}, key) {
				o := there[key.Stack]
				add(&o)
				there[key.Stack] = o
			}
		}
		for _, c := range d.containers(engine.Key{Stack: stack}) {
			note(d.opts.Instance, c.Key, func(o *engine.Objects) { o.Containers = append(o.Containers, c) })
		}
		d.noteImages(note)
		for _, v := range d.volumes(engine.Key{Stack: stack}) {
			note(d.opts.Instance, v.Key, func(o *engine.Objects) { o.Volumes = append(o.Volumes, v) })
		}
		for _, n := range d.networks(engine.Key{Stack: stack}) {
			note(d.opts.Instance, n.Key, func(o *engine.Objects) { o.Networks = append(o.Networks, n) })
		}
		return nil
	})
	return there, err
}

// noteImages calls note once for each image, with all its references.
func (d *Driver) noteImages(note func(string, engine.Key, func(*engine.Objects))) {
	tags := map[*image][]string{}
	var order []*image
	for _, ref := range slices.Sorted(maps.Keys(d.engine.images)) {
		i := d.engine.images[ref]
		if tags[i] == nil {
			order = append(order, i)
		}
		tags[i] = append(tags[i], ref)
	}
	for _, i := range order {
		note(i.owner, i.key, func(o *engine.Objects) {
			o.Images = append(o.Images, engine.Image{ID: i.id, Key: i.key, Tags: tags[i]})
		})
	}
}

// Discard implements engine.Driver.
func (d *Driver) Discard(ctx context.Context, o engine.Objects) error {
	var errs []error
	for _, c := range o.Containers {
		errs = append(errs, d.Remove(ctx, c.ID))
	}
	e := d.engine
	remove := func(object string, do func()) {
		errs = append(errs, d.retryRemoval(ctx, "Discard", object, func() error {
			if e.isHeld(object) {
				return fmt.Errorf("%s is in use", object)
			}
			do()
			e.changed()
			return nil
		}))
	}
	for _, i := range o.Images {
		for _, tag := range i.Tags {
			remove(tag, func() {
				if !e.isUsed(tag) {
					delete(e.images, tag)
				}
			})
		}
	}
	for _, v := range o.Volumes {
		remove(v.Name, func() { delete(e.volumes, v.Name) })
	}
	for _, n := range o.Networks {
		remove(n.Name, func() { delete(e.networks, n.Name) })
	}
	return errors.Join(errs...)
}
