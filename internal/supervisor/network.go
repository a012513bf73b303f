package supervisor

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/berth-host/berth/internal/build"
	"github.com/berth-host/berth/internal/docker"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/firewall"
	"github.com/berth-host/berth/internal/stack"
)

// subnetBits is the size of a stack's network: 13 containers beside the
// gateway, for four services in two generations with their builds.
const subnetBits = 28

// bridge is the name of the stack's interface on the host.
func bridge(st *stack.Stack) string { return firewall.BridgePrefix + st.Hex() }

// ensureNetwork makes the stack's own network on the first free /28 of the
// pool, counted from where its number points.
func (s *Supervisor) ensureNetwork(ctx context.Context, st *stack.Stack) error {
	ctx = context.WithoutCancel(ctx) // it must not appear after a delete has looked for it
	networks, err := s.Engine.Networks(ctx, nil)
	if err != nil {
		return err
	}
	for _, n := range networks {
		if n.Name == build.NetworkName(st) {
			return nil
		}
	}
	count := 1 << (subnetBits - s.Pool.Bits())
	for i := range count {
		subnet := nthSubnet(s.Pool, (int(st.Seq)+i)%count)
		if overlapsAny(subnet, networks) {
			continue
		}
		_, err := s.Engine.EnsureNetwork(ctx, docker.NetworkSpec{
			Name:   build.NetworkName(st),
			Subnet: subnet,
			Labels: s.labels(st, ""),
			Bridge: bridge(st),
		})
		failpoint.Here("network-made")
		if st.Claimed() {
			s.pokeFirewall()
		}
		if !errors.Is(err, docker.ErrSubnetTaken) {
			return err
		}
	}
	return stack.NewError(stack.Unavailable, "no network is free on this host; delete a stack or try again later")
}

// nthSubnet is the n-th /28 of the pool.
func nthSubnet(pool netip.Prefix, n int) netip.Prefix {
	base := pool.Masked().Addr().As4()
	first := binary.BigEndian.Uint32(base[:]) + uint32(n)<<(32-subnetBits)
	var addr [4]byte
	binary.BigEndian.PutUint32(addr[:], first)
	return netip.PrefixFrom(netip.AddrFrom4(addr), subnetBits)
}

func overlapsAny(subnet netip.Prefix, networks []docker.Network) bool {
	for _, n := range networks {
		if n.Subnet.IsValid() && n.Subnet.Overlaps(subnet) {
			return true
		}
	}
	return false
}
