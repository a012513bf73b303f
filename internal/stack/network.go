package stack

import "net/netip"

// NetworkOf returns what the limits of anonymous clients count an address by: the IPv4
// address itself, or the /64 of an IPv6 address. Clients without a known address share
// one network.
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
