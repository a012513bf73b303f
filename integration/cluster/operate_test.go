package cluster

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/swarm"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/integration/observe"
)

// place is what berthd stacks show --json says.
type place struct {
	Node  string
	Epoch int64
}

// placeOf asks this node where a stack is.
func (h *Host) placeOf(t *testing.T, st *Stack) (p place) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(h.berthd(t, "stacks", "show", st.ID, "--json")), &p))
	return p
}

// refuses returns the one line with which a command of berthd fails.
func (h *Host) refuses(t *testing.T, args ...string) string {
	t.Helper()
	var out observe.Record
	p, err := h.node.Begin(t.Context(), h.variables(), &out, "berthd", args...)
	require.NoError(t, err)
	code, err := p.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, code, "berthd %q: %s", args, &out)
	require.Equal(t, 1, strings.Count(out.String(), "\n"), "berthd %q: %s", args, &out)
	return out.String()
}

// An operator moves one stack, by a command on a node that is neither its own nor the target.
func TestCluster_MovesOneStack(t *testing.T) {
	long(t)
	c := start(t, clustered)
	st := c.on("m1").live(t, app, appManifest)
	from, rest := c.owner(t, st), c.others(t, st)
	to, third := rest[0], rest[1]
	third.write(t, st, "kept", "data")
	before := third.placeOf(t, st)
	require.Equal(t, from.id(t), before.Node)

	began := time.Now()
	third.berthd(t, "stacks", "move", st.ID, to.node.Name)
	t.Logf("the command took %s", time.Since(began).Round(time.Millisecond))
	require.Equal(t, place{to.id(t), before.Epoch + 1}, from.placeOf(t, st))
	for _, h := range c.hosts {
		require.Equal(t, "200 hello from web, generation 1", h.get(t, st.url("web", "/")).String())
		require.Equal(t, "200 data", h.reads(t, st, "kept"))
	}
	require.Regexp(t, st.ID+` .* `+to.node.Name+`\b`, third.berthd(t, "stacks", "list"))
	third.berthd(t, "stacks", "move", st.ID, to.node.Name) // where it is
	require.Contains(t, third.refuses(t, "stacks", "move", st.ID, "w9"), `there is no node "w9"`)
	require.Contains(t, third.refuses(t, "stacks", "move", "stk_ffffffffffff", "w1"), "there is no stack")

	from.stop(t)
	third.awaitState(t, from, "away")
	require.Contains(t, third.refuses(t, "stacks", "move", st.ID, from.node.Name), "is away, so no stack can move there")
	from.run(t)
}

// Swarm drains a node and ends its server, which moves its stacks before it stops.
func TestCluster_SwarmDrainsANodeAndEndsItsServer(t *testing.T) {
	long(t)
	c := start(t, clustered)
	st := c.on("m1").live(t, app, appManifest)
	gone, other := c.owner(t, st), c.others(t, st)[0]
	other.write(t, st, "kept", "data")
	defer c.setAvailability(t, swarm.NodeAvailabilityActive, gone)
	c.setAvailability(t, swarm.NodeAvailabilityDrain, gone)
	began := time.Now()
	gone.stop(t)
	t.Logf("the server moved one stack and ended in %s", time.Since(began).Round(time.Millisecond))
	require.NotEqual(t, gone.id(t), other.placeOf(t, st).Node)
	require.Equal(t, "200 hello from web, generation 1", other.get(t, st.url("web", "/")).String())
	require.Equal(t, "200 data", other.reads(t, st, "kept"))
	c.setAvailability(t, swarm.NodeAvailabilityActive, gone)
	gone.run(t)
}

// A node that starts for the first time needs the registry. A known node does not.
func TestCluster_ANewNodeNeedsTheRegistry(t *testing.T) {
	long(t)
	c := install(t, clustered)
	first, second := c.on("m1"), c.on("w1")
	for _, h := range []*Host{first, second} {
		h.run(t)
		h.stop(t)
	}
	for _, h := range c.hosts {
		h.env["BERTH_REGISTRY"] = "http://registry:1"
	}
	third := c.on("w2")
	require.Contains(t, third.refuses(t), "BERTH_REGISTRY: a new node needs the registry")
	first.run(t)
	for _, h := range c.hosts {
		delete(h.env, "BERTH_REGISTRY")
	}
	third.run(t)
	second.run(t)
}
