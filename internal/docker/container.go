package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/network"

	"github.com/berth-host/berth/internal/engine"
)

// Run implements engine.Driver.
func (d *Driver) Run(ctx context.Context, spec engine.Spec) (id string, err error) {
	err = d.making.alone(ctx, spec.Name, func() error {
		if id, err = d.create(ctx, d.unit(&spec), d.stopAndRemove); err != nil {
			return err
		}
		err := d.fill(ctx, id, spec.Files)
		if err == nil && spec.Await != nil {
			err = spec.Await(ctx)
		}
		if err == nil && spec.Shared {
			err = d.share(ctx, id, spec.Key)
		}
		if err != nil {
			err = errors.Join(err, d.Remove(context.WithoutCancel(ctx), id))
			id = ""
			return err
		}
		return d.join(ctx, id, spec.Network)
	})
	return id, err
}

// fill copies files into a container that was never started.
func (d *Driver) fill(ctx context.Context, id string, files func(context.Context, io.Writer) error) error {
	if files == nil {
		return nil
	}
	return retry(ctx, func() error {
		return engine.Stream(ctx, files, func(tar io.Reader) error { return d.CopyIn(ctx, id, tar) })
	})
}

// Prepare implements engine.Driver.
func (d *Driver) Prepare(ctx context.Context, spec engine.Spec) (id string, err error) {
	err = d.making.alone(ctx, spec.Name, func() error {
		id, err = d.create(ctx, d.unit(&spec), func(ctx context.Context, name string) error {
			return d.Remove(context.WithoutCancel(ctx), name)
		})
		return err
	})
	return id, err
}

// Probe implements engine.Driver.
func (d *Driver) Probe(ctx context.Context, spec engine.Spec) error {
	return d.making.alone(ctx, spec.Name, func() error {
		id, err := d.create(ctx, d.unit(&spec), d.stopAndRemove)
		if err != nil {
			return err
		}
		defer d.removeHelper(spec.Key, id)
		_, err = d.runHelper(ctx, id)
		return err
	})
}

// stopAndRemove ends what runs in a container whose data stays, in the time that it was
// made with unless ctx ends before, and removes the container.
func (d *Driver) stopAndRemove(ctx context.Context, id string) error {
	if err := d.Stop(ctx, id); err != nil {
		return err
	}
	return d.Remove(context.WithoutCancel(ctx), id)
}

// share puts a container that is not started on the network of all generations. One that is
// missing is engine.ErrNotFound.
func (d *Driver) share(ctx context.Context, id string, key engine.Key) error {
	return d.connect(ctx, id, key.Shared().Network(), &network.EndpointSettings{})
}

// join starts a container, which gets an address on its network.
func (d *Driver) join(ctx context.Context, id, network string) error {
	return d.joining.share(ctx, network, func() error { return d.Start(ctx, id) })
}

// Start implements engine.Driver.
func (d *Driver) Start(ctx context.Context, id string) error {
	asked := time.Now()
	return retryUndone(ctx, func() error {
		return wrap(d.api.ContainerStart(ctx, id, container.StartOptions{}), "start container %s", id)
	}, func() (bool, error) {
		found, err := d.inspect(ctx, id)
		if err != nil {
			return false, err
		}
		started, err := time.Parse(time.RFC3339Nano, found.State.StartedAt)
		return started.After(asked), err
	})
}

// Restart implements engine.Driver.
func (d *Driver) Restart(ctx context.Context, id string, aliases ...string) error {
	found, err := d.inspect(ctx, id)
	if err != nil {
		return err
	}
	network := networkOf(&found)
	err = d.join(ctx, id, network)
	if errors.Is(err, engine.ErrAddressTaken) { // that it had when it was promoted
		if err = d.realias(ctx, id, network, aliases); err == nil {
			err = d.join(ctx, id, network)
		}
	}
	if err != nil {
		return err
	}
	c, err := d.Look(ctx, id)
	if err == nil && c.Running && c.IP == "" && network != none { // a Promote that failed left it off the network
		err = d.realias(ctx, id, network, aliases)
	}
	return err
}

// Promote implements engine.Driver.
func (d *Driver) Promote(ctx context.Context, id string, aliases ...string) error {
	longer, done := toFinish(ctx)
	defer done()
	found, err := d.inspect(longer, id)
	if err != nil {
		return err
	}
	return d.realias(ctx, id, networkOf(&found), aliases)
}

// networkOf returns the name of the network that a container is on, or was made for
// while it is off it.
func networkOf(found *container.InspectResponse) string {
	made, on := string(found.HostConfig.NetworkMode), ownNetworks(found)
	if on[made] != nil || len(on) == 0 {
		return made
	}
	return slices.Min(slices.Collect(maps.Keys(on))) // somebody has moved it
}

// ownNetworks returns the networks that an inspected container is on, as unshared does.
func ownNetworks(found *container.InspectResponse) map[string]*network.EndpointSettings {
	return unshared(found.Config.Labels, string(found.HostConfig.NetworkMode), found.NetworkSettings.Networks)
}

// unshared returns the networks that a container is on, without the one that Spec.Shared
// has put it on beside that which it was made for.
func unshared(labels engine.Labels, made string, on map[string]*network.EndpointSettings) map[string]*network.EndpointSettings {
	shared := engine.KeyOf(labels).Shared().Network()
	if made == shared || on[shared] == nil {
		return on
	}
	on = maps.Clone(on)
	delete(on, shared)
	return on
}

// Stop implements engine.Driver.
func (d *Driver) Stop(ctx context.Context, id string) error {
	return retryLong(ctx, func() error {
		return unlessGone(wrap(d.api.ContainerStop(ctx, id, container.StopOptions{}), "stop container %s", id))
	})
}

// Pause implements engine.Driver.
func (d *Driver) Pause(ctx context.Context, id string) error {
	return retry(ctx, func() error {
		err := wrap(d.api.ContainerPause(ctx, id), "pause container %s", id)
		switch {
		case err != nil && strings.Contains(err.Error(), alreadyPaused):
			return nil
		case err != nil && strings.Contains(err.Error(), notRunning):
			return fmt.Errorf("%w: %w", engine.ErrNotRunning, err)
		case err != nil && strings.Contains(err.Error(), notFrozen):
			return fmt.Errorf("%w: %w", engine.ErrNotFrozen, err)
		}
		return err
	})
}

// Unpause implements engine.Driver.
func (d *Driver) Unpause(ctx context.Context, id string) error {
	return retryLong(ctx, func() error {
		err := unlessGone(wrap(d.api.ContainerUnpause(ctx, id), "unpause container %s", id))
		if err != nil && strings.Contains(err.Error(), notPaused) {
			return nil
		}
		return err
	})
}

// What the engine says of a container that is paused or not. The codes that come with it
// stand for much else.
const (
	alreadyPaused = "is already paused"
	notPaused     = "is not paused"
	pausedNow     = "is paused"
	notRunning    = "is not running"
	notFrozen     = "unable to freeze"
)

// Remove implements engine.Driver. Anonymous volumes go with the container. It also waits for
// a removal that somebody else has begun.
func (d *Driver) Remove(ctx context.Context, id string) error {
	opts := container.RemoveOptions{Force: true, RemoveVolumes: true}
	return retryRemoval(ctx, func(ctx context.Context) error {
		return wrap(d.api.ContainerRemove(ctx, id, opts), "remove container %s", id)
	}, errConflict)
}

// CopyIn implements engine.Driver.
func (d *Driver) CopyIn(ctx context.Context, id string, tar io.Reader) error {
	err := d.api.CopyToContainer(ctx, id, "/", tar, container.CopyToContainerOptions{})
	return wrap(err, "copy into container %s at /", id)
}

// Look implements engine.Driver.
func (d *Driver) Look(ctx context.Context, id string) (engine.Container, error) {
	found, err := d.inspect(ctx, id)
	if err != nil {
		return engine.Container{}, err
	}
	s := found.State
	return engine.Container{
		ID: found.ID, Name: strings.TrimPrefix(found.Name, "/"), Key: engine.KeyOf(found.Config.Labels),
		Image: found.Config.Image, IP: address(ownNetworks(&found)), Running: s.Running, ExitCode: s.ExitCode, OOMKilled: s.OOMKilled, Error: s.Error,
	}, nil
}

func (d *Driver) inspect(ctx context.Context, id string) (container.InspectResponse, error) {
	found, err := retryGet(ctx, func() (container.InspectResponse, error) { return d.api.ContainerInspect(ctx, id) }, "inspect container %s", id)
	if err == nil && found.State == nil {
		found.State = &container.State{}
	}
	return found, err
}

// Containers implements engine.Driver.
func (d *Driver) Containers(ctx context.Context, key engine.Key) ([]engine.Container, error) {
	found, err := retryGet(ctx, func() ([]container.Summary, error) {
		return d.api.ContainerList(ctx, container.ListOptions{All: true, Filters: d.of(key)})
	}, "list containers")
	return each(found, containerOf), err
}

// containerOf returns a container of the list that the engine gives.
func containerOf(c container.Summary) engine.Container {
	made := engine.Container{ID: c.ID, Key: engine.KeyOf(c.Labels), Image: c.Image, Paused: c.State == container.StatePaused}
	made.Running = made.Paused || c.State == container.StateRunning
	if len(c.Names) > 0 {
		made.Name = strings.TrimPrefix(c.Names[0], "/")
	}
	if c.NetworkSettings != nil {
		made.IP = address(unshared(c.Labels, c.HostConfig.NetworkMode, c.NetworkSettings.Networks))
	}
	return made
}

// address returns the address of a container on the one network that it is on.
func address(networks map[string]*network.EndpointSettings) string {
	for _, endpoint := range networks {
		if endpoint != nil && endpoint.IPAddress != "" {
			return endpoint.IPAddress
		}
	}
	return ""
}

// Ended implements engine.Driver.
func (d *Driver) Ended(ctx context.Context) (<-chan engine.End, <-chan error) {
	filter := d.of(engine.Key{})
	filter.Add("type", string(events.ContainerEventType))
	filter.Add("event", string(events.ActionDie))
	// The engine answers before it subscribes; Since covers the gap.
	messages, broken := d.api.Events(ctx, events.ListOptions{Since: unixNano(time.Now()), Filters: filter})

	ends, failed := make(chan engine.End), make(chan error, 1)
	go func() {
		for {
			select {
			case err := <-broken:
				failed <- wrap(err, "watch exits")
				return
			case message := <-messages:
				select {
				case ends <- engine.End{ID: message.Actor.ID, Key: engine.KeyOf(message.Actor.Attributes)}:
				case <-ctx.Done(): // the next error is ctx's
				}
			}
		}
	}()
	return ends, failed
}
