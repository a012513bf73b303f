package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/volume"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
)

// restoring makes the nodes restore the stacks of a lost one from their last snapshots.
func restoring(c *Cluster) {
	c.env["BERTH_SNAPSHOT_EVERY"] = "5s"
	c.env["BERTH_NODE_LOST"] = "restore"
}

// snapshot is a column of a stack's row.
func (c *Cluster) snapshot(t *testing.T, st *Stack, column string) (s stack.Snapshot) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(c.sql(t, fmt.Sprintf("SELECT %s FROM stacks WHERE id = '%s'", column, st.ID))), &s))
	return s
}

// awaitSnapshot waits until a stack has a snapshot that was begun after a time.
func (c *Cluster) awaitSnapshot(t *testing.T, st *Stack, after time.Time) (s stack.Snapshot) {
	t.Helper()
	eventually(t, "a snapshot is taken", func() error {
		if s = c.snapshot(t, st, "snapshot"); !s.At.After(after) {
			return fmt.Errorf("the last one is of %s", s.At)
		}
		return nil
	})
	return s
}

// awaitOneSnapshot waits until the registry has one snapshot of the service web of a stack.
func (c *Cluster) awaitOneSnapshot(t *testing.T, st *Stack) {
	t.Helper()
	eventually(t, "only the newest snapshot is kept", func() error {
		live := 0
		for _, tag := range c.tags(t, st) {
			if strings.HasPrefix(tag, "live-web-") {
				live++
			}
		}
		return same("1", fmt.Sprint(live))
	})
}

// pauses returns how long each pause of a container on the node was since a time, by the
// engine's own events.
func (h *Host) pauses(t *testing.T, since time.Time) (all []time.Duration) {
	t.Helper()
	opts := events.ListOptions{
		Since: fmt.Sprint(since.Unix()), Until: fmt.Sprint(time.Now().Unix() + 1),
		Filters: filters.NewArgs(filters.Arg("event", "pause"), filters.Arg("event", "unpause")),
	}
	messages, ended := h.node.Engine.Events(t.Context(), opts)
	begun := map[string]int64{}
	for {
		select {
		case m := <-messages:
			if m.Action == events.ActionPause {
				begun[m.Actor.ID] = m.TimeNano
			} else {
				all = append(all, time.Duration(m.TimeNano-begun[m.Actor.ID]))
				delete(begun, m.Actor.ID)
			}
		case <-ended:
			require.Empty(t, begun, "a container is left paused")
			return all
		}
	}
}

// A node is killed: another one restores its stack with the data of the last snapshot, and
// the node, once it is back, has the rest of the data and runs nothing of it.
func TestCluster_NodeKilledAndRestored(t *testing.T) {
	long(t)
	c := start(t, clustered, restoring)
	owner, a, b := c.on("w1"), c.on("m1"), c.on("w2")
	st := c.liveOn(t, owner, app, appManifest)
	c.awaitPushed(t, st, 2)
	began := time.Now()
	a.write(t, st, "kept", "first")
	r := a.as(t, st.ManageToken, http.MethodPost, "/v0/stacks/"+st.ID+"/services/web/exec", `{"command": "head -c 200000000 /dev/urandom >$DATA_DIR/big"}`)
	require.Contains(t, r.body, `"exit_code":0`, r)
	load := press(t, st.url("web", "/"), owner, a)
	s := c.awaitSnapshot(t, st, time.Now())
	load.lostNone(t)
	c.awaitOneSnapshot(t, st)
	pauses := owner.pauses(t, began)
	t.Logf("snapshot of %d bytes, in motion: %v; pauses of %s", s.Bytes, s.InMotion, pauses)
	require.NotEmpty(t, pauses)
	for _, pause := range pauses {
		require.LessOrEqual(t, pause, 2*time.Second)
	}
	s = c.awaitSnapshot(t, st, time.Now())
	a.write(t, st, "kept", "since")
	before := c.history(t)

	require.NoError(t, owner.node.Machine.Kill(t.Context()))
	killed := time.Now()
	a.awaitState(t, owner, "lost")
	lost := time.Now()
	for _, h := range []*Host{a, b} {
		h.serves(t, st.url("web", "/read?name=kept"), "200 first")
	}
	t.Logf("lost after %s, restored %s after that", lost.Sub(killed).Round(time.Millisecond), time.Since(lost).Round(time.Millisecond))
	regained := c.snapshot(t, st, "regained")
	require.True(t, regained.At.Equal(s.At), "%s instead of %s", regained.At, s.At)
	a.write(t, st, "kept", "elsewhere")

	require.NoError(t, owner.node.Machine.Start(t.Context()))
	owner.wait(t)
	owner.run(t)
	for _, h := range c.hosts {
		h.serves(t, st.url("web", "/read?name=kept"), "200 elsewhere")
	}
	require.NotSame(t, owner, c.owner(t, st))
	owner.keepsData(t, st, a)
	require.Equal(t, 1, strings.Count(strings.Join(types(a.events(t, st)), " "), "stack.restored"))
	c.inOrder(t, before)
}

// keepsData asserts that a node that another one took a stack from has its data and nothing else
// of it, and that the other one's berthd names the volume. It removes that, as an operator does.
func (h *Host) keepsData(t *testing.T, st *Stack, other *Host) {
	t.Helper()
	data := "berth-" + strings.TrimPrefix(st.ID, "stk_") + "-web-data"
	eventually(t, "the volume is marked", func() error {
		if shown := other.berthd(t, "stacks", "show", st.ID, "--json"); !strings.Contains(shown, data) {
			return fmt.Errorf("it is not in %s", shown)
		}
		return nil
	})
	require.Equal(t, []string{"volume web-data"}, h.has(t, st))
	require.NoError(t, h.node.Engine.VolumeRemove(t.Context(), data, false))
	left, err := h.node.Engine.VolumeList(t.Context(), volume.ListOptions{Filters: ofStacks()})
	require.NoError(t, err)
	require.Empty(t, left.Volumes)
}

// A server dies at each step of a snapshot: afterwards no process is left paused, none was
// started again, and the next snapshot is taken.
func TestCluster_SnapshotBreaksOff(t *testing.T) {
	long(t)
	for _, point := range []string{"data-paused", "snapshot-put", "snapshot-recorded"} {
		t.Run(point, func(t *testing.T) {
			c := start(t, clustered, restoring)
			owner, a := c.on("w1"), c.on("m1")
			st := c.liveOn(t, owner, app, appManifest)
			c.awaitPushed(t, st, 2)
			began := time.Now()
			before := c.history(t)
			owner.kill(t)
			owner.fails = point
			owner.run(t)
			a.write(t, st, "kept", "data")
			owner.wait(t)
			owner.fails = ""
			owner.run(t)
			for _, h := range c.hosts {
				h.serves(t, st.url("web", "/read?name=kept"), "200 data")
			}
			a.write(t, st, "kept", "more")
			c.awaitSnapshot(t, st, time.Now())
			c.awaitOneSnapshot(t, st)
			owner.pauses(t, began)
			logs := a.as(t, st.ManageToken, http.MethodGet, "/v0/stacks/"+st.ID+"/logs?service=web&timestamps=true", "")
			require.Equal(t, 1, strings.Count(logs.body, "web started"), logs)
			c.inOrder(t, before)
		})
	}
}
