package supervisor

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"

	"github.com/berth-host/berth/internal/docker"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/stack"
)

// subnetBits is the size of a generation's network: 13 containers beside the
// gateway, for four services with their builds, and with another process of each
// during a restart.
const subnetBits = 28

// networkOf is the name of the network of a stack's served generation.
func networkOf(st *stack.Stack, there objects) string {
	has := func(name string) bool {
		return slices.ContainsFunc(there.networks, func(n docker.Network) bool { return n.Name == name })
	}
	key := engine.Key{Stack: st.ID, Generation: st.Generation}
	own, former := key.Network(), key.FormerNetwork()
	if has(former) && !has(own) {
		return former
	}
	return own
}

// ensureNetwork makes the generation's own network on the first free /28 of the
// pool, counted from where the stack's number points.
func (g *generation) ensureNetwork(ctx context.Context) error {
	asked := context.WithoutCancel(ctx) // it must not appear after a delete has looked for it
	networks, err := g.cfg.Engine.Networks(asked, nil)
	if err != nil {
		return err
	}
	for _, n := range networks {
		if n.Name == g.network { // of a server that ended before the firewall knew of it, perhaps
			return g.admitMail(ctx)
		}
	}
	count := 1 << (subnetBits - g.cfg.Pool.Bits())
	for i := range count {
		subnet := nthSubnet(g.cfg.Pool, (int(g.st.Seq)+i)%count)
		if overlapsAny(subnet, networks) {
			continue
		}
		_, err := g.cfg.Engine.EnsureNetwork(asked, docker.NetworkSpec{
			Name:   g.network,
			Subnet: subnet,
			Labels: g.labels(""),
			Bridge: g.key("").Bridge(g.cfg.Instance, g.st.Seq),
		})
		failpoint.Here("network-made")
		switch {
		case err == nil:
			return g.admitMail(ctx)
		case !errors.Is(err, docker.ErrSubnetTaken):
			return err
		}
	}
	return stack.NewError(stack.Unavailable, "no network is free on this host; delete a stack or try again later")
}

// admitMail has the firewall know the network of a claimed stack before anything
// runs in it.
func (g *generation) admitMail(ctx context.Context) error {
	st, err := g.runner.get(ctx) // it may have been claimed since the handle was made
	if err == nil && st.Claimed() {
		g.cfg.Admission.Guard(ctx)
	}
	return err
}

// removeNetworks gives back the subnets of a stack that runs nothing but what is
// spared.
func (r *runner) removeNetworks(ctx context.Context, st *stack.Stack) {
	ctx = context.WithoutCancel(ctx)
	networks, err := r.cfg.Engine.Networks(ctx, r.labels(""))
	networks = slices.DeleteFunc(networks, func(n docker.Network) bool { return r.sup.sparesRunning(st, n.Labels) })
	if err = errors.Join(err, r.sup.removeObjects(ctx, objects{networks: networks})); err != nil {
		r.log.Warn("networks of a stopped stack not removed", "error", err)
	}
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
