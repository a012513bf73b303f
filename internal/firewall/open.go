package firewall

import (
	"context"
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

// endpoints returns the addresses that stacks may reach although they would be closed:
// this machine's DNS servers, and the hosts in Open as they resolve now.
func (f *Firewall) endpoints(ctx context.Context) []netip.AddrPort {
	var all []netip.AddrPort
	for _, addr := range resolvers(resolverFiles) {
		all = append(all, netip.AddrPortFrom(addr, portDNS))
	}
	for _, hostPort := range f.opts.Open {
		host, text, err := net.SplitHostPort(hostPort)
		port, portErr := strconv.ParseUint(text, 10, 16)
		if err != nil || portErr != nil {
			continue // the configuration was checked when it was read
		}
		for _, addr := range f.resolve(ctx, host) {
			all = append(all, netip.AddrPortFrom(addr, uint16(port)))
		}
	}
	own := ownAddresses()
	all = slices.DeleteFunc(all, func(e netip.AddrPort) bool {
		return e.Addr().IsLoopback() || !closed(e.Addr()) && !slices.Contains(own, e.Addr())
	})
	slices.SortFunc(all, netip.AddrPort.Compare)
	return slices.Compact(all)
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
		f.opts.Log.Warn("a host that stacks may reach does not resolve", "host", host, "error", err)
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
