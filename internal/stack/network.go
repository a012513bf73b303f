package stack

import "net/netip"

// NetworkOf is what the limits of anonymous clients count an address by: the
// IPv4 address, or the IPv6 /64 that it is in. Clients whose address is not
// known share one network.
func NetworkOf(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return "unknown"
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	return netip.PrefixFrom(ip, 64).Masked().String()
}
