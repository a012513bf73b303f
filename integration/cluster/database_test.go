package cluster

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	berth "github.com/berth-host/berth/images"
)

const databasesManifest = `{name: shop, services: [
  {name: web, runtime: node, start: exec perl server.pl, stop_timeout: 1s},
  {name: db, runtime: postgres}, {name: cache, runtime: valkey}]}`

// haveDatabases gives the nodes the images of databases, which the lab's other tests do without.
func (c *Cluster) haveDatabases(t *testing.T) {
	t.Helper()
	var bases []Base
	for runtime, version := range map[string]string{"postgres": "17", "valkey": "8"} {
		image, err := berth.Lookup(runtime, version)
		require.NoError(t, err)
		bases = append(bases, Base{Image: image.Ref(), Name: image.Ref()})
	}
	require.NoError(t, c.lab.load(t.Context(), bases), "make bases builds them")
}

// says runs a command in a service and returns what it prints.
func (h *Host) says(t *testing.T, st *Stack, service, command string) string {
	t.Helper()
	body, err := json.Marshal(map[string]string{"command": command})
	require.NoError(t, err)
	r := h.as(t, st.ManageToken, http.MethodPost, "/v0/stacks/"+st.ID+"/services/"+service+"/exec", string(body))
	var ran struct {
		Output   string
		ExitCode *int `json:"exit_code"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.body), &ran), r)
	require.NotNil(t, ran.ExitCode, r)
	require.Equal(t, 0, *ran.ExitCode, r)
	return strings.TrimSpace(ran.Output)
}

const (
	psql   = "PGHOST=127.0.0.1 PGPORT=$PORT psql -qtAc "
	valkey = "valkey-cli -p $PORT "
)

// remember puts a name into both databases.
func (h *Host) remember(t *testing.T, st *Stack, name string) {
	t.Helper()
	h.says(t, st, "db", psql+"'CREATE TABLE IF NOT EXISTS names (name text)' -c \"INSERT INTO names VALUES ('"+name+"')\"")
	h.says(t, st, "cache", valkey+"RPUSH names "+name)
}

// remembers asserts which names both databases have.
func (h *Host) remembers(t *testing.T, st *Stack, names ...string) {
	t.Helper()
	want := strings.Join(names, "\n")
	require.Equal(t, want, h.says(t, st, "db", psql+"'SELECT name FROM names'"))
	require.Equal(t, want, h.says(t, st, "cache", valkey+"LRANGE names 0 -1"))
}

// Dumps go through nodes that do not have the stack, and a move takes the databases along.
func TestCluster_DatabasesAreThereForEveryNodeAndMove(t *testing.T) {
	long(t)
	c := start(t, clustered)
	c.haveDatabases(t)
	owner, a, b := c.on("w1"), c.on("m1"), c.on("w2")
	st := c.liveOn(t, owner, app, databasesManifest)
	a.remember(t, st, "kept")
	dumps := map[string]string{}
	for service, magic := range map[string]string{"db": "PGDMP", "cache": "REDIS"} {
		r := a.as(t, st.ManageToken, http.MethodGet, "/v0/stacks/"+st.ID+"/services/"+service+"/data", "")
		require.Equal(t, http.StatusOK, r.status, r)
		require.True(t, strings.HasPrefix(r.body, magic), service)
		dumps[service] = r.body
	}
	b.remember(t, st, "later")
	a.remembers(t, st, "kept", "later")
	for service, dump := range dumps {
		put := "/v0/stacks/" + st.ID + "/services/" + service + "/data"
		r := b.as(t, st.ManageToken, http.MethodPut, put, dump[:len(dump)/2])
		require.Equal(t, http.StatusUnprocessableEntity, r.status, r)
		r = b.as(t, st.ManageToken, http.MethodPut, put, dump)
		require.Equal(t, http.StatusOK, r.status, r)
	}
	a.remembers(t, st, "kept")

	c.awaitPushed(t, st, 1)
	addresses := a.says(t, st, "web", "echo $DATABASE_URL $REDIS_URL")
	a.remember(t, st, "moved")
	a.drain(t, owner)
	owner.hasNothing(t)
	for _, h := range c.hosts {
		h.remembers(t, st, "kept", "moved")
	}
	require.Equal(t, addresses, b.says(t, st, "web", "echo $DATABASE_URL $REDIS_URL"))
	require.NotContains(t, types(a.events(t, st)), "service.crashed")
	log := a.as(t, st.ManageToken, http.MethodGet, "/v0/stacks/"+st.ID+"/logs?service=db", "").body
	require.Contains(t, log, "database system was shut down at")
	require.NotContains(t, log, "recovery")
	a.berthd(t, "nodes", "activate", "w1")
	c.inOrder(t, nil)
}
