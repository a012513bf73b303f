package cluster

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// reloadable runs the server, and lives until each process that took its place has ended.
const reloadable = `#!/bin/sh
trap 'pkill -TERM -x berthd' TERM
trap 'pkill -HUP -x berthd' HUP
/opt/berth/berthd "$@" &
sleep 1
while pgrep -x berthd >/dev/null; do sleep 0.1; done
`

// A node's server is replaced by SIGHUP: no request is lost through any node, and the node keeps
// its stacks, its lease and the way from the others.
func TestCluster_ReloadsANode(t *testing.T) {
	long(t)
	lab := theLab(t)
	path := filepath.Join(lab.binaries(), "berthd-reloadable")
	require.NoError(t, os.WriteFile(path, []byte(reloadable), 0o755))
	t.Cleanup(func() {
		_, _ = lab.Nodes[0].Machine.Run(context.Background(), "", "pkill", "-KILL", "-x", "berthd") // which fails if all has ended
		require.NoError(t, os.Remove(path))
	})
	c := install(t, clustered)
	h, other := c.hosts[0], c.hosts[1]
	h.program = "berthd-reloadable"
	for _, each := range c.hosts {
		each.spawn(t)
	}
	for _, each := range c.hosts {
		each.awaitAnswer(t)
	}
	var stacks []*Stack
	for _, on := range []*Host{h, other} {
		st := c.liveOn(t, on, app, appManifest)
		on.write(t, st, "kept", on.node.Name)
		stacks = append(stacks, st)
	}
	before := h.serverPID(t)
	loads := c.pressBeside(t, nil, stacks)
	for n := 1; n <= 3; n++ {
		require.NoError(t, h.process.Signal(t.Context(), "HUP"))
		eventually(t, "another process takes its place", func() error {
			return same(fmt.Sprint(n), fmt.Sprint(strings.Count(h.log.String(), `"msg":"reloaded"`)))
		})
		h.client.CloseIdleConnections()
		require.Equal(t, http.StatusOK, other.redeploy(t, stacks[0], app.plus("site/more", fmt.Sprint(n)), appManifest).status)
		require.Equal(t, http.StatusOK, h.redeploy(t, stacks[1], app.plus("site/more", fmt.Sprint(n)), appManifest).status)
		require.Equal(t, n+1, other.mustLive(t, stacks[0]).Generation)
	}
	time.Sleep(time.Second)
	for _, load := range loads {
		load.lostNone(t)
	}
	eventually(t, "the first process has ended", func() error {
		if now := h.serverPID(t); now == before || strings.Contains(now, "\n") {
			return fmt.Errorf("these run: %q", now)
		}
		return nil
	})
	for i, st := range stacks {
		require.Same(t, c.hosts[i], c.owner(t, st))
		for _, e := range h.events(t, st) {
			require.NotContains(t, []string{"stack.restored", "service.crashed"}, e.Type)
		}
		for _, through := range c.hosts {
			through.serves(t, st.url("web", "/read?name=kept"), "200 "+c.hosts[i].node.Name)
		}
	}
	c.inOrder(t, nil)
}

// serverPID returns the ids of the server's processes on the node, each in a line.
func (h *Host) serverPID(t *testing.T) string {
	t.Helper()
	out, err := h.node.Machine.Run(t.Context(), "", "pgrep", "-x", "berthd")
	require.NoError(t, err)
	return strings.TrimSpace(out)
}
