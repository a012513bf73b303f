package cluster

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// earlier builds the server of the last commit without the newest migration, as a file that the
// nodes have, and returns the commit.
func earlier(t *testing.T, file string) (commit string) {
	t.Helper()
	git := func(args ...string) string {
		cmd := exec.Command("git", args...)
		cmd.Dir = checkout
		out, err := cmd.Output()
		if err != nil {
			lacks(t, "the history of the checkout cannot be read: git %s: %v", args[0], err)
		}
		return strings.TrimSpace(string(out))
	}
	commit = git("rev-parse", git("log", "-1", "--format=%H", "--diff-filter=A", "--", "internal/store/migrations")+"^")
	tree := t.TempDir()
	archive := filepath.Join(tree, "tree.tar")
	git("archive", "-o", archive, commit)
	out, err := exec.Command("tar", "-xf", archive, "-C", tree).CombinedOutput()
	require.NoError(t, err, "%s", out)
	path := filepath.Join(theLab(t).binaries(), file)
	require.NoError(t, buildServer(tree, path))
	t.Cleanup(func() { require.NoError(t, os.Remove(path)) })
	return commit
}

// Servers of this version and of the one before are one cluster: nodes get the new one after the
// other, and what clients do goes on meanwhile, through nodes of either version to the other.
func TestCluster_TwoVersions(t *testing.T) {
	long(t)
	t.Logf("the version before is %.7s", earlier(t, "berthd-before"))
	c := install(t, clustered)
	for _, h := range c.hosts {
		h.program = "berthd-before"
		h.spawn(t)
	}
	for _, h := range c.hosts {
		h.awaitAnswer(t)
	}
	var stacks []*Stack
	for _, h := range c.hosts {
		st := c.liveOn(t, h, app, appManifest)
		h.write(t, st, "kept", h.node.Name)
		stacks = append(stacks, st)
	}
	key := c.on("m1").account(t, "ana@example.com")
	for i, h := range c.hosts {
		loads := c.pressBeside(t, h, stacks)
		h.stop(t)
		h.program = "berthd"
		h.run(t)
		for _, load := range loads {
			load.lostNone(t)
		}
		next := c.hosts[(i+1)%len(c.hosts)] // of the version before, but for the last
		for _, through := range c.hosts {
			for j, st := range stacks {
				through.serves(t, st.url("web", "/read?name=kept"), "200 "+c.hosts[j].node.Name)
				through.upgrades(t, st)
				require.Contains(t, through.as(t, st.ManageToken, http.MethodPost, "/v0/stacks/"+st.ID+"/services/web/exec", `{"command": "echo $((6 * 7))"}`).body, `"output":"42\n"`)
			}
			st := through.live(t, app, appManifest)
			require.Equal(t, http.StatusOK, next.redeploy(t, st, app.plus("site/more", "x"), appManifest).status)
			require.Equal(t, 2, h.mustLive(t, st).Generation)
			require.Equal(t, http.StatusOK, through.claim(t, key, st).status)
			require.Equal(t, http.StatusOK, next.as(t, key, http.MethodDelete, "/v0/stacks/"+st.ID, "").status)
			c.forget(st)
		}
		for _, to := range []*Host{next, h} { // to the other version and back
			to.berthd(t, "stacks", "move", stacks[i].ID, to.node.Name)
			require.Same(t, to, c.owner(t, stacks[i]))
			for _, through := range c.hosts {
				through.serves(t, stacks[i].url("web", "/read?name=kept"), "200 "+h.node.Name)
			}
		}
	}
	c.inOrder(t, nil)
}
