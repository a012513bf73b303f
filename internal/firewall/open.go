package firewall

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// resolverFiles list the name servers to which the engine forwards the containers'
// questions, from the containers' network. The second file has the real servers if the
// first names only systemd-resolved itself.
var resolverFiles = []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"}

const portDNS = 53

// openTo returns the addresses to open although they would be closed: the DNS servers, and
// the hosts as they resolve now.
func (f *Firewall) openTo(ctx context.Context, servers []netip.Addr, hosts []string) []netip.AddrPort {
	var all []netip.AddrPort
	for _, addr := range servers {
		all = append(all, netip.AddrPortFrom(addr, portDNS))
	}
	all = append(all, f.resolveAll(ctx, hosts)...)
	own := ownAddresses()
	all = slices.DeleteFunc(all, func(e netip.AddrPort) bool {
		return e.Addr().IsLoopback() || !closed(e.Addr()) && !slices.Contains(own, e.Addr())
	})
	slices.SortFunc(all, netip.AddrPort.Compare)
	return slices.Compact(all)
}

// resolveAll returns the addresses of hosts, each as host:port, as they resolve now.
func (f *Firewall) resolveAll(ctx context.Context, hosts []string) []netip.AddrPort {
	var all []netip.AddrPort
	for _, hostPort := range hosts {
		host, text, err := net.SplitHostPort(hostPort)
		port, portErr := strconv.ParseUint(text, 10, 16)
		if err != nil || portErr != nil {
			continue // the configuration was checked when it was read
		}
		for _, addr := range f.resolve(ctx, host) {
			all = append(all, netip.AddrPortFrom(addr, uint16(port)))
		}
	}
	return all
}

// shut returns the endpoints that no stack may reach. A stack's loopback is its own.
func (f *Firewall) shut(ctx context.Context) []netip.AddrPort {
	if f.opts.Shut == nil {
		return nil
	}
	all := slices.DeleteFunc(f.resolveAll(ctx, f.opts.Shut()), func(e netip.AddrPort) bool { return e.Addr().IsLoopback() })
	slices.SortFunc(all, netip.AddrPort.Compare)
	return slices.Compact(all)
}

// nodes returns the addresses of the installation's machines.
func (f *Firewall) nodes(ctx context.Context) []netip.Addr {
	if f.opts.Nodes == nil {
		return nil
	}
	var all []netip.Addr
	for _, host := range f.opts.Nodes() {
		all = append(all, f.resolve(ctx, host)...)
	}
	all = slices.DeleteFunc(all, netip.Addr.IsLoopback)
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// Shut returns the endpoints that the rules keep from stacks, as they resolve now. The error
// names an endpoint that the operator also opens.
func (f *Firewall) Shut(ctx context.Context) ([]netip.AddrPort, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	shut := f.shut(ctx)
	for _, e := range f.resolveAll(ctx, slices.Concat(f.opts.Open, f.opts.Build)) {
		if slices.Contains(shut, e) {
			return nil, fmt.Errorf("BERTH_NETWORK_ALLOW or BERTH_BUILD_ENV_FILE opens %s to stacks or builds, which is the installation's own registry, database, Redis or peer; remove it there", e)
		}
	}
	return shut, nil
}

// resolveTime is how long a name may take to resolve.
const resolveTime = 5 * time.Second

// resolve returns a host's IPv4 addresses; while DNS does not answer, the previous
// ones.
func (f *Firewall) resolve(ctx context.Context, host string) []netip.Addr {
	ctx, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", host)
	if err != nil {
		f.opts.Log.Warn("a host of the firewall's rules does not resolve", "host", host, "error", err)
		return f.resolved[host]
	}
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	f.resolved[host] = addrs
	return addrs
}

// resolvers returns the IPv4 addresses of the name servers in files.
func resolvers(files []string) []netip.Addr {
	var found []netip.Addr
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // few machines have all of them
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) < 2 || fields[0] != "nameserver" {
				continue
			}
			if addr, err := netip.ParseAddr(fields[1]); err == nil && addr.Is4() {
				found = append(found, addr)
			}
		}
	}
	return found
}

// ownAddresses returns this machine's IPv4 addresses.
func ownAddresses() []netip.Addr {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var found []netip.Addr
	for _, a := range all {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr().Is4() {
			found = append(found, prefix.Addr())
		}
	}
	return found
}
