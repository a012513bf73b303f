package enginetest

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/engine"
)

// Registry is a registry in memory, for the images of many engines.
type Registry struct {
	address string // beginning of all references

	mu     sync.Mutex
	images map[string]*image // by reference
	away   bool
}

// NewRegistry returns an empty registry with an address, as in host/prefix.
func NewRegistry(address string) *Registry {
	return &Registry{address: address, images: map[string]*image{}}
}

// Leave makes the registry unreachable, until Return.
func (r *Registry) Leave() { r.set(true) }

// Return makes a registry that was unreachable answer again.
func (r *Registry) Return() { r.set(false) }

func (r *Registry) set(away bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = away
}

// Has reports whether there is an image of a reference.
func (r *Registry) Has(remote string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.images[remote] != nil
}

var errNoRegistry = errors.New("the registry does not answer")

// visit calls do with the images of a registry that answers at the address of a reference.
func (r *Registry) visit(remote string, do func(map[string]*image) error) error {
	if r == nil || !strings.HasPrefix(remote, r.address+"/") {
		return errNoRegistry
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away {
		return errNoRegistry
	}
	return do(r.images)
}

// Push implements engine.Driver.
func (d *Driver) Push(ctx context.Context, ref, remote string, _ engine.Login) error {
	return d.retry(ctx, "Push", ref, func() error {
		i := d.engine.images[ref]
		if i == nil {
			return notFound("image", ref)
		}
		return d.opts.Registry.visit(remote, func(images map[string]*image) error {
			images[remote] = i
			return nil
		})
	})
}

// Fetch implements engine.Driver.
func (d *Driver) Fetch(ctx context.Context, remote, ref string, _ engine.Login) error {
	return d.retry(ctx, "Fetch", ref, func() error {
		return d.opts.Registry.visit(remote, func(images map[string]*image) error {
			kept := images[remote]
			if kept == nil {
				return notFound("image", remote)
			}
			copied := *kept
			d.engine.images[ref] = &copied
			d.engine.changed()
			return nil
		})
	})
}

// ReadData implements engine.Driver.
func (d *Driver) ReadData(ctx context.Context, key engine.Key, container, image string, w io.Writer) error {
	var files map[string]string
	err := d.retry(ctx, "ReadData", key.Data(), func() error {
		e := d.engine
		switch {
		case container != "" && e.find(container) == nil:
			return notFound("container", container)
		case container == "" && e.images[key.Snapshot()] != nil:
			files = maps.Clone(e.images[key.Snapshot()].files)
		case e.volumes[key.Data()] == nil:
			return notFound("volume", key.Data())
		case container == "" && e.images[image] == nil:
			return notFound("image", image)
		default:
			files = maps.Clone(e.volumes[key.Data()].files)
		}
		return nil
	})
	if err != nil {
		return err
	}
	out := tar.NewWriter(w)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := out.WriteHeader(&tar.Header{Name: engine.DataFolder + "/" + name, Mode: 0o644, Size: int64(len(files[name]))}); err != nil {
			return err
		}
		if _, err := io.WriteString(out, files[name]); err != nil {
			return err
		}
	}
	return out.Close()
}

// DataState implements engine.Driver.
func (d *Driver) DataState(ctx context.Context, key engine.Key, image string) (state engine.DataState, err error) {
	err = d.retry(ctx, "DataState", key.Data(), func() error {
		v := d.engine.volumes[key.Data()]
		if v == nil {
			return notFound("volume", key.Data())
		}
		if d.engine.images[image] == nil {
			return notFound("image", image)
		}
		state = engine.DataState{Digest: fmt.Sprint(v.changes, v.files), Quiet: time.Since(v.changedAt) > engine.DataQuiet}
		return nil
	})
	return state, err
}

// LoadedDump is the file in which a command of UnpackData keeps what it reads.
const LoadedDump = "dump"

// UnpackData implements engine.Driver.
func (d *Driver) UnpackData(ctx context.Context, key engine.Key, u engine.Unpacking, data func(context.Context, io.Writer) error) error {
	return d.engine.turn(ctx, key.Data(), func() error {
		err := d.retry(ctx, "UnpackData", key.Data(), func() error {
			if d.engine.images[u.Image] == nil {
				return notFound("image", u.Image)
			}
			return d.engine.dropData(key)
		})
		if err != nil {
			return err
		}
		files := map[string]string{}
		err = engine.Stream(ctx, data, func(r io.Reader) error {
			if u.Cmd != nil {
				dump, err := io.ReadAll(r)
				files[LoadedDump] = string(dump)
				return err
			}
			found, err := untar(r)
			if err != nil {
				return fmt.Errorf("%w: %w", engine.ErrData, err)
			}
			for name, content := range found {
				files[strings.TrimPrefix(name, "/")] = content
			}
			return nil
		})
		if err != nil {
			return err
		}
		return d.retry(context.WithoutCancel(ctx), "UnpackData", key.Data(), func() error {
			d.engine.volumes[key.Data()] = newVolume(d.opts.Instance, listed(key), files)
			d.engine.changed()
			return nil
		})
	})
}

// listed returns the key of a data volume as an engine lists it.
func listed(key engine.Key) engine.Key { return engine.Key{Stack: key.Stack, Service: key.Service} }

// FillData implements engine.Driver.
func (d *Driver) FillData(ctx context.Context, key engine.Key, image, process string, data io.Reader) error {
	if err := d.Remove(ctx, process); err != nil {
		return err
	}
	return d.engine.turn(ctx, key.Data(), func() error {
		err := d.retry(ctx, "FillData", key.Data(), func() error {
			if d.engine.images[image] == nil {
				return notFound("image", image)
			}
			return d.engine.dropData(key)
		})
		if err != nil {
			return err
		}
		found, err := untar(data)
		if err != nil {
			return err
		}
		files := map[string]string{}
		for name, content := range found {
			if inside, ok := strings.CutPrefix(name, "/"+engine.DataFolder+"/"); ok {
				files[inside] = content
			}
		}
		return d.retry(context.WithoutCancel(ctx), "FillData", key.Data(), func() error {
			d.engine.volumes[key.Data()] = newVolume(d.opts.Instance, listed(key), files)
			d.engine.changed()
			return nil
		})
	})
}
