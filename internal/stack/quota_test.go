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
	has := [][]Service{running(1), running(2)}
	for _, c := range []struct {
		quota  Quota
		more   []Service
		detail string // "" if it is allowed
	}{
		{Quota{}, running(4), ""},
		{Quota{Stacks: 3}, running(4), ""},
		{Quota{Stacks: 2}, running(0), "your account's quota of stacks is 2, and it has 2; delete one first"},
		{Quota{Memory: 512e6, Service: 128e6}, running(1), ""},
		{
			Quota{Memory: 512e6, Service: 128e6},
			running(2),
			"your account's quota of memory is 512 MB; the services of its stacks may use 384 MB, and those of this one another 256 MB; delete a stack, or deploy fewer services",
		},
		// A page without a process takes no memory, also beyond the quota.
		{Quota{Memory: 128e6, Service: 128e6}, running(0), ""},
	} {
		err := c.quota.Check(has, c.more)
		if c.detail == "" {
			require.NoError(t, err, c.quota)
			continue
		}
		require.EqualError(t, err, c.detail)
		require.Equal(t, TooMany, KindOf(err))
	}
}
