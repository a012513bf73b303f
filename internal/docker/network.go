package docker

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/pause"
)

// NetworkSpec describes a bridge network.
type NetworkSpec struct {
	Name   string
	Subnet netip.Prefix
	Labels Labels
	Bridge string // name of its interface on the host, 15 characters at most; "" lets the engine choose
}

// Network is a network of the engine.
type Network struct {
	ID     string
	Name   string
	Subnet netip.Prefix // the first one; zero when it has none
	Labels Labels
}

// none is the engine's network of containers that are on no network.
const none = network.NetworkNone

// bridgeName is the driver's option for the name of the interface.
const bridgeName = "com.docker.network.bridge.name"

// removeNetwork tries so often while containers come or go, and ensureNetwork
// waits so long for a network that somebody else is making.
const (
	networkTries  = 5
	networkMaking = 5 * time.Second
	networkPause  = 50 * time.Millisecond
)

// ensureNetwork makes a network, or finds the one of that name, and returns
// its id. One of that name with other labels or another subnet is ErrConflict,
// and so is a bridge that another network has; a subnet that overlaps another
// network's is ErrSubnetTaken.
func (e *Engine) ensureNetwork(ctx context.Context, spec NetworkSpec) (string, error) {
	return answered(ctx, func() (string, error) { return e.tryEnsureNetwork(ctx, spec) })
}

func (e *Engine) tryEnsureNetwork(ctx context.Context, spec NetworkSpec) (string, error) {
	named, err := e.networksNamed(ctx, spec.Name)
	if err != nil {
		return "", err
	}
	if len(named) > 0 {
		return adopt(named[0], spec)
	}
	made, err := e.api.NetworkCreate(ctx, spec.Name, createOptions(spec))
	if err != nil {
		return e.explain(ctx, spec, err)
	}
	// The engine checks names without a lock: of two that were made at the
	// same time the older stays.
	if named, err = e.networksNamed(ctx, spec.Name); err != nil {
		return "", err
	}
	if len(named) == 0 || named[0].ID == made.ID {
		return made.ID, nil
	}
	if err := e.api.NetworkRemove(ctx, made.ID); err != nil {
		return "", wrap(err, "remove second network %s", spec.Name)
	}
	return adopt(named[0], spec)
}

// removeNetwork removes every network of that name, after disconnecting
// the containers that are still on it.
func (e *Engine) removeNetwork(ctx context.Context, name string) error {
	return insist(ctx, func(ctx context.Context) error { return e.tryRemoveNetworks(ctx, name) })
}

func (e *Engine) tryRemoveNetworks(ctx context.Context, name string) error {
	for try := 1; ; try++ {
		err := e.removeNetworks(ctx, name)
		if err == nil || try == networkTries || ctx.Err() != nil {
			return err
		}
		if !pause.For(ctx, networkPause) {
			return err
		}
	}
}

// realias gives a container other names on its network, and puts one on it that an
// earlier call, which failed, left off it. The engine can only take it off the
// network for that and put it back, so for a moment nothing reaches a container that
// runs; it keeps its address, and with it its connections.
// From then on it asks for that address whenever it starts, which fails with
// engine.ErrAddressTaken when another one got it meanwhile; realias makes one that does not
// run take any address again. Another container that gets the address within that
// moment leaves this one with any other address: that is engine.ErrAddressTaken as well.
func (e *Engine) realias(ctx context.Context, id, name string, aliases ...string) error {
	found, err := e.rawInspect(ctx, id)
	if err != nil {
		return err
	}
	settings := &network.EndpointSettings{Aliases: aliases}
	now := found.NetworkSettings.Networks[name]
	if now != nil && now.IPAddress != "" {
		settings.IPAMConfig = &network.EndpointIPAMConfig{IPv4Address: now.IPAddress}
		settings.MacAddress = now.MacAddress // engines of the API before 1.44 derive it from the address
	}
	if now != nil {
		if err := e.api.NetworkDisconnect(ctx, name, id, false); err != nil {
			return wrap(err, "disconnect container %s from network %s", id, name)
		}
	}
	err = wrap(e.api.NetworkConnect(ctx, name, id, settings), "connect container %s to network %s", id, name)
	if !errors.Is(err, engine.ErrAddressTaken) {
		return err
	}
	anywhere := &network.EndpointSettings{Aliases: aliases}
	return errors.Join(err, wrap(e.api.NetworkConnect(ctx, name, id, anywhere), "connect container %s to network %s", id, name))
}

// networkOf returns the name of the network that a container is on, or was made for
// while it is off it.
func (e *Engine) networkOf(ctx context.Context, id string) (string, error) {
	found, err := e.rawInspect(ctx, id)
	if err != nil {
		return "", err
	}
	made, on := string(found.HostConfig.NetworkMode), found.NetworkSettings.Networks
	if on[made] != nil || len(on) == 0 {
		return made, nil
	}
	return slices.Min(slices.Collect(maps.Keys(on))), nil // somebody has moved it
}

// networks returns the networks that carry the labels.
func (e *Engine) networks(ctx context.Context, labels Labels) ([]Network, error) {
	found, err := e.listNetworks(ctx, byLabel(labels))
	if err != nil {
		return nil, err
	}
	list := make([]Network, len(found))
	for i := range found {
		list[i] = fromNetwork(&found[i])
	}
	return list, nil
}

func (e *Engine) listNetworks(ctx context.Context, filter filters.Args) ([]network.Summary, error) {
	return answered(ctx, func() ([]network.Summary, error) {
		found, err := e.api.NetworkList(ctx, network.ListOptions{Filters: filter})
		return found, wrap(err, "list networks")
	})
}

// Bridges names the interfaces on the engine's machine of all its bridge
// networks.
func (e *Engine) Bridges(ctx context.Context) ([]string, error) {
	found, err := e.listNetworks(ctx, filters.NewArgs(filters.Arg("driver", network.NetworkBridge)))
	if err != nil {
		return nil, err
	}
	names := make([]string, len(found))
	for i, n := range found {
		names[i] = cmp.Or(n.Options[bridgeName], "br-"+n.ID[:min(len(n.ID), 12)])
	}
	return names, nil
}

// networksNamed lists the networks of exactly that name, the oldest first.
func (e *Engine) networksNamed(ctx context.Context, name string) ([]network.Summary, error) {
	filter := filters.NewArgs(filters.Arg("name", name)) // matches parts of names, too
	found, err := e.listNetworks(ctx, filter)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(n network.Summary) bool { return n.Name != name })
	slices.SortFunc(found, func(a, b network.Summary) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return found, nil
}

// explain finds out why a network could not be made: somebody else was faster
// with the same one, or its subnet or its bridge is in use. A network that is
// being made holds its subnet before it can be listed, so when nothing seen
// explains the engine's refusal, it is looked for again.
func (e *Engine) explain(ctx context.Context, spec NetworkSpec, failed error) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, networkMaking)
	defer cancel()
	refused := &failure{op: "create network " + spec.Name, class: ErrSubnetTaken, cause: failed}
	for {
		all, err := e.listNetworks(ctx, filters.NewArgs())
		if err != nil {
			return "", wrap(errors.Join(failed, err), "create network %s", spec.Name)
		}
		for i := range all {
			switch found := &all[i]; {
			case found.Name == spec.Name:
				return adopt(all[i], spec)
			case slices.ContainsFunc(subnetsOf(found), spec.Subnet.Overlaps):
				return "", refused
			case spec.Bridge != "" && found.Options[bridgeName] == spec.Bridge:
				refused.class = ErrConflict
				return "", refused
			}
		}
		if !errdefs.IsPermissionDenied(failed) {
			return "", wrap(failed, "create network %s", spec.Name)
		}
		if !pause.For(ctx, networkPause) {
			return "", refused // the engine's word for a subnet in use is all there is
		}
	}
}

func (e *Engine) removeNetworks(ctx context.Context, name string) error {
	named, err := e.networksNamed(ctx, name)
	if err != nil {
		return err
	}
	for i := range named {
		if err := e.removeNetworkByID(ctx, named[i].ID); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) removeNetworkByID(ctx context.Context, id string) error {
	found, err := e.api.NetworkInspect(ctx, id, network.InspectOptions{})
	if err != nil {
		return unlessGone(wrap(err, "inspect network %s", id))
	}
	for container := range found.Containers {
		err := wrap(e.api.NetworkDisconnect(ctx, id, container, true), "disconnect %s from network %s", container, id)
		if unlessGone(err) != nil {
			return err
		}
	}
	return unlessGone(wrap(e.api.NetworkRemove(ctx, id), "remove network %s", id))
}

// adopt returns the id of a network that exists when it is the one meant.
func adopt(found network.Summary, spec NetworkSpec) (string, error) {
	if carries(found.Labels, spec.Labels) && fromNetwork(&found).Subnet == spec.Subnet.Masked() {
		return found.ID, nil
	}
	return "", &failure{op: "create network " + spec.Name, class: ErrConflict, cause: errForeign}
}

func createOptions(spec NetworkSpec) network.CreateOptions {
	options := network.CreateOptions{
		Driver: network.NetworkBridge,
		IPAM:   &network.IPAM{Config: []network.IPAMConfig{{Subnet: spec.Subnet.Masked().String()}}},
		Labels: spec.Labels,
	}
	if spec.Bridge != "" {
		options.Options = map[string]string{bridgeName: spec.Bridge}
	}
	return options
}

func fromNetwork(found *network.Summary) Network {
	n := Network{ID: found.ID, Name: found.Name, Labels: found.Labels}
	if subnets := subnetsOf(found); len(subnets) > 0 {
		n.Subnet = subnets[0]
	}
	return n
}

func subnetsOf(found *network.Summary) []netip.Prefix {
	var subnets []netip.Prefix
	for _, pool := range found.IPAM.Config {
		if subnet, err := netip.ParsePrefix(pool.Subnet); err == nil {
			subnets = append(subnets, subnet.Masked())
		}
	}
	return subnets
}
