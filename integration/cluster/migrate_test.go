package cluster

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/require"
)

// One machine becomes the first node of a cluster, a second one joins, and later the first is
// alone again: its stacks do not notice.
func TestMigrate_MakesAMachineTheFirstNodeAndBack(t *testing.T) {
	long(t)
	c := install(t)
	h, other := c.on("m1"), c.on("w1")
	h.run(t)
	key := h.account(t, "ana@example.com")
	site, st := h.live(t, page("a site"), ""), h.live(t, app, appManifest)
	require.Equal(t, http.StatusOK, h.claim(t, key, st).status)
	h.write(t, st, "kept", "data")
	process := h.startedAt(t)
	h.stop(t)

	h.database = fmt.Sprintf("many_%d", c.number)
	c.createDatabases(t)
	for _, node := range []*Host{h, other} {
		node.env["BERTH_CLUSTER"], node.env["BERTH_KEY_FILE"] = "swarm", c.dir+"/key"
		node.env["BERTH_DATABASE_URL"] = postgresURL("postgres", h.database)
	}
	require.Contains(t, h.berthd(t, "migrate", "--from", "sqlite://"+c.dir+"/berth.db"), "BERTH_KEY_FILE has to be")
	h.run(t)
	other.takeKey(t, h)
	other.run(t)
	eventually(t, "the other node leads to the first one's", func() error {
		return same("200 a site", other.get(t, site.url("web", "/")).String())
	})
	require.Equal(t, "200 data", other.reads(t, st, "kept"))
	require.Equal(t, process, h.startedAt(t), "the process was adopted")
	require.Equal(t, http.StatusOK, other.redeploy(t, site, page("another"), "").status)
	require.Equal(t, "200 another", h.get(t, h.mustLive(t, site).url("web", "/")).String())
	events := h.events(t, site)
	require.Equal(t, "stack.live", last(types(events)))

	other.stop(t)
	h.stop(t)
	back := "sqlite://" + c.dir + "/back.db"
	require.Contains(t, h.berthd(t, "migrate", "--to", back), "BERTH_CLUSTER=off")
	h.env, other.env = map[string]string{"BERTH_DATABASE_URL": back}, map[string]string{}
	h.run(t)
	require.Equal(t, "200 another", h.get(t, site.url("web", "/")).String())
	require.Equal(t, "200 data", h.reads(t, st, "kept"))
	require.Equal(t, process, h.startedAt(t), "the process was adopted")
	require.Equal(t, events, h.events(t, site)[:len(events)])
	require.Equal(t, http.StatusOK, h.as(t, key, http.MethodGet, "/v0/stacks/"+st.ID, "").status)
}

// startedAt returns when each process of stacks on the node was started.
func (h *Host) startedAt(t *testing.T) map[string]string {
	t.Helper()
	started := map[string]string{}
	there, err := h.node.Engine.ContainerList(t.Context(), container.ListOptions{Filters: ofStacks()})
	require.NoError(t, err)
	for _, one := range there {
		c, err := h.node.Engine.ContainerInspect(t.Context(), one.ID)
		require.NoError(t, err)
		started[c.Name] = c.ID + c.State.StartedAt
	}
	require.NotEmpty(t, started)
	return started
}

// takeKey gives a node the key of another.
func (h *Host) takeKey(t *testing.T, from *Host) {
	t.Helper()
	text, err := from.node.Machine.Run(t.Context(), "", "base64", from.env["BERTH_KEY_FILE"])
	require.NoError(t, err)
	_, err = h.node.Machine.Run(t.Context(), strings.TrimSpace(text), "sh", "-c", `mkdir -p "$0" && umask 077 && base64 -d >"$1"`, h.c.dir, h.env["BERTH_KEY_FILE"])
	require.NoError(t, err)
}
