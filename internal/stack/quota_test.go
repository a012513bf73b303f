package stack

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// running are n services with a process, and one without.
func running(n int) []Service {
	services := []Service{{Spec: Spec{Runtime: Runtime{Name: Static}}}}
	for range n {
		services = append(services, Service{Spec: Spec{Runtime: Runtime{Name: "node"}}})
	}
	return services
}

func TestQuota_NamesTheFigureAndItsKind(t *testing.T) {
	taking := func(bytes int64) Disk { return Disk{Images: bytes} }
	has := []Holding{{running(1), taking(40e6)}, {running(2), taking(60e6)}}
	for _, c := range []struct {
		quota  Quota
		more   []Service
		disk   int64
		detail string // "" if it is allowed
	}{
		{Quota{}, running(4), 1e9, ""},
		{Quota{Stacks: 3}, running(4), 1e9, ""},
		{Quota{Stacks: 2}, running(0), 0, "your account's quota of stacks is 2, and it has 2; delete one first"},
		{Quota{Memory: 512e6, Service: 128e6}, running(1), 0, ""},
		{
			Quota{Memory: 512e6, Service: 128e6},
			running(2),
			0,
			"your account's quota of memory is 512 MB; the services of its stacks may use 384 MB, and those of this one another 256 MB; delete a stack, or deploy fewer services",
		},
		// A page without a process takes no memory, also beyond the quota.
		{Quota{Memory: 128e6, Service: 128e6}, running(0), 0, ""},
		{Quota{Disk: 101e6}, running(2), 1e6, ""},
		{Quota{Disk: 101e6}, running(0), 2e6, "your account's quota of disk space is 101 MB; its stacks take 100 MB, and this one 2 MB; delete a stack, or data of one"},
		// A new stack takes nothing yet.
		{Quota{Disk: 100e6}, running(0), 0, "your account's quota of disk space is 100 MB; its stacks take 100 MB, and this one 0 MB; delete a stack, or data of one"},
	} {
		err := c.quota.Check(has, Holding{c.more, taking(c.disk)})
		if c.detail == "" {
			require.NoError(t, err, c.quota)
			continue
		}
		require.EqualError(t, err, c.detail)
		require.Equal(t, TooMany, KindOf(err))
	}
}
