package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What a client does with a stack works through nodes that do not have it.
func TestCluster_AnyNodeTakesAnyRequest(t *testing.T) {
	c := start(t, clustered)
	t.Log(c.on("w1").members(t))
	st := c.liveOn(t, c.on("w1"), app, appManifest)
	for _, h := range c.hosts {
		require.Equal(t, "200 hello from web, generation 1", h.get(t, st.url("web", "/")).String())
		require.Equal(t, "200 a site", h.get(t, st.url("site", "/")).String())
	}
}
