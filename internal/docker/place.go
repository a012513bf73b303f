package docker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

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
	networks, err := d.engine.networks(ctx, nil)
	if err != nil {
		return err
	}
	for _, n := range networks {
		if n.Name == key.Network() {
			return nil
		}
	}
	pool := d.opts.Pool
	count := 1 << (subnetBits - pool.Bits())
	for i := range count {
		subnet := nthSubnet(pool, (int(stackNumber)+i)%count)
		if overlapsAny(subnet, networks) {
			continue
		}
		_, err := d.engine.ensureNetwork(ctx, NetworkSpec{
			Name:   key.Network(),
			Subnet: subnet,
			Labels: d.labels(engine.Key{Stack: key.Stack, Generation: key.Generation}),
			Bridge: key.Bridge(d.opts.Instance, stackNumber),
		})
		failpoint.Here("network-made")
		if !errors.Is(err, ErrSubnetTaken) {
			return err
		}
	}
	return fmt.Errorf("docker: %w: all %d subnets of %s are taken", engine.ErrNoNetwork, count, pool)
}

// nthSubnet is the n-th /28 of the pool.
func nthSubnet(pool netip.Prefix, n int) netip.Prefix {
	base := pool.Masked().Addr().As4()
	first := binary.BigEndian.Uint32(base[:]) + uint32(n)<<(32-subnetBits)
	var addr [4]byte
	binary.BigEndian.PutUint32(addr[:], first)
	return netip.PrefixFrom(netip.AddrFrom4(addr), subnetBits)
}

func overlapsAny(subnet netip.Prefix, networks []Network) bool {
	for _, n := range networks {
		if n.Subnet.IsValid() && n.Subnet.Overlaps(subnet) {
			return true
		}
	}
	return false
}
