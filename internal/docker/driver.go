package docker

import (
	"cmp"
	"context"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"

	"github.com/berth-host/berth/internal/disk"
	"github.com/berth-host/berth/internal/engine"
)

// DriverOptions are the settings of an installation.
type DriverOptions struct {
	Instance string       // id of the installation, a label of all that is made
	Pool     netip.Prefix // stacks' networks are /28s of it
	Runtime  string       // OCI runtime of containers, as in runsc; "" for the engine's own
}

// Driver is the engine.Driver of one installation on a Docker engine.
type Driver struct {
	engine  *Engine
	api     *client.Client // the engine's
	info    Info
	opts    DriverOptions
	joining namedLocks // by network, shared by containers that start on it; see realias
	making  namedLocks // by the name of what is made
	room    promises   // to images that are being made
	bases   baseImages
}

var _ engine.Driver = (*Driver)(nil)

// NewDriver returns the driver of an installation on an engine that describes itself as
// info.
func NewDriver(e *Engine, info Info, opts DriverOptions) *Driver {
	return &Driver{engine: e, api: e.api, info: info, opts: opts}
}

// labels returns the labels of a key's objects.
func (d *Driver) labels(key engine.Key) engine.Labels { return key.Labels(d.opts.Instance) }

// of returns the engine's filter for the objects of a key.
func (d *Driver) of(key engine.Key) filters.Args {
	filter := filters.NewArgs()
	for name, value := range d.labels(key) {
		filter.Add("label", name+"="+value)
	}
	return filter
}

// carries reports whether have contains every pair of want.
func carries(have, want engine.Labels) bool {
	for key, value := range want {
		if got, ok := have[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// Promotes implements engine.Driver. A container can be put on a network while it runs if it
// has the host's kernel: gVisor sets its network up when it starts.
func (d *Driver) Promotes() bool { return d.sharesKernel() }

// TakesFiles implements engine.Driver. gVisor remembers what the folders of a container
// had when it looked.
func (d *Driver) TakesFiles() bool { return d.sharesKernel() }

// sharesKernel reports whether containers have the host's kernel.
func (d *Driver) sharesKernel() bool {
	name := cmp.Or(d.opts.Runtime, d.info.DefaultRuntime)
	program := filepath.Base(cmp.Or(d.info.Runtimes[name].Path, name))
	return slices.Contains([]string{"runc", "crun", "io.containerd.runc.v2"}, program)
}

// Accepts implements engine.Driver. An engine that shuts down still answers on the connections
// that it has, so this takes a new one.
func (d *Driver) Accepts(ctx context.Context) error {
	api, err := connect(ctx, d.api.DaemonHost())
	if err == nil {
		defer api.Close() // only closes idle connections
		_, err = api.Ping(ctx)
	}
	return wrap(err, "connect to engine at %s", d.api.DaemonHost())
}

// Room implements engine.Driver. It asks the disk, not the engine.
func (d *Driver) Room() (disk.Space, error) { return disk.Free(d.info.RootDir) }
