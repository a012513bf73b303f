package enginetest

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"

	"github.com/berth-host/berth/internal/engine"
)

// MakeImage implements engine.Driver.
func (d *Driver) MakeImage(ctx context.Context, spec engine.ImageSpec, _ io.Writer) error {
	return d.addImage(ctx, "MakeImage", spec.Ref, spec.Context)
}

// Pull implements engine.Driver. There is no registry.
func (d *Driver) Pull(ctx context.Context, ref string, _ io.Writer) error {
	return d.retry(ctx, "Pull", ref, func() error { return notFound("image", ref) })
}

// Import implements engine.Driver.
func (d *Driver) Import(ctx context.Context, ref string, files io.Reader, _ []string) error {
	return d.addImage(ctx, "Import", ref, files)
}

func (d *Driver) addImage(ctx context.Context, method, ref string, content io.Reader) error {
	files, err := untar(content)
	if err != nil {
		return err
	}
	return d.retry(ctx, method, ref, func() error {
		if len(files) == 0 {
			delete(d.engine.images, ref) // it counts as missing
			return nil
		}
		d.engine.images[ref] = &image{id: d.engine.number("sha256:"), files: files}
		return nil
	})
}

func untar(r io.Reader) (map[string]string, error) {
	files, reader := map[string]string{}, tar.NewReader(r)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			return nil, err
		}
		files[path.Join("/", header.Name)] = string(content)
	}
}

// Prepare implements engine.Driver.
func (d *Driver) Prepare(ctx context.Context, spec engine.Spec) (id string, err error) {
	err = d.engine.turn(ctx, spec.Name, func() error {
		id, err = d.create(ctx, "Prepare", spec, func(context.Context, string) error { return nil })
		return err
	})
	return id, err
}

// CopyIn implements engine.Driver.
func (d *Driver) CopyIn(ctx context.Context, id string, content io.Reader) error {
	return d.unpack(ctx, "CopyIn", id, content)
}

// unpack puts a tar into a container, for a method.
func (d *Driver) unpack(ctx context.Context, method, id string, content io.Reader) error {
	files, err := untar(content)
	if err != nil {
		return err
	}
	return d.retry(ctx, method, id, func() error {
		c := d.engine.find(id)
		if c == nil {
			return notFound("container", id)
		}
		for file, content := range files {
			into, name := d.engine.locate(c, file)
			into[name] = content
		}
		return nil
	})
}

// TakesFiles implements engine.Driver.
func (d *Driver) TakesFiles() bool { return !d.opts.InPlace }

// Start implements engine.Driver.
func (d *Driver) Start(ctx context.Context, id string) error {
	return d.startContainer(ctx, "Start", id)
}

// Commit implements engine.Driver.
func (d *Driver) Commit(ctx context.Context, id, ref string, key engine.Key, config engine.ImageConfig) error {
	e := d.engine
	return d.retry(context.WithoutCancel(ctx), "Commit", id, func() error {
		c := e.find(id)
		if c == nil {
			return notFound("container", id)
		}
		c.paused = c.running
		if e.free < config.Floor {
			return &engine.NoRoomError{Room: e.free - config.Floor}
		}
		var user int
		_, _ = fmt.Sscanf(config.User, "%d", &user) // "" is root
		e.images[ref] = &image{id: e.number("sha256:"), owner: d.opts.Instance, key: key, user: user, files: maps.Clone(c.files)}
		e.changed()
		return nil
	})
}

// Tag implements engine.Driver.
func (d *Driver) Tag(ctx context.Context, ref, another string) error {
	return d.retry(ctx, "Tag", ref, func() error {
		i := d.engine.images[ref]
		if i == nil {
			return notFound("image", ref)
		}
		d.engine.images[another] = i
		return nil
	})
}
