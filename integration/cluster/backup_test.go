package cluster

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// must runs a program on a machine, which must succeed.
func (m *Machine) must(t *testing.T, program string, args ...string) {
	t.Helper()
	_, err := m.Run(t.Context(), "", append([]string{program}, args...)...)
	require.NoError(t, err)
}

// The database and one node's disk are lost. A dump and the node's backup bring everything back.
func TestCluster_BackupOfTheDatabaseAndOfANode(t *testing.T) {
	long(t)
	c := start(t, clustered)
	lost, other := c.on("w1"), c.on("m1")
	key := other.account(t, "ana@example.com")
	site, st := c.liveOn(t, lost, page("a site"), ""), c.liveOn(t, lost, app, appManifest)
	require.Equal(t, http.StatusOK, other.claim(t, key, st).status)
	other.write(t, st, "kept", "on the lost node")
	elsewhere := c.liveOn(t, other, app, appManifest)
	lost.write(t, elsewhere, "kept", "on another node")
	expired := c.liveOn(t, lost, app, appManifest)
	other.write(t, expired, "kept", "since the expiry")
	require.Equal(t, http.StatusOK, other.extend(t, expired, "1s").status)
	eventually(t, "it expires", func() error { return same("expired", other.show(t, expired).Status) })
	c.awaitPushed(t, site, 1)
	events := map[*Stack][]Event{}
	for _, each := range []*Stack{site, st, elsewhere, expired} {
		events[each] = other.events(t, each)
	}

	postgres, dump := c.lab.Postgres, "/tmp/"+lost.database+".dump"
	asUser := []string{"PGPASSWORD=" + PostgresPassword, "PGHOST=127.0.0.1", "PGUSER=" + PostgresUser}
	postgres.must(t, "env", append(asUser, "pg_dump", "--format=custom", "--file="+dump, lost.database)...)
	backup, phrase := c.dir+".backup", c.dir+".phrase"
	defer lost.node.Machine.must(t, "rm", "-f", backup, phrase)
	lost.node.Machine.must(t, "sh", "-c", `umask 077 && echo correct horse battery staple >"$0"`, phrase)
	lost.berthd(t, "backup", backup, "--passphrase-file", phrase)
	other.write(t, elsewhere, "later", "after the backup")

	for _, h := range c.hosts {
		h.kill(t)
	}
	require.NoError(t, c.dropDatabases())
	c.createDatabases(t)
	postgres.must(t, "env", append(asUser, "pg_restore", "--dbname="+lost.database, dump)...)
	postgres.must(t, "rm", dump)
	lost.node.Machine.must(t, "rm", "-rf", c.dir)
	require.NoError(t, lost.node.removeStacks(t.Context()))
	lost.berthd(t, "restore", backup, "--passphrase-file", phrase)
	for _, h := range c.hosts {
		h.spawn(t)
	}
	for _, h := range c.hosts {
		h.awaitAnswer(t)
	}

	for _, h := range c.hosts {
		h.serves(t, site.url("web", "/"), "200 a site")
		h.serves(t, st.url("web", "/read?name=kept"), "200 on the lost node")
		h.serves(t, elsewhere.url("web", "/read?name=kept"), "200 on another node")
		h.serves(t, elsewhere.url("web", "/read?name=later"), "200 after the backup")
	}
	for each, before := range events {
		require.Equal(t, before, other.events(t, each)[:len(before)])
	}
	require.Equal(t, http.StatusOK, other.claim(t, key, expired).status)
	other.mustLive(t, expired)
	require.Equal(t, "200 since the expiry", other.reads(t, expired, "kept"))
	require.Equal(t, http.StatusOK, other.redeploy(t, st, app.plus("site/more", "x"), appManifest).status)
	other.mustLive(t, st)
	require.Equal(t, "200 on the lost node", other.reads(t, st, "kept"))
	c.inOrder(t, nil)
}
