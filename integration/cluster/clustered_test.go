package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// lease and grace are those of the nodes in these tests.
	lease = 3 * time.Second
	grace = 8 * time.Second
)

// clustered makes the servers one cluster: one database, Redis, registry and key.
func clustered(c *Cluster) {
	c.clustered = true
	c.env["BERTH_CLUSTER"] = "swarm"
	c.env["BERTH_KEY_FILE"] = c.keyFile()
	c.env["BERTH_NODE_GRACE"] = grace.String()
	c.env["BERTH_NODE_LEASE"] = lease.String()
	c.env["BERTH_REGISTRY"] = fmt.Sprintf("http://registry:5000/t%d", c.number)
	for _, h := range c.hosts {
		h.database = fmt.Sprintf("cluster_%d", c.number)
		h.env["BERTH_DATABASE_URL"] = postgresURL("postgres", h.database)
	}
}

func (c *Cluster) keyFile() string { return c.dir + ".key" }

// shareKey gives every node the key of the installation.
func (c *Cluster) shareKey(t *testing.T) {
	t.Helper()
	for _, h := range c.hosts {
		_, err := h.node.Machine.Run(t.Context(), strings.Repeat("k", 32), "sh", "-c", `mkdir -p "$1" && umask 077 && cat >"$0"`, c.keyFile(), path.Dir(c.dir))
		require.NoError(t, err)
	}
}

// owner returns the server of the node that has a stack.
func (c *Cluster) owner(t *testing.T, st *Stack) *Host {
	t.Helper()
	id, err := c.lab.Postgres.SQL(t.Context(), c.hosts[0].database, "SELECT node FROM stacks WHERE id = '"+st.ID+"'")
	require.NoError(t, err)
	for _, h := range c.hosts {
		if h.id(t) == strings.TrimSpace(id) {
			return h
		}
	}
	t.Fatalf("stack %s is on no node of the lab but on %q", st.ID, id)
	return nil
}

// others returns the servers of the nodes that do not have a stack.
func (c *Cluster) others(t *testing.T, st *Stack) []*Host {
	t.Helper()
	owner := c.owner(t, st)
	var all []*Host
	for _, h := range c.hosts {
		if h != owner {
			all = append(all, h)
		}
	}
	return all
}

// id returns the id of the node in the swarm.
func (h *Host) id(t *testing.T) string {
	t.Helper()
	if h.node.swarmID == "" {
		info, err := h.node.Engine.Info(t.Context())
		require.NoError(t, err)
		h.node.swarmID = info.Swarm.NodeID
	}
	return h.node.swarmID
}

// member is a node as berthd nodes --json shows it.
type member struct {
	ID, Name, Address, State, Availability, Version string

	Stacks int
}

// members returns the nodes by name, as this node sees them.
func (h *Host) members(t *testing.T) map[string]member {
	t.Helper()
	var all []member
	require.NoError(t, json.Unmarshal([]byte(h.berthd(t, "nodes", "--json")), &all))
	byName := map[string]member{}
	for _, m := range all {
		byName[m.Name] = m
	}
	return byName
}

// awaitState waits until this node sees another one in a state, and returns how long that
// took.
func (h *Host) awaitState(t *testing.T, node *Host, state string) time.Duration {
	t.Helper()
	began := time.Now()
	eventually(t, node.node.Name+" is "+state, func() error {
		return same(state, h.members(t)[node.node.Name].State)
	})
	return time.Since(began)
}

// sql reads from the database of the cluster.
func (c *Cluster) sql(t *testing.T, statement string) string {
	t.Helper()
	text, err := c.lab.Postgres.SQL(context.Background(), c.hosts[0].database, statement)
	require.NoError(t, err)
	return strings.TrimSpace(text)
}

// liveOn creates a stack that must come up on a node: the others take none meanwhile.
func (c *Cluster) liveOn(t *testing.T, owner *Host, tree Tree, manifest string) *Stack {
	t.Helper()
	c.sql(t, "UPDATE nodes SET draining = (id <> '"+owner.id(t)+"')")
	defer c.sql(t, "UPDATE nodes SET draining = false")
	st := owner.create(t, tree, manifest)
	require.Same(t, owner, c.owner(t, st))
	return owner.mustLive(t, st)
}
