package stack_test

import (
	"testing"

	"github.com/berth-host/berth/internal/stack"
)

func TestNetworkOf_CountsIPv6ByTheNetwork(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.7": "192.0.2.7", "::ffff:192.0.2.7": "192.0.2.7", "2001:db8:1:2:3::4": "2001:db8:1:2::/64",
		"fe80::1%eth0": "fe80::/64", "": "unknown", "192.0.2.7:80": "unknown", "nonsense": "unknown",
	} {
		if got := stack.NetworkOf(address); got != want {
			t.Errorf("NetworkOf(%q) = %q, want %q", address, got, want)
		}
	}
}
