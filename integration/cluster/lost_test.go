package cluster

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/docker/docker/api/types/swarm"
	"github.com/stretchr/testify/require"
)

// waits asserts that a stack waits for a node that is lost: its address and the API say so.
func (h *Host) waits(t *testing.T, st *Stack, node *Host) {
	t.Helper()
	eventually(t, "the stack waits", func() error {
		r := h.get(t, st.url("web", "/"))
		return same("503", fmt.Sprint(r.status))
	})
	r := h.get(t, st.url("web", "/"))
	require.NotEmpty(t, r.header.Get("Retry-After"))
	require.Contains(t, r.body, node.node.Name)
	r = h.as(t, st.ManageToken, http.MethodGet, "/v0/stacks/"+st.ID+"/logs", "")
	require.Equal(t, http.StatusServiceUnavailable, r.status, r)
	require.Contains(t, r.body, node.node.Name)
	now := h.show(t, st)
	require.Equal(t, "live", now.Status)
	require.Equal(t, "stopped", now.Services[0].Status)
}

// A node is killed: what needs no data of it goes on elsewhere, the rest waits and comes back
// with it.
func TestCluster_NodeKilled(t *testing.T) {
	long(t)
	c := start(t, clustered)
	owner, a, b := c.on("w1"), c.on("m1"), c.on("w2")
	site := c.liveOn(t, owner, page("a page"), "")
	empty := c.liveOn(t, owner, app, appManifest)
	full := c.liveOn(t, owner, app, appManifest)
	doomed := c.liveOn(t, owner, app, appManifest)
	a.write(t, full, "kept", "data")
	a.write(t, doomed, "kept", "data")
	c.awaitPushed(t, site, 1)
	c.awaitPushed(t, empty, 2)
	c.saysEmpty(t, empty, full, doomed)
	before := c.history(t)

	require.NoError(t, owner.node.Machine.Kill(t.Context()))
	killed := time.Now()
	r := a.get(t, site.url("web", "/"))
	t.Logf("at once: %s", r)
	a.awaitState(t, owner, "lost")
	t.Logf("lost after %s", time.Since(killed).Round(time.Millisecond))
	lost := time.Now()
	for _, h := range []*Host{a, b} {
		h.serves(t, site.url("web", "/"), "200 a page")
		t.Logf("the site serves through %s %s after the loss", h.node.Name, time.Since(lost).Round(time.Millisecond))
	}
	for _, h := range []*Host{a, b} {
		h.serves(t, empty.url("web", "/"), "200 hello from web, generation 1")
		t.Logf("the empty stack serves through %s %s after the loss", h.node.Name, time.Since(lost).Round(time.Millisecond))
		h.waits(t, full, owner)
	}
	a.write(t, empty, "kept", "since")
	require.Equal(t, http.StatusOK, b.delete(t, doomed).status)

	require.NoError(t, owner.node.Machine.Start(t.Context()))
	owner.wait(t)
	owner.run(t)
	for _, h := range c.hosts {
		h.serves(t, full.url("web", "/read?name=kept"), "200 data")
		h.serves(t, empty.url("web", "/read?name=kept"), "200 since")
		h.serves(t, site.url("web", "/"), "200 a page")
	}
	require.Same(t, owner, c.owner(t, full))
	require.NotSame(t, owner, c.owner(t, empty))
	require.NotSame(t, owner, c.owner(t, site))
	require.Contains(t, types(a.events(t, empty)), "stack.restored")
	c.inOrder(t, before)
}

// A node is cut off from all others: it stops what they take, and goes on with the rest.
func TestCluster_NodeCutOff(t *testing.T) {
	long(t)
	t.Run("with its server", func(t *testing.T) { cutsOff(t, "w1", func(*Host) {}) })
	t.Run("and its server is restarted", func(t *testing.T) {
		cutsOff(t, "w1", func(owner *Host) {
			owner.kill(t)
			owner.spawn(t)
		})
	})
	t.Run("and it is one of three managers", func(t *testing.T) {
		lab := theLab(t)
		for _, name := range NodeNames[1:] {
			lab.setRole(t, name, swarm.NodeRoleManager)
		}
		t.Cleanup(func() { // once all nodes are back
			for _, name := range NodeNames[1:] {
				lab.setRole(t, name, swarm.NodeRoleWorker)
			}
		})
		cutsOff(t, NodeNames[0], func(*Host) {})
	})
}

// setRole makes a node a manager or a worker of the swarm.
func (l *Lab) setRole(t *testing.T, name string, role swarm.NodeRole) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	manager := l.Nodes[0].Engine
	eventually(t, name+" is a "+string(role), func() error {
		info, err := l.Node(name).Engine.Info(ctx)
		if err != nil {
			return err
		}
		n, _, err := manager.NodeInspectWithRaw(ctx, info.Swarm.NodeID)
		if err != nil {
			return err
		}
		if n.Spec.Role != role {
			n.Spec.Role = role
			if err := manager.NodeUpdate(ctx, n.ID, n.Version, n.Spec); err != nil {
				return err
			}
		}
		return same(fmt.Sprint(role == swarm.NodeRoleManager), fmt.Sprint(info.Swarm.ControlAvailable))
	})
}

// stubborn is a program that SIGTERM does not end, and that may take longer to end than others
// wait before they take its stack.
const stubborn = `{name: stubborn, services: [{name: web, runtime: node, start: "trap '' TERM; exec perl server.pl", stop_timeout: 60s}]}`

// cutsOff cuts off a node with a stack of each kind, then does something to its server.
func cutsOff(t *testing.T, name string, then func(owner *Host)) {
	t.Helper()
	c := start(t, clustered)
	owner := c.on(name)
	a := c.after(owner)
	b := c.after(a)
	site := c.liveOn(t, owner, page("a page"), "")
	empty := c.liveOn(t, owner, app, stubborn)
	full := c.liveOn(t, owner, app, appManifest)
	a.write(t, full, "kept", "data")
	c.awaitPushed(t, site, 1)
	c.awaitPushed(t, empty, 1)
	c.saysEmpty(t, empty, full)
	before := c.history(t)

	require.NoError(t, owner.node.Cut(t.Context()))
	cut := time.Now()
	then(owner)
	var stopped, taken time.Duration
	eventually(t, "another node serves the stack", func() error {
		there, err := owner.inventory(t.Context())
		if err != nil {
			return err
		}
		if stopped == 0 && !contains(there[empty.ID], "running container web-g1") {
			stopped = time.Since(cut)
		}
		r := b.get(t, empty.url("web", "/"))
		if r.status == http.StatusOK {
			taken = time.Since(cut)
		}
		return same("200 hello from web, generation 1", r.String())
	})
	t.Logf("stopped on the node that is cut off after %s, serves on another one after %s", stopped.Round(time.Millisecond), taken.Round(time.Millisecond))
	require.NotZero(t, stopped)
	require.Contains(t, owner.has(t, full), "running container web-g1")
	a.serves(t, site.url("web", "/"), "200 a page")
	a.waits(t, full, owner)
	a.write(t, empty, "kept", "since")

	require.NoError(t, owner.node.Heal(t.Context()))
	for _, h := range c.hosts {
		h.serves(t, full.url("web", "/read?name=kept"), "200 data")
		h.serves(t, empty.url("web", "/read?name=kept"), "200 since")
		h.serves(t, site.url("web", "/"), "200 a page")
	}
	require.Same(t, owner, c.owner(t, full))
	c.inOrder(t, before)
}

// A node is cut off whose stacks others restore from their snapshots: it stops them all before
// that, and what it wrote since the snapshot stays there, marked.
func TestCluster_NodeCutOffAndRestored(t *testing.T) {
	long(t)
	c := start(t, clustered, restoring)
	owner, a := c.on("w1"), c.on("m1")
	st := c.liveOn(t, owner, app, appManifest)
	a.write(t, st, "kept", "data")
	c.awaitPushed(t, st, 1)
	c.awaitSnapshot(t, st, time.Now())
	before := c.history(t)
	require.NoError(t, owner.node.Cut(t.Context()))
	stopped := false
	eventually(t, "another node serves the stack", func() error {
		there, err := owner.inventory(t.Context())
		if err != nil {
			return err
		}
		stopped = stopped || !contains(there[st.ID], "running container web-g1")
		return same("200 data", a.get(t, st.url("web", "/read?name=kept")).String())
	})
	require.True(t, stopped, "two nodes have run the stack")
	a.write(t, st, "kept", "since")
	require.NoError(t, owner.node.Heal(t.Context()))
	for _, h := range c.hosts {
		h.serves(t, st.url("web", "/read?name=kept"), "200 since")
	}
	require.NotSame(t, owner, c.owner(t, st))
	owner.keepsData(t, st, a)
	c.inOrder(t, before)
}

func contains(all []string, name string) bool {
	for _, one := range all {
		if one == name {
			return true
		}
	}
	return false
}

// The manager is away, so nobody says that a node is down: an operator does.
func TestCluster_OperatorGivesUpANode(t *testing.T) {
	long(t)
	c := start(t, clustered)
	a, b := c.on("w1"), c.on("w2")
	site := c.liveOn(t, c.on("m1"), page("a page"), "")
	c.awaitPushed(t, site, 1)
	require.NoError(t, c.on("m1").node.Machine.Kill(t.Context()))
	a.awaitState(t, c.on("m1"), "away")
	r := a.get(t, site.url("web", "/"))
	require.Equal(t, http.StatusBadGateway, r.status, r)
	require.Equal(t, http.StatusServiceUnavailable, a.delete(t, site).status)
	time.Sleep(2 * grace)
	require.Equal(t, "away", b.members(t)["m1"].State)
	b.berthd(t, "nodes", "lost", "m1")
	a.serves(t, site.url("web", "/"), "200 a page")
	require.NoError(t, c.on("m1").node.Machine.Start(context.Background()))
	c.on("m1").wait(t)
	c.on("m1").run(t)
	c.on("m1").serves(t, site.url("web", "/"), "200 a page")
	c.inOrder(t, nil)
}

// A server dies while it takes over a stack: it is served by one node in the end.
func TestCluster_TakeoverBreaksOff(t *testing.T) {
	long(t)
	for _, point := range []string{"lost-brought", "lost-taken"} {
		t.Run(point, func(t *testing.T) {
			c := start(t, clustered)
			owner, a, b := c.on("w1"), c.on("m1"), c.on("w2")
			st := c.liveOn(t, owner, app, appManifest)
			c.awaitPushed(t, st, 2)
			for _, h := range []*Host{a, b} {
				h.kill(t)
				h.fails = point
				h.run(t)
			}
			c.saysEmpty(t, st)
			before := c.history(t)
			require.NoError(t, owner.node.Machine.Kill(t.Context()))
			select {
			case <-b.process.Ended():
			case <-a.process.Ended():
			case <-time.After(patience):
				t.Fatal("nobody takes the stack")
			}
			for _, h := range []*Host{a, b} { // the other one would die there, too
				h.fails = ""
				_ = h.process.Signal(context.Background(), "KILL")
				h.wait(t)
				h.run(t)
			}
			for _, h := range []*Host{a, b} {
				h.serves(t, st.url("web", "/"), "200 hello from web, generation 1")
			}
			require.NoError(t, owner.node.Machine.Start(t.Context()))
			owner.wait(t)
			owner.run(t)
			c.inOrder(t, before)
		})
	}
}

// A server dies once it has deleted a stack of a lost node: the stack is gone, and its node
// removes what it has of it when it is back.
func TestCluster_DeleteOfALostStackBreaksOff(t *testing.T) {
	long(t)
	c := start(t, clustered)
	owner, a, b := c.on("w1"), c.on("m1"), c.on("w2")
	st := c.liveOn(t, owner, app, appManifest)
	a.write(t, st, "kept", "data")
	before := c.history(t)
	require.NoError(t, owner.node.Machine.Kill(t.Context()))
	b.awaitState(t, owner, "lost")
	a.waits(t, st, owner)
	b.kill(t)
	b.fails = "lost-deleted"
	b.run(t)
	b.awaitState(t, owner, "lost")
	require.NotEqual(t, http.StatusOK, b.delete(t, st).status)
	b.wait(t)
	require.Contains(t, b.log.String(), "killed at the failpoint lost-deleted")
	b.fails = ""
	b.run(t)
	for _, h := range []*Host{a, b} {
		require.Equal(t, http.StatusNotFound, h.as(t, st.ManageToken, http.MethodGet, "/v0/stacks/"+st.ID, "").status, "the delete is undone")
	}
	c.forget(st)
	require.NoError(t, owner.node.Machine.Start(t.Context()))
	owner.wait(t)
	owner.run(t)
	for _, h := range c.hosts {
		h.hasNothing(t)
	}
	c.inOrder(t, before)
}
