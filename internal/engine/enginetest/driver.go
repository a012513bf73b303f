package enginetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/berth-host/berth/internal/disk"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/pause"
)

// Options are the settings of an installation.
type Options struct {
	Instance string // id of the installation
	Subnets  int    // networks that the engine may have; 0 is 256
	InPlace  bool   // containers keep their names while they run, as under gVisor

	Registry *Registry // which Push and Fetch use; nil if none answers
}

// Driver is the engine.Driver of one installation on an Engine.
type Driver struct {
	engine *Engine
	opts   Options
}

var _ engine.Driver = (*Driver)(nil)

// A request whose answer is lost is made again after retryPause: retryTries times in all,
// and for as long as removal takes if it removes something.
const (
	retryTries = 3
	retryPause = 50 * time.Millisecond
	removal    = 30 * time.Second
)

// retry makes a request of a method, again when its answer is lost.
func (d *Driver) retry(ctx context.Context, method, object string, do func() error) error {
	tries := 0
	return d.repeat(ctx, method, object, do, func() bool { tries++; return tries < retryTries })
}

// retryRemoval is retry for what removes or stops something.
func (d *Driver) retryRemoval(ctx context.Context, method, object string, do func() error) error {
	began := time.Now()
	return d.repeat(ctx, method, object, do, func() bool { return time.Since(began) < removal })
}

func (d *Driver) repeat(ctx context.Context, method, object string, do func() error, mayRetry func() bool) error {
	for {
		err := d.request(ctx, method, object, do)
		if !errors.Is(err, engine.ErrUnreachable) || !mayRetry() || !pause.For(ctx, retryPause) {
			return err
		}
	}
}

// request makes one request, whose answer may be lost.
func (d *Driver) request(ctx context.Context, method, object string, do func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e := d.engine
	e.mu.Lock()
	before, after, away := e.before[method], e.after[method], e.away
	e.mu.Unlock()
	if away {
		return fmt.Errorf("%s %s: %w", method, object, engine.ErrUnreachable)
	}
	if before != nil {
		if err := before(object); err != nil {
			return err
		}
	}
	e.mu.Lock()
	err := do()
	e.mu.Unlock()
	if err == nil && after != nil {
		err = after(object)
	}
	return err
}

// Place implements engine.Driver.
func (d *Driver) Place(ctx context.Context, key engine.Key, _ int64) error {
	return d.retry(context.WithoutCancel(ctx), "Place", key.Network(), func() error {
		e := d.engine
		if e.networks[key.Network()] != nil {
			return nil
		}
		if len(e.networks) == d.opts.Subnets {
			return engine.ErrNoNetwork
		}
		e.networks[key.Network()] = &network{d.opts.Instance, engine.Key{Stack: key.Stack, Generation: key.Generation}}
		e.changed()
		return nil
	})
}

// Run implements engine.Driver.
func (d *Driver) Run(ctx context.Context, spec engine.Spec) (id string, err error) {
	err = d.engine.turn(ctx, spec.Name, func() error {
		id, err = d.runContainer(ctx, spec)
		return err
	})
	return id, err
}

func (d *Driver) runContainer(ctx context.Context, spec engine.Spec) (string, error) {
	id, err := d.create(ctx, "Run", spec, d.Stop)
	if err != nil {
		return "", err
	}
	if spec.Files != nil {
		err = engine.Stream(ctx, spec.Files, func(tar io.Reader) error { return d.CopyIn(ctx, id, tar) })
	}
	if err == nil && spec.Await != nil {
		err = spec.Await(ctx)
	}
	if err != nil {
		return "", errors.Join(err, d.Remove(context.WithoutCancel(ctx), id))
	}
	return id, d.startContainer(ctx, "Run", id)
}

// create makes a container in place of one of the same name, which clear stops first.
func (d *Driver) create(ctx context.Context, method string, spec engine.Spec, clear func(context.Context, string) error) (string, error) {
	e := d.engine
	e.mu.Lock()
	inWay, missing := e.find(spec.Name) != nil, e.missing(spec.Volumes)
	e.mu.Unlock()
	if inWay {
		if err := clear(ctx, spec.Name); err != nil {
			return "", err
		}
		if err := d.Remove(context.WithoutCancel(ctx), spec.Name); err != nil {
			return "", err
		}
	}
	var id string
	err := d.retry(context.WithoutCancel(ctx), method, spec.Name, func() error {
		if c := e.find(spec.Name); c != nil { // of a request whose answer was lost
			id = c.id
			return nil
		}
		for _, name := range missing { // an earlier request may have filled half of it
			delete(e.volumes, name)
		}
		if e.images[spec.Image] == nil {
			return notFound("image", spec.Image)
		}
		id = e.number("container")
		c := &container{id: id, spec: spec, owner: d.opts.Instance, aliases: spec.Aliases, files: maps.Clone(e.images[spec.Image].files)}
		e.mount(c)
		e.containers[id] = c
		e.changed()
		return nil
	})
	return id, err
}

// startContainer starts a container that does not run. It does not run a command a
// second time because an answer was lost.
func (d *Driver) startContainer(ctx context.Context, method, id string) error {
	e, launched := d.engine, false
	return d.retry(ctx, method, id, func() error {
		c := e.find(id)
		switch {
		case c == nil:
			return notFound("container", id)
		case c.running || launched:
			return nil
		case c.spec.Network != "" && e.networks[c.spec.Network] == nil:
			err := notFound("network", c.spec.Network)
			c.failure = err.Error()
			return err
		case c.spec.Shared && e.networks[c.spec.Key.Shared().Network()] == nil:
			err := notFound("network", c.spec.Key.Shared().Network())
			c.failure = err.Error()
			return err
		}
		launched = true
		e.launch(c)
		return nil
	})
}

// Restart implements engine.Driver.
func (d *Driver) Restart(ctx context.Context, id string, aliases ...string) error {
	if err := d.startContainer(ctx, "Restart", id); err != nil {
		return err
	}
	return d.retry(ctx, "Restart", id, func() error {
		if c := d.engine.find(id); c != nil && c.running && c.ip == "" { // a Promote left it off its network
			c.aliases = aliases
			d.engine.join(c)
		}
		return nil
	})
}

// Promote implements engine.Driver.
func (d *Driver) Promote(ctx context.Context, id string, aliases ...string) error {
	return d.retry(context.WithoutCancel(ctx), "Promote", id, func() error {
		c := d.engine.find(id)
		if c == nil {
			return notFound("container", id)
		}
		if c.running && d.opts.InPlace {
			return errNoPromote
		}
		c.aliases = aliases
		d.engine.changed()
		return nil
	})
}

// Promotes implements engine.Driver.
func (d *Driver) Promotes() bool { return !d.opts.InPlace }

// Look implements engine.Driver.
func (d *Driver) Look(ctx context.Context, id string) (found engine.Container, err error) {
	err = d.retry(ctx, "Look", id, func() error {
		c := d.engine.find(id)
		if c == nil {
			return notFound("container", id)
		}
		found = c.described()
		found.ExitCode, found.Error = c.code, c.failure
		return nil
	})
	return found, err
}

func (c *container) described() engine.Container {
	return engine.Container{ID: c.id, Name: c.spec.Name, Key: c.spec.Key, Image: c.spec.Image, Running: c.running, Paused: c.paused, IP: c.ip}
}

// defaultStop is the time between SIGTERM and SIGKILL if a spec has no StopTimeout.
const defaultStop = 10 * time.Second

// Stop implements engine.Driver.
func (d *Driver) Stop(ctx context.Context, id string) error {
	e := d.engine
	var ended <-chan struct{}
	limit := defaultStop
	err := d.retryRemoval(ctx, "Stop", id, func() error {
		c := e.find(id)
		if c == nil || !c.running {
			return nil
		}
		if c.spec.StopTimeout > 0 {
			limit = c.spec.StopTimeout
		}
		c.paused = false
		c.term()
		ended = c.killed
		return nil
	})
	if err != nil || ended == nil {
		return err
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.find(id); c != nil && c.killed == ended {
		e.endProcess(c, 137)
	}
	return nil
}

// Pause implements engine.Driver. The program of a paused container goes on.
func (d *Driver) Pause(ctx context.Context, id string) error {
	return d.retry(ctx, "Pause", id, func() error {
		c := d.engine.find(id)
		if c == nil {
			return notFound("container", id)
		}
		if !c.running {
			return fmt.Errorf("container %s: %w", id, engine.ErrNotRunning)
		}
		c.paused = true
		d.engine.changed()
		return nil
	})
}

// Unpause implements engine.Driver.
func (d *Driver) Unpause(ctx context.Context, id string) error {
	return d.retryRemoval(ctx, "Unpause", id, func() error {
		if c := d.engine.find(id); c != nil {
			c.paused = false
			d.engine.changed()
		}
		return nil
	})
}

// Remove implements engine.Driver.
func (d *Driver) Remove(ctx context.Context, id string) error {
	e := d.engine
	return d.retryRemoval(ctx, "Remove", id, func() error {
		c := e.find(id)
		if c == nil {
			return nil
		}
		e.endProcess(c, 137)
		delete(e.containers, c.id)
		e.changed()
		return nil
	})
}

// Follow implements engine.Driver.
func (d *Driver) Follow(ctx context.Context, id string, after time.Time, line func(time.Time, []byte)) error {
	e, given := d.engine, 0
	for {
		var lines []logLine
		var change chan struct{}
		running := false
		err := d.retry(ctx, "Follow", id, func() error {
			c := e.find(id)
			if c == nil {
				return notFound("container", id)
			}
			lines, given, running, change = c.log[min(given, len(c.log)):], len(c.log), c.running, e.change
			return nil
		})
		if err != nil {
			return err
		}
		for _, l := range lines {
			if l.at.After(after) {
				line(l.at, []byte(l.text))
			}
		}
		if !running {
			return nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Sockets implements engine.Driver.
func (d *Driver) Sockets(ctx context.Context, id string) (sockets []string, err error) {
	err = d.retry(ctx, "Sockets", id, func() error {
		c := d.engine.find(id)
		if c == nil {
			return notFound("container", id)
		}
		for _, port := range slices.Sorted(slices.Values(c.ports)) {
			sockets = append(sockets, "0.0.0.0:"+strconv.Itoa(port))
		}
		return nil
	})
	return sockets, err
}

// Ended implements engine.Driver.
func (d *Driver) Ended(ctx context.Context) (<-chan engine.End, <-chan error) {
	e, broken := d.engine, make(chan error, 1)
	s := &stream{ctx: ctx, owner: d.opts.Instance, ends: make(chan engine.End)}
	e.mu.Lock()
	s.broken = e.away
	e.streams = append(e.streams, s)
	e.mu.Unlock()
	go func() { broken <- e.deliver(s) }()
	return s.ends, broken
}

// deliver sends the ends of containers to a stream until it breaks or its context ends.
func (e *Engine) deliver(s *stream) error {
	for {
		e.mu.Lock()
		queue, change, broken := s.queue, e.change, s.broken
		s.queue = nil
		if broken || s.ctx.Err() != nil {
			e.streams = slices.DeleteFunc(e.streams, func(other *stream) bool { return other == s })
		}
		e.mu.Unlock()
		if broken {
			return fmt.Errorf("watch exits: %w", engine.ErrUnreachable)
		}
		if err := s.ctx.Err(); err != nil {
			return err
		}
		for _, end := range queue {
			select {
			case s.ends <- end:
			case <-s.ctx.Done():
			}
		}
		if len(queue) > 0 {
			continue
		}
		select {
		case <-change:
		case <-s.ctx.Done():
		}
	}
}

// Accepts implements engine.Driver.
func (d *Driver) Accepts(ctx context.Context) error {
	return d.request(ctx, "Accepts", "", func() error { return nil })
}

// Snapshot implements engine.Driver.
func (d *Driver) Snapshot(ctx context.Context, key engine.Key, spec engine.SnapshotSpec) error {
	e := d.engine
	return d.retry(ctx, "Snapshot", key.Data(), func() error {
		v := e.volumes[key.Data()]
		switch {
		case e.images[key.Snapshot()] != nil:
		case v == nil:
			return notFound("volume", key.Data())
		case e.images[spec.Image] == nil:
			return notFound("image", spec.Image)
		case e.free < spec.Floor:
			return &engine.NoRoomError{Room: e.free - spec.Floor}
		default:
			e.images[key.Snapshot()] = &image{id: e.number("sha256:"), owner: d.opts.Instance, key: listed(key), files: maps.Clone(v.files)}
		}
		return e.dropData(key)
	})
}

// Restore implements engine.Driver.
func (d *Driver) Restore(ctx context.Context, key engine.Key, process string) error {
	return d.engine.turn(ctx, key.Data(), func() error { return d.restore(ctx, key, process) })
}

func (d *Driver) restore(ctx context.Context, key engine.Key, process string) error {
	there, err := d.HasImage(ctx, key.Snapshot())
	if err != nil || !there {
		return err
	}
	if err := d.Remove(ctx, process); err != nil {
		return err
	}
	e := d.engine
	return d.retry(context.WithoutCancel(ctx), "Restore", key.Data(), func() error {
		kept := e.images[key.Snapshot()]
		if kept == nil {
			return nil // of a request whose answer was lost
		}
		if err := e.dropData(key); err != nil {
			return err
		}
		e.volumes[key.Data()] = newVolume(d.opts.Instance, listed(key), maps.Clone(kept.files))
		e.images[key.Restored()] = kept
		delete(e.images, key.Snapshot())
		e.changed()
		return nil
	})
}

// Probe implements engine.Driver.
func (d *Driver) Probe(ctx context.Context, spec engine.Spec) error {
	return d.engine.turn(ctx, spec.Name, func() error {
		id, err := d.runContainer(ctx, spec)
		if id != "" {
			defer d.Remove(context.WithoutCancel(ctx), id) //nolint:errcheck // the next probe is in its place
		}
		if err != nil {
			return err
		}
		if err := d.Follow(ctx, id, time.Time{}, func(time.Time, []byte) {}); err != nil {
			return err
		}
		c, err := d.Look(ctx, id)
		if err == nil && c.ExitCode != 0 {
			err = fmt.Errorf("the container ended with code %d: %w", c.ExitCode, engine.ErrExit)
		}
		return err
	})
}

// HasImage implements engine.Driver.
func (d *Driver) HasImage(ctx context.Context, ref string) (there bool, err error) {
	err = d.retry(ctx, "HasImage", ref, func() error {
		there = d.engine.images[ref] != nil
		return nil
	})
	return there, err
}

// ImageUser implements engine.Driver.
func (d *Driver) ImageUser(ctx context.Context, id string) (user int, err error) {
	err = d.retry(ctx, "ImageUser", id, func() error {
		for ref, i := range d.engine.images {
			if ref == id || i.id == id {
				user = i.user
				return nil
			}
		}
		return notFound("image", id)
	})
	return user, err
}

// HasData implements engine.Driver.
func (d *Driver) HasData(ctx context.Context, key engine.Key, _, _ string) (has bool, err error) {
	err = d.retry(ctx, "HasData", key.Data(), func() error {
		v := d.engine.volumes[key.Data()]
		has = v != nil && len(v.files) > 0
		return nil
	})
	return has, err
}

// Room implements engine.Driver.
func (d *Driver) Room() (disk.Space, error) {
	d.engine.mu.Lock()
	defer d.engine.mu.Unlock()
	return disk.Space{Dir: "memory", Bytes: d.engine.free, Inodes: disk.Endless}, nil
}
