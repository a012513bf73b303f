package cluster

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// drain moves all stacks away from a node, by the command on another one.
func (h *Host) drain(t *testing.T, node *Host) {
	t.Helper()
	h.berthd(t, "nodes", "drain", node.node.Name)
}

// A node is drained: its stacks go on elsewhere with their data, at the same addresses.
func TestCluster_Drain(t *testing.T) {
	long(t)
	c := start(t, clustered)
	owner, a, b := c.on("w1"), c.on("m1"), c.on("w2")
	key := b.account(t, "ana@example.com")
	st := c.liveOn(t, owner, app, appManifest)
	site := c.liveOn(t, owner, page("a page"), "")
	expired := c.liveOn(t, owner, app, appManifest)
	failed := c.liveOn(t, owner, app, appManifest)
	a.write(t, st, "kept", "data")
	a.write(t, expired, "kept", "of an expired stack")
	require.Equal(t, http.StatusOK, a.extend(t, expired, "1s").status)
	eventually(t, "it expires", func() error { return same("expired", b.show(t, expired).Status) })
	require.Equal(t, http.StatusOK, a.redeploy(t, failed, app.plus("server.pl", "die"), appManifest).status)
	require.Equal(t, http.StatusOK, a.redeploy(t, st, app.plus("site/more", "x"), appManifest).status)
	load := press(t, st.url("web", "/"), a, b)
	ofSite := press(t, site.url("web", "/"), a, b)

	began := time.Now()
	a.drain(t, owner)
	t.Logf("the drain took %s", time.Since(began).Round(time.Millisecond))
	load.lostNone(t)
	ofSite.lostNone(t)
	owner.hasNothing(t)
	require.Equal(t, "drain", b.members(t)["w1"].Availability)
	for _, h := range c.hosts {
		require.Equal(t, "200 hello from web, generation 2", h.get(t, st.url("web", "/")).String())
		require.Equal(t, "200 a page", h.get(t, site.url("web", "/")).String())
		require.Equal(t, "200 data", h.reads(t, st, "kept"))
	}
	require.Contains(t, a.as(t, st.ManageToken, http.MethodGet, "/v0/stacks/"+st.ID+"/logs?timestamps=true", "").body, "gen 1 == web started")
	require.Contains(t, a.as(t, st.ManageToken, http.MethodGet, "/v0/stacks/"+st.ID+"/logs?kind=build", "").body, "== build ok")
	require.Equal(t, http.StatusOK, a.as(t, st.ManageToken, http.MethodGet, "/v0/stacks/"+st.ID+"/source/server.pl", "").status)
	require.Contains(t, types(b.events(t, st)), "stack.restored")
	require.Equal(t, http.StatusOK, owner.claim(t, key, expired).status)
	b.mustLive(t, expired)
	require.Equal(t, "200 of an expired stack", b.reads(t, expired, "kept"))
	owner.berthd(t, "nodes", "activate", "w1")
	c.inOrder(t, nil)
}

// What a move of 200 MB costs: requests wait as long as the stack stands still.
func TestCluster_MoveOf200MB(t *testing.T) {
	long(t)
	c := start(t, clustered)
	owner, a := c.on("w1"), c.on("m1")
	st := c.liveOn(t, owner, app, appManifest)
	r := a.as(t, st.ManageToken, http.MethodPost, "/v0/stacks/"+st.ID+"/services/web/exec",
		`{"command": "head -c 209715200 /dev/urandom >$DATA_DIR/big && sha256sum <$DATA_DIR/big >$DATA_DIR/sum", "timeout": "2m"}`)
	require.Contains(t, r.body, `"exit_code":0`, r)
	sum := a.reads(t, st, "sum")
	c.awaitPushed(t, st, 2)
	load := press(t, st.url("web", "/"), a)
	began := time.Now()
	a.drain(t, owner)
	t.Logf("the drain took %s", time.Since(began).Round(time.Millisecond))
	load.lostNone(t)
	require.Equal(t, sum, a.reads(t, st, "sum"))
	r = a.as(t, st.ManageToken, http.MethodPost, "/v0/stacks/"+st.ID+"/services/web/exec", `{"command": "sha256sum <$DATA_DIR/big | cmp - $DATA_DIR/sum"}`)
	require.Contains(t, r.body, `"exit_code":0`, r)
	owner.hasNothing(t)
	a.berthd(t, "nodes", "activate", "w1")
}

// A server dies at each step of a move: afterwards the stack serves on one node, with its
// data.
func TestCluster_MoveBreaksOff(t *testing.T) {
	long(t)
	for _, point := range []string{"move-prepared", "move-stopped", "move-copied", "move-started", "move-switched", "move-taken"} {
		t.Run(point, func(t *testing.T) {
			c := start(t, clustered)
			owner, a, b := c.on("w1"), c.on("m1"), c.on("w2")
			st := c.liveOn(t, owner, app, appManifest)
			a.write(t, st, "kept", "data")
			before := c.history(t)
			dies := owner
			if point == "move-taken" {
				dies = b
				b.berthd(t, "nodes", "drain", "m1") // so that it comes to w2
			}
			dies.kill(t)
			dies.fails = point
			dies.run(t)
			c.sql(t, fmt.Sprintf("UPDATE nodes SET draining = true WHERE id = '%s'", owner.id(t)))
			dies.wait(t)
			dies.fails = ""
			dies.run(t)
			for _, h := range c.hosts {
				h.serves(t, st.url("web", "/read?name=kept"), "200 data")
			}
			eventually(t, "the drain goes on", func() error { return same("0", fmt.Sprint(a.members(t)["w1"].Stacks)) })
			a.drain(t, owner)
			a.berthd(t, "nodes", "activate", "w1")
			a.berthd(t, "nodes", "activate", "m1")
			require.NotSame(t, owner, c.owner(t, st))
			require.Equal(t, "200 data", a.reads(t, st, "kept"))
			c.inOrder(t, before)
		})
	}
}

// pressBeside asks for both services of stacks, through each node but one.
func (c *Cluster) pressBeside(t *testing.T, h *Host, stacks []*Stack) (loads []*pressure) {
	t.Helper()
	for _, st := range stacks {
		for _, other := range c.hosts {
			if other != h {
				loads = append(loads, press(t, st.url("web", "/"), other), press(t, st.url("site", "/"), other))
			}
		}
	}
	return loads
}

// Nodes are given a new server one after the other: requests through the others lose nothing.
func TestCluster_Rollout(t *testing.T) {
	long(t)
	c := start(t, clustered)
	var stacks []*Stack
	for _, h := range c.hosts {
		stacks = append(stacks, c.liveOn(t, h, app, appManifest))
	}
	for _, h := range c.hosts {
		loads, creates := c.pressBeside(t, h, stacks), c.after(h).keepsCreating(t)
		began := time.Now()
		require.NoError(t, h.process.Signal(t.Context(), "TERM"))
		eventually(t, "it says that it stops", func() error { return same("503", fmt.Sprint(h.get(t, "/healthz").status)) })
		require.Equal(t, 0, h.wait(t))
		stopped := time.Since(began)
		h.run(t)
		t.Logf("%s stopped after %s and answers again after %s", h.node.Name, stopped, time.Since(began))
		time.Sleep(time.Second)
		for _, load := range loads {
			load.lostNone(t)
		}
		made := creates()
		t.Logf("%d stacks were created meanwhile", len(made))
		require.NotEmpty(t, made)
		for _, st := range made {
			c.after(h).mustLive(t, st)
			c.remove(t, st)
			c.forget(st)
		}
	}
	c.inOrder(t, nil)
}

// keepsCreating creates one stack after the other through the node until the caller calls end,
// which returns them. A create that is refused, with a word when to try again, does not count as a failure: its
// node was chosen just before it stopped.
func (h *Host) keepsCreating(t *testing.T) (end func() []*Stack) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	body, contentType := form(t, page("a page"), "")
	var made []*Stack
	var creating sync.WaitGroup
	creating.Go(func() {
		for ctx.Err() == nil {
			switch r := h.attempt(t, http.MethodPost, "/v0/stacks", body, "Content-Type", contentType); {
			case r.status == http.StatusCreated:
				st := r.stack(t)
				h.c.adopt(st)
				made = append(made, st)
			case r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "":
				t.Errorf("a create through %s: %s", h.node.Name, r)
			}
			nap(ctx, 200*time.Millisecond)
		}
	})
	return func() []*Stack {
		cancel()
		creating.Wait()
		return made
	}
}
