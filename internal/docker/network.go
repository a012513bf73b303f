package docker

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/pause"
)

// bridge is a bridge network.
type bridge struct {
	name   string
	device string // its interface on the host, 15 characters at most
	subnet netip.Prefix
	inside bool // it leads to nothing outside
	labels engine.Labels
}

// none is the engine's network of containers that are on no network.
const none = network.NetworkNone

// bridgeName is the driver's option for the name of the interface.
const bridgeName = "com.docker.network.bridge.name"

// removeNetwork tries networkTries times while containers come or go, and ensureNetwork
// waits up to networkMaking for a network that somebody else is making.
const (
	networkTries  = 5
	networkMaking = 5 * time.Second
	networkPause  = 50 * time.Millisecond
)

// subnetBits is the size of a generation's network and of that of its builds: 13 containers
// beside the gateway, for four services, each with a release command and with another process
// during a restart. sharedBits is that of the network of all generations, of which many
// may be finishing their requests. Of a pool that is not much larger, it has no more than
// the others.
const (
	subnetBits = 28
	sharedBits = 26
)

// Place implements engine.Driver.
func (d *Driver) Place(ctx context.Context, key engine.Key, stackNumber int64) error {
	ctx, done := toFinish(ctx) // it must not appear after a delete has looked for it
	defer done()
	return d.making.alone(ctx, key.Network(), func() error {
		return d.place(ctx, int(stackNumber), bridge{
			name:   key.Network(),
			device: key.Bridge(d.opts.Instance, stackNumber),
			inside: key == key.Shared(),
			labels: d.labels(engine.Key{Stack: key.Stack, Generation: key.Generation}),
		})
	})
}

// place makes a network on a free subnet, the first one from the one with a number.
func (d *Driver) place(ctx context.Context, from int, b bridge) error {
	networks, err := d.engine.networks(ctx, filters.NewArgs())
	if err != nil || slices.ContainsFunc(networks, func(n network.Summary) bool { return n.Name == b.name }) {
		return err
	}
	pool, bits := d.opts.Pool, subnetBits
	if b.inside && pool.Bits() < sharedBits-1 {
		bits = sharedBits
	}
	count := 1 << (bits - pool.Bits())
	for i := range count {
		b.subnet = nthSubnet(pool, bits, (from+i)%count)
		if slices.ContainsFunc(networks, func(n network.Summary) bool { return overlaps(b.subnet, n) }) {
			continue
		}
		err := d.ensureNetwork(ctx, b)
		failpoint.Here("network-made")
		if !errors.Is(err, errSubnetTaken) {
			return err
		}
	}
	return fmt.Errorf("docker: %w: all %d subnets of %s are taken", engine.ErrNoNetwork, count, pool)
}

// nthSubnet returns the n-th subnet of the pool that has so many bits.
func nthSubnet(pool netip.Prefix, bits, n int) netip.Prefix {
	addr := pool.Masked().Addr().As4()
	first := binary.BigEndian.Uint32(addr[:])
	binary.BigEndian.PutUint32(addr[:], first+uint32(n)<<(32-bits))
	return netip.PrefixFrom(netip.AddrFrom4(addr), bits)
}

// ensureNetwork makes a network, or finds the one of that name. A network of that name
// with other labels or another subnet is errConflict, and so is a device that another
// network has; a subnet that overlaps another network's is errSubnetTaken.
func (d *Driver) ensureNetwork(ctx context.Context, b bridge) error {
	return retry(ctx, func() error { return d.tryEnsureNetwork(ctx, b) })
}

func (d *Driver) tryEnsureNetwork(ctx context.Context, b bridge) error {
	named, err := d.networksNamed(ctx, b.name)
	if err != nil {
		return err
	}
	if len(named) > 0 {
		return b.adopt(named[0])
	}
	made, err := d.api.NetworkCreate(ctx, b.name, b.options())
	if err != nil {
		return d.explain(ctx, b, err)
	}
	// The engine checks names without a lock: of two that were made at the same time the
	// older stays.
	if named, err = d.networksNamed(ctx, b.name); err != nil || len(named) == 0 || named[0].ID == made.ID {
		return err
	}
	if err := d.api.NetworkRemove(ctx, made.ID); err != nil {
		return wrap(err, "remove second network %s", b.name)
	}
	return b.adopt(named[0])
}

// explain returns why a network could not be made, or nil if somebody else was faster
// with the same one: its subnet or its device may be in use. A network that is being made
// holds its subnet before it can be listed. So explain looks for it again as long as
// nothing that it sees explains the engine's refusal. A busy engine may take longer for one
// list than explain waits for such a network.
func (d *Driver) explain(ctx context.Context, b bridge, failed error) error {
	making, cancel := context.WithTimeout(ctx, networkMaking)
	defer cancel()
	refused := &failure{op: "create network " + b.name, class: errSubnetTaken, cause: failed}
	for {
		all, err := d.engine.networks(ctx, filters.NewArgs())
		if err != nil {
			return wrap(errors.Join(failed, err), "create network %s", b.name)
		}
		for _, found := range all {
			switch {
			case found.Name == b.name:
				return b.adopt(found)
			case overlaps(b.subnet, found):
				return refused
			case found.Options[bridgeName] == b.device:
				refused.class = errConflict
				return refused
			}
		}
		if !errdefs.IsPermissionDenied(failed) {
			return wrap(failed, "create network %s", b.name)
		}
		if !pause.For(making, networkPause) {
			return refused // all that is known is that the engine says the subnet is in use
		}
	}
}

// adopt returns an error unless a network that exists is the one meant.
func (b bridge) adopt(found network.Summary) error {
	subnets := subnetsOf(found)
	if carries(found.Labels, b.labels) && len(subnets) > 0 && subnets[0] == b.subnet.Masked() {
		return nil
	}
	return &failure{op: "create network " + b.name, class: errConflict, cause: errForeign}
}

func (b bridge) options() network.CreateOptions {
	return network.CreateOptions{
		Driver:   network.NetworkBridge,
		Internal: b.inside,
		IPAM:     &network.IPAM{Config: []network.IPAMConfig{{Subnet: b.subnet.Masked().String()}}},
		Labels:   b.labels,
		Options:  map[string]string{bridgeName: b.device},
	}
}

func overlaps(subnet netip.Prefix, found network.Summary) bool {
	return slices.ContainsFunc(subnetsOf(found), subnet.Overlaps)
}

func subnetsOf(found network.Summary) []netip.Prefix {
	var subnets []netip.Prefix
	for _, pool := range found.IPAM.Config {
		if subnet, err := netip.ParsePrefix(pool.Subnet); err == nil {
			subnets = append(subnets, subnet.Masked())
		}
	}
	return subnets
}

// Networks implements engine.Driver.
func (d *Driver) Networks(ctx context.Context, key engine.Key) ([]engine.Network, error) {
	found, err := d.engine.networks(ctx, d.of(key))
	return each(found, func(n network.Summary) engine.Network {
		return engine.Network{Name: n.Name, Key: engine.KeyOf(n.Labels)}
	}), err
}

// networksNamed lists the networks of exactly that name, the oldest first.
func (d *Driver) networksNamed(ctx context.Context, name string) ([]network.Summary, error) {
	found, err := d.engine.networks(ctx, filters.NewArgs(filters.Arg("name", name))) // parts of names match, too
	found = slices.DeleteFunc(found, func(n network.Summary) bool { return n.Name != name })
	slices.SortFunc(found, func(a, b network.Summary) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return found, err
}

// removeNetwork removes every network of that name, after disconnecting the containers
// that are still on it.
func (d *Driver) removeNetwork(ctx context.Context, name string) error {
	return retryRemoval(ctx, func(ctx context.Context) error {
		tries := 0
		return repeat(ctx, func() error { return d.removeNetworks(ctx, name) }, func(error) bool {
			tries++
			return tries < networkTries
		})
	})
}

func (d *Driver) removeNetworks(ctx context.Context, name string) error {
	named, err := d.networksNamed(ctx, name)
	for _, n := range named {
		err = errors.Join(err, d.removeNetworkByID(ctx, n.ID))
	}
	return err
}

func (d *Driver) removeNetworkByID(ctx context.Context, id string) error {
	found, err := d.api.NetworkInspect(ctx, id, network.InspectOptions{})
	if err != nil {
		return unlessGone(wrap(err, "inspect network %s", id))
	}
	for member, endpoint := range found.Containers {
		if strings.HasPrefix(member, "ep-") { // of a container that is gone: a full disk kept the engine from removing it
			member = endpoint.Name
		}
		err := wrap(d.api.NetworkDisconnect(ctx, id, member, true), "disconnect %s from network %s", member, id)
		if unlessGone(err) != nil {
			return err
		}
	}
	return unlessGone(wrap(d.api.NetworkRemove(ctx, id), "remove network %s", id))
}

// realias gives a container other names on its network, and puts a container on it that
// an earlier call, which failed, left off it. The engine can only take it off the network
// and put it back, so for a moment nothing reaches a container that runs; it keeps its
// address, and with it its connections.
//
// From then on the container asks for that address whenever it starts, which fails with
// engine.ErrAddressTaken if another container has it by then; realias makes a container
// that does not run take any address again. If another container gets the address within
// the moment, this one gets any other, and the error is engine.ErrAddressTaken too. So
// that no process of a service does, none starts on the network meanwhile.
func (d *Driver) realias(ctx context.Context, id, name string, aliases []string) error {
	return d.joining.alone(ctx, name, func() error {
		ctx, done := toFinish(ctx)
		defer done()
		found, err := d.inspect(ctx, id)
		if err != nil {
			return err
		}
		settings := &network.EndpointSettings{Aliases: aliases}
		if now := endpoint(&found, name); now != nil {
			if now.IPAddress != "" {
				settings.IPAMConfig = &network.EndpointIPAMConfig{IPv4Address: now.IPAddress}
				settings.MacAddress = now.MacAddress // engines of the API before 1.44 derive it from the address
			}
			if err := d.disconnect(ctx, id, name); err != nil {
				return err
			}
		}
		err = d.connect(ctx, id, name, settings)
		if errors.Is(err, engine.ErrAddressTaken) {
			if failed := d.connect(ctx, id, name, &network.EndpointSettings{Aliases: aliases}); failed != nil {
				return failed // it has no address at all
			}
		}
		return err
	})
}

func (d *Driver) disconnect(ctx context.Context, id, name string) error {
	return retryUndone(ctx, func() error {
		return wrap(d.api.NetworkDisconnect(ctx, name, id, false), "disconnect container %s from network %s", id, name)
	}, func() (bool, error) { return d.isOn(ctx, id, name, false) })
}

func (d *Driver) connect(ctx context.Context, id, name string, settings *network.EndpointSettings) error {
	return retryUndone(ctx, func() error {
		return wrap(d.api.NetworkConnect(ctx, name, id, settings), "connect container %s to network %s", id, name)
	}, func() (bool, error) { return d.isOn(ctx, id, name, true) })
}

// isOn reports whether a container is on a network, or off it, as want says.
func (d *Driver) isOn(ctx context.Context, id, name string, want bool) (bool, error) {
	found, err := d.inspect(ctx, id)
	if err != nil {
		return false, err
	}
	return (endpoint(&found, name) != nil) == want, nil
}

// endpoint returns what a container has on a network; nil if it is off it. The engine
// still lists the network of a container that runs, without an address, when it has
// refused to put the container on it.
func endpoint(found *container.InspectResponse, name string) *network.EndpointSettings {
	listed := found.NetworkSettings.Networks[name]
	if listed != nil && listed.IPAddress == "" && found.State.Running {
		return nil
	}
	return listed
}
