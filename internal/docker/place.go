package docker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
)

// subnetBits is the size of a generation's network: 13 containers beside the
// gateway, for four services with their builds, and with another process of each
// during a restart.
const subnetBits = 28

// Place is engine.Driver's.
func (d *Driver) Place(ctx context.Context, key engine.Key, stackNumber int64) error {
	ctx = context.WithoutCancel(ctx) // it must not appear after a delete has looked for it
	networks, err := d.engine.networks(ctx, filters.NewArgs())
	if err != nil {
		return err
	}
	b := bridge{
		name:   key.Network(),
		device: key.Bridge(d.opts.Instance, stackNumber),
		labels: d.labels(engine.Key{Stack: key.Stack, Generation: key.Generation}),
	}
	if slices.ContainsFunc(networks, func(n network.Summary) bool { return n.Name == b.name }) {
		return nil
	}
	pool := d.opts.Pool
	count := 1 << (subnetBits - pool.Bits())
	for i := range count {
		b.subnet = nthSubnet(pool, (int(stackNumber)+i)%count)
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

// nthSubnet returns the n-th /28 of the pool.
func nthSubnet(pool netip.Prefix, n int) netip.Prefix {
	base := pool.Masked().Addr().As4()
	first := binary.BigEndian.Uint32(base[:]) + uint32(n)<<(32-subnetBits)
	var addr [4]byte
	binary.BigEndian.PutUint32(addr[:], first)
	return netip.PrefixFrom(netip.AddrFrom4(addr), subnetBits)
}
