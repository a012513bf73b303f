package cluster

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// PostgreSQL is away for 30 seconds: what runs serves through every node, nobody is lost,
// and what has to be written is refused in time.
func TestCluster_PostgresAway(t *testing.T) {
	long(t)
	for _, away := range outages {
		t.Run(away.name, func(t *testing.T) {
			c := start(t, clustered)
			a := c.on("w2")
			st := c.liveOn(t, c.on("w1"), app, appManifest)
			before := c.history(t)
			loads := []*pressure{press(t, st.url("web", "/"), c.hosts...), press(t, st.url("site", "/"), c.hosts...)}
			require.NoError(t, away.begin(c.lab.Postgres, t.Context()))
			began := time.Now()
			body, contentType := form(t, page("late"), "")
			r := a.attempt(t, http.MethodPost, "/v0/stacks", body, "Content-Type", contentType)
			require.Equal(t, http.StatusServiceUnavailable, r.status, r)
			require.NotEmpty(t, r.header.Get("Retry-After"))
			require.Less(t, time.Since(began), 15*time.Second)
			a.write(t, st, "kept", "data")
			time.Sleep(30*time.Second - time.Since(began))
			require.NoError(t, away.end(c.lab.Postgres, t.Context()))
			eventually(t, "what was refused is taken", func() error {
				r = a.attempt(t, http.MethodPost, "/v0/stacks", body, "Content-Type", contentType)
				return same("201", fmt.Sprint(r.status))
			})
			late := r.stack(t)
			c.adopt(late)
			a.mustLive(t, late)
			for _, load := range loads {
				load.lostNone(t)
			}
			require.Same(t, c.on("w1"), c.owner(t, st))
			require.Equal(t, "200 data", a.reads(t, st, "kept"))
			c.inOrder(t, before)
			require.NotContains(t, types(a.events(t, st)), "stack.restored")
		})
	}
}

// PostgreSQL is away and the server of a worker is restarted: it waits for PostgreSQL, and since it
// reaches a manager, nothing of what it runs stops.
func TestCluster_PostgresAwayWhileAWorkerIsRestarted(t *testing.T) {
	long(t)
	c := start(t, clustered)
	owner := c.on("w1")
	empty := c.liveOn(t, owner, app, appManifest)
	c.saysEmpty(t, empty)
	require.NoError(t, c.lab.Postgres.Kill(t.Context()))
	owner.kill(t)
	owner.spawn(t)
	time.Sleep(3 * grace)
	require.Contains(t, owner.log.String(), "the server waits for it")
	require.Contains(t, owner.has(t, empty), "running container web-g1")
	require.NotContains(t, owner.log.String(), "this node is cut off")
	require.NoError(t, c.lab.Postgres.Start(t.Context()))
	owner.awaitAnswer(t)
	for _, h := range c.hosts {
		h.serves(t, empty.url("web", "/"), "200 hello from web, generation 1")
	}
	require.Same(t, owner, c.owner(t, empty))
	c.inOrder(t, nil)
}

// The server of a node stands still, with its connections open: who asks it through another node
// is told so.
func TestCluster_ServerStandsStill(t *testing.T) {
	long(t)
	c := start(t, clustered)
	owner, a := c.on("w1"), c.on("m1")
	st := c.liveOn(t, owner, app, appManifest)
	ask := func() Reply {
		return a.as(t, st.ManageToken, http.MethodGet, "/v0/stacks/"+st.ID+"/logs?service=web", "")
	}
	require.Equal(t, http.StatusOK, ask().status)
	require.NoError(t, owner.process.Signal(t.Context(), "STOP"))
	r := ask() // its client waits for a minute
	require.Equal(t, http.StatusBadGateway, r.status, r)
	require.NotEmpty(t, r.header.Get("Retry-After"))
	require.NoError(t, owner.process.Signal(t.Context(), "CONT"))
	eventually(t, "it answers again", func() error { return same("200", fmt.Sprint(ask().status)) })
	c.inOrder(t, nil)
}

// Redis is away: requests are served and taken all the same.
func TestCluster_RedisAway(t *testing.T) {
	long(t)
	c := start(t, clustered)
	st := c.liveOn(t, c.on("w1"), app, appManifest)
	require.NoError(t, c.lab.Valkey.Kill(t.Context()))
	for _, h := range c.hosts {
		require.Equal(t, "200 hello from web, generation 1", h.get(t, st.url("web", "/")).String())
	}
	require.Equal(t, http.StatusOK, c.on("w2").redeploy(t, st, app.plus("site/more", "x"), appManifest).status)
	require.Equal(t, 2, c.on("m1").mustLive(t, st).Generation)
	c.on("m1").live(t, page("a page"), "")
	require.NoError(t, c.lab.Valkey.Start(t.Context()))
	c.inOrder(t, nil)
}

// The registry is away: builds, deploys and expiries go on, and what it lacks is pushed when
// it is back. A node starts without it.
func TestCluster_RegistryAway(t *testing.T) {
	long(t)
	c := start(t, clustered)
	owner, a := c.on("w1"), c.on("m1")
	key := a.account(t, "ana@example.com")
	require.NoError(t, c.lab.Registry.Kill(t.Context()))
	st := c.liveOn(t, owner, app, appManifest)
	a.write(t, st, "kept", "data")
	require.Equal(t, http.StatusOK, a.redeploy(t, st, app.plus("site/more", "x"), appManifest).status)
	require.Equal(t, 2, a.mustLive(t, st).Generation)
	require.Equal(t, http.StatusOK, a.extend(t, st, "1s").status)
	eventually(t, "it expires", func() error { return same("expired", a.show(t, st).Status) })
	owner.stop(t)
	owner.run(t)
	require.Contains(t, owner.log.String(), "the registry cannot be used now")
	require.Equal(t, http.StatusOK, a.claim(t, key, st).status)
	a.mustLive(t, st)
	require.Equal(t, "200 data", a.reads(t, st, "kept"))
	require.NoError(t, c.lab.Registry.Start(t.Context()))
	c.awaitPushed(t, st, 2)
	c.inOrder(t, nil)
}
