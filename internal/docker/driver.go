package docker

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"time"

	"github.com/berth-host/berth/internal/disk"
	"github.com/berth-host/berth/internal/engine"
)

// DriverOptions are the settings of an installation.
type DriverOptions struct {
	Instance string       // id of the installation: everything made carries it
	Pool     netip.Prefix // stacks' networks are /28s of it
	Runtime  string       // OCI runtime of containers, as in runsc; "" for the engine's own
}

// Driver is the engine.Driver of one Docker engine. It names objects, makes them in
// place of what is in the way, and finds them again; an Engine makes the requests.
type Driver struct {
	engine  *Engine
	info    Info
	opts    DriverOptions
	joining namedLocks // a network, which containers that start on it share; see realias
	making  namedLocks // a container, by its name
}

var _ engine.Driver = (*Driver)(nil)

// NewDriver returns the driver of an installation on an engine that describes itself as
// info.
func NewDriver(e *Engine, info Info, opts DriverOptions) *Driver {
	return &Driver{engine: e, info: info, opts: opts}
}

// labels are those of a key's objects.
func (d *Driver) labels(key engine.Key) Labels { return key.Labels(d.opts.Instance) }

// Run is engine.Driver's.
func (d *Driver) Run(ctx context.Context, spec engine.Spec) (string, error) {
	done, err := d.making.alone(ctx, spec.Name)
	if err != nil {
		return "", err
	}
	defer done()
	id, err := d.create(ctx, spec, d.stopAndRemove)
	if err != nil {
		return "", err
	}
	return id, d.join(ctx, id, spec.Network)
}

// create makes a container with its volumes, in place of one of the same name that an
// earlier attempt, or a request whose answer was lost, left, and that clear removes.
func (d *Driver) create(ctx context.Context, spec engine.Spec, clear func(context.Context, string) error) (string, error) {
	return d.createIn(ctx, spec, d.containerSpec(spec), clear)
}

func (d *Driver) createIn(ctx context.Context, spec engine.Spec, full ContainerSpec, clear func(context.Context, string) error) (string, error) {
	asked := context.WithoutCancel(ctx) // what the engine was asked for is known by its id, or not there
	for _, volume := range spec.Volumes {
		if err := d.engine.ensureVolume(asked, volume, d.labels(spec.Key.WithoutGeneration())); err != nil {
			return "", err
		}
	}
	id, err := d.engine.create(asked, full)
	if !mayExist(err) {
		return id, err
	}
	if err := clear(ctx, spec.Name); err != nil {
		return "", err
	}
	return d.engine.create(asked, full)
}

func (d *Driver) containerSpec(spec engine.Spec) ContainerSpec {
	return ContainerSpec{
		Name: spec.Name, Image: spec.Image, User: spec.User, Dir: spec.Dir, Hostname: spec.Hostname,
		Cmd: spec.Cmd, Env: spec.Env, Labels: d.labels(spec.Key),
		Network: spec.Network, Aliases: spec.Aliases, Volumes: spec.Volumes,
		Memory: spec.Memory, NanoCPUs: spec.NanoCPUs, CPUShares: spec.CPUShares, Pids: spec.Pids,
		Runtime: d.opts.Runtime, LogMax: spec.LogMax, StopTimeout: spec.StopTimeout,
	}
}

// stopAndRemove ends what runs in a container whose data stays, in the time that it was
// made with unless ctx ends before, and removes the container.
func (d *Driver) stopAndRemove(ctx context.Context, id string) error {
	if err := d.engine.stop(ctx, id); err != nil {
		return err
	}
	return d.engine.remove(context.WithoutCancel(ctx), id)
}

// join starts a container, which gets an address on its network.
func (d *Driver) join(ctx context.Context, id, network string) error {
	done, err := d.joining.share(ctx, network)
	if err != nil {
		return err
	}
	defer done()
	return d.engine.start(ctx, id)
}

// Restart is engine.Driver's.
func (d *Driver) Restart(ctx context.Context, id string, aliases ...string) error {
	network, err := d.engine.networkOf(ctx, id)
	if err != nil {
		return err
	}
	err = d.join(ctx, id, network)
	if errors.Is(err, engine.ErrAddressTaken) { // that it had when it was promoted
		if err = d.realias(ctx, id, network, aliases); err == nil {
			err = d.join(ctx, id, network)
		}
	}
	if err != nil {
		return err
	}
	c, err := d.engine.inspect(ctx, id)
	if err == nil && c.Running && c.IP == "" && network != none { // a promotion that failed left it off the network
		err = d.realias(ctx, id, network, aliases)
	}
	return err
}

// Promote is engine.Driver's. It ends what it has begun, though ctx ends before.
func (d *Driver) Promote(ctx context.Context, id string, aliases ...string) error {
	network, err := d.engine.networkOf(context.WithoutCancel(ctx), id)
	if err != nil {
		return err
	}
	return d.realias(ctx, id, network, aliases)
}

// realias gives a container other names. No process of a service starts on its network
// meanwhile, so that none gets its address.
func (d *Driver) realias(ctx context.Context, id, network string, aliases []string) error {
	done, err := d.joining.alone(ctx, network)
	if err != nil {
		return err
	}
	defer done()
	return d.engine.realias(context.WithoutCancel(ctx), id, network, aliases...)
}

// Promotes is engine.Driver's.
func (d *Driver) Promotes() bool { return d.info.Attaches(d.opts.Runtime) }

// Look is engine.Driver's.
func (d *Driver) Look(ctx context.Context, id string) (engine.Container, error) {
	c, err := d.engine.inspect(ctx, id)
	return described(c), err
}

func described(c Container) engine.Container {
	return engine.Container{
		ID: c.ID, Name: c.Name, Key: engine.KeyOf(c.Labels), Running: c.Running,
		IP: c.IP, ExitCode: c.ExitCode, OOMKilled: c.OOMKilled, Error: c.Error,
	}
}

// Stop is engine.Driver's.
func (d *Driver) Stop(ctx context.Context, id string) error { return d.engine.stop(ctx, id) }

// Remove is engine.Driver's.
func (d *Driver) Remove(ctx context.Context, id string) error { return d.engine.remove(ctx, id) }

// Follow is engine.Driver's.
func (d *Driver) Follow(ctx context.Context, id string, after time.Time, line func(time.Time, []byte)) error {
	return d.engine.follow(ctx, id, after, line)
}

// Ended is engine.Driver's.
func (d *Driver) Ended(ctx context.Context) (<-chan engine.End, <-chan error) {
	return d.engine.exits(ctx, d.labels(engine.Key{}))
}

// Accepts is engine.Driver's.
func (d *Driver) Accepts(ctx context.Context) error { return d.engine.accepts(ctx) }

// Room is engine.Driver's. It asks the disk, not the engine.
func (d *Driver) Room() (disk.Space, error) { return disk.Free(d.info.RootDir) }

// HasImage is engine.Driver's.
func (d *Driver) HasImage(ctx context.Context, ref string) (bool, error) {
	_, err := d.engine.image(ctx, ref)
	if errors.Is(err, engine.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Probe is engine.Driver's.
func (d *Driver) Probe(ctx context.Context, spec engine.Spec) error {
	done, err := d.making.alone(ctx, spec.Name)
	if err != nil {
		return err
	}
	defer done()
	id, err := d.create(ctx, spec, d.stopAndRemove)
	if err != nil {
		return err
	}
	defer d.removeHelper(spec.Key, id)
	_, err = d.runHelper(ctx, id)
	return err
}

// MakeImage is engine.Driver's.
func (d *Driver) MakeImage(ctx context.Context, spec engine.ImageSpec, out io.Writer) error {
	return d.engine.buildImage(ctx, spec, out)
}

// Pull is engine.Driver's.
func (d *Driver) Pull(ctx context.Context, ref string, out io.Writer) error {
	return d.engine.pull(ctx, ref, out)
}

// Import is engine.Driver's.
func (d *Driver) Import(ctx context.Context, ref string, tar io.Reader, changes []string) error {
	return d.engine.importImage(ctx, ref, tar, changes)
}

// Prepare is engine.Driver's.
func (d *Driver) Prepare(ctx context.Context, spec engine.Spec) (string, error) {
	done, err := d.making.alone(ctx, spec.Name)
	if err != nil {
		return "", err
	}
	defer done()
	return d.create(ctx, spec, func(ctx context.Context, name string) error {
		return d.engine.remove(context.WithoutCancel(ctx), name)
	})
}

// CopyIn is engine.Driver's.
func (d *Driver) CopyIn(ctx context.Context, id string, tar io.Reader) error {
	return d.engine.copyIn(ctx, id, tar)
}

// Start is engine.Driver's.
func (d *Driver) Start(ctx context.Context, id string) error { return d.engine.start(ctx, id) }

// Exec is engine.Driver's.
func (d *Driver) Exec(ctx context.Context, id string, cmd engine.Cmd, stdout, stderr io.Writer) (int, error) {
	return d.engine.exec(ctx, id, cmd, stdout, stderr)
}

// Commit is engine.Driver's.
func (d *Driver) Commit(ctx context.Context, id string, key engine.Key, config engine.ImageConfig) error {
	return d.engine.commit(context.WithoutCancel(ctx), id, key.Image(), CommitSpec{
		Labels: d.labels(key), User: config.User, Dir: config.Dir, Env: config.Env,
	})
}

// Tag is engine.Driver's.
func (d *Driver) Tag(ctx context.Context, ref, another string) error {
	return d.engine.tagImage(ctx, ref, another)
}
