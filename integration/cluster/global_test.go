package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// serverImages are two names of the server's image, so that one can be rolled out after the
// other.
var serverImages = []string{"berth/berthd:one", "berth/berthd:two"}

// loadServer builds the image of the Dockerfile with the tests' server, as make image does with
// the shipped one, and gives it to the nodes' engines.
func (l *Lab) loadServer(t *testing.T) {
	t.Helper()
	files := map[string][]byte{}
	for name, path := range map[string]string{
		"Dockerfile": filepath.Join(checkout, "Dockerfile"),
		"install.sh": filepath.Join(checkout, "images", "common", "install.sh"),
		"berthd":     filepath.Join(scratch, "berthd"),
	} {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		files[name] = content
	}
	o, err := options()
	require.NoError(t, err)
	const ref = "berth-lab/berthd:latest"
	require.NoError(t, buildFiles(t.Context(), l.docker, o, ref, files))
	for _, name := range serverImages {
		require.NoError(t, l.load(t.Context(), []Base{{Image: ref, Name: name}}))
	}
}

// serverService is the name of the servers' service in the swarm.
const serverService = "berthd"

// swarm runs a command of the engine's client on the manager.
func (c *Cluster) swarm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.lab.Nodes[0].Machine.Run(context.Background(), "", append([]string{"docker"}, args...)...)
	require.NoError(t, err)
	return strings.TrimSpace(out)
}

// does runs a command of docs/operating/cluster.md on the node, from its first words to its
// number, with other words in place of some, and returns its output.
func (h *Host) does(t *testing.T, words string, number int, instead ...string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(checkout, "docs", "operating", "cluster.md"))
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(page), "\n"+words)
	require.True(t, ok, "the page has no command %q", words)
	command, _, ok := strings.Cut(words+rest, fmt.Sprintf("# %d.", number))
	require.True(t, ok, "the page has no command %d", number)
	command = strings.NewReplacer(append(instead, "/var/lib/berth", h.c.dir, "10.0.0.1", h.c.lab.Nodes[0].Machine.Address.String())...).Replace(command)
	out, err := h.node.Machine.Run(t.Context(), "", "sh", "-c", "export PATH=/opt/berth:$PATH; "+command)
	require.NoError(t, err)
	return out
}

// writeFile writes a file that only root may read.
func (h *Host) writeFile(t *testing.T, name, text string) {
	t.Helper()
	_, err := h.node.Machine.Run(t.Context(), text, "sh", "-c", `mkdir -p "$(dirname "$0")" && umask 077 && cat >"$0"`, name)
	require.NoError(t, err)
}

// joinAnew makes another swarm of the nodes, as the documentation says.
func (c *Cluster) joinAnew(t *testing.T) {
	t.Helper()
	first, others := c.hosts[0], c.hosts[1:]
	for _, h := range c.hosts {
		_, err := h.node.Machine.Run(t.Context(), "", "docker", "swarm", "leave", "--force")
		require.NoError(t, err)
		h.node.swarmID = ""
	}
	token := joinToken.FindString(first.does(t, "docker swarm init", 1))
	for _, h := range others {
		h.does(t, "docker swarm join", 2, "SWMTKN-…", token)
		h.does(t, "mkdir", 3)
	}
	require.NoError(t, c.lab.awaitSwarm(t.Context()))
}

var joinToken = regexp.MustCompile(`SWMTKN-\S+`)

// makeSecrets makes the secrets of the service.
func (c *Cluster) makeSecrets(t *testing.T) {
	t.Helper()
	h := c.hosts[0]
	h.writeFile(t, "/etc/berth/pgpass", fmt.Sprintf("postgres:5432:*:%s:%s\n", PostgresUser, PostgresPassword))
	h.writeFile(t, "/root/.docker/config.json", `{"auths": {"registry:5000": {"auth": "YTpi"}}}`)
	h.does(t, "docker secret create berth-key", 4)
	h.does(t, "docker secret create berth-pgpass", 5)
	h.does(t, "docker secret create berth-registry", 6)
}

// places are the words in place of which the commands of the documentation have others.
func (c *Cluster) places() []string {
	return []string{
		"https://example.com", baseURL,
		"rediss://redis.example.com", c.env["BERTH_REDIS_URL"],
		"postgres://berth@db.example.com/berth?sslmode=verify-full", fmt.Sprintf("postgres://%s@postgres:5432/%s?sslmode=disable", PostgresUser, c.hosts[0].database),
	}
}

// startService runs the servers as one global service of the swarm, with the settings of the
// documentation and those that the tests need besides.
func (c *Cluster) startService(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { c.endService(t) })
	more := "--no-resolve-image"
	for _, name := range []string{"BERTH_ADMIN_LISTEN", "BERTH_CREATES_PER_HOUR", "BERTH_NODE_GRACE", "BERTH_NODE_LEASE", "BERTH_TTL_MIN", "BERTH_UNCLAIMED_PER_IP", "GORACE"} {
		more += " --env " + name + "=" + c.env[name]
	}
	c.hosts[0].does(t, "docker service create", 9, append(c.places(),
		"registry.example.com/berth/berthd:1", serverImages[0], "BERTH_REGISTRY=registry.example.com", "BERTH_REGISTRY="+c.env["BERTH_REGISTRY"],
		"--with-registry-auth", more)...)
	for _, h := range c.hosts {
		h.awaitTask(t, "")
	}
	shown := c.hosts[0].does(t, "docker exec", 10)
	for _, name := range NodeNames {
		require.Contains(t, shown, name)
	}
}

// endService removes the service, once its tasks have ended, and its secrets.
func (c *Cluster) endService(t *testing.T) {
	t.Helper()
	if t.Failed() {
		t.Log(c.swarm(t, "service", "ps", "--no-trunc", serverService))
		t.Log(c.swarm(t, "service", "logs", "--raw", serverService))
	}
	c.swarm(t, "service", "rm", serverService)
	for _, h := range c.hosts {
		eventually(t, "the server's task on "+h.node.Name+" has ended", func() error { return same("", h.task(t)) })
	}
	c.swarm(t, "secret", "rm", "berth-key", "berth-pgpass", "berth-registry")
}

// task returns the id of the container that is the node's task of the service; "" for none.
func (h *Host) task(t *testing.T) string {
	t.Helper()
	out, err := h.node.Machine.Run(context.Background(), "", "docker", "ps", "--quiet", "--filter", "label=com.docker.swarm.service.name="+serverService)
	require.NoError(t, err)
	return strings.TrimSpace(out)
}

// awaitTask waits until another task than one before serves.
func (h *Host) awaitTask(t *testing.T, before string) {
	t.Helper()
	eventually(t, "the next server on "+h.node.Name+" answers", func() error {
		if now := h.task(t); now == "" || now == before {
			return errors.New("there is none")
		}
		return same("200", fmt.Sprint(h.get(t, "/healthz").status))
	})
}

// A machine with SQLite becomes the first of three nodes by the ten commands of the
// documentation. Their servers are one global service: Swarm starts them, rolls a new image out,
// and drains a node, whose server moves its stacks away before it ends.
func TestCluster_OneGlobalService(t *testing.T) {
	long(t)
	c := install(t, clustered)
	c.lab.loadServer(t)
	first, gone := c.on("m1"), c.on("w1")
	old := first.onOneMachine(t)
	c.joinAnew(t)
	c.makeSecrets(t)
	first.does(t, "BERTH_CLUSTER=swarm", 8, append(c.places(), "berthd migrate", "env BERTH_DATA_DIR="+c.dir+" berthd migrate")...)
	for _, h := range c.hosts[1:] {
		h.takeKey(t, first) // for the processes that follow the service
	}
	c.startService(t)
	for name, m := range first.members(t) {
		require.Equal(t, "ready active", m.State+" "+m.Availability, name)
	}
	for _, h := range c.hosts {
		h.serves(t, old.url("web", "/read?name=kept"), "200 from one machine")
	}
	st := c.liveOn(t, gone, app, appManifest)
	other := c.liveOn(t, c.on("w2"), app, appManifest)
	first.write(t, st, "kept", "data")
	c.awaitPushed(t, st, 2)
	c.rollsOut(t, old, st, other)
	c.drains(t, gone, st)
}

// onOneMachine makes a stack by a server that is alone and keeps its state in SQLite.
func (h *Host) onOneMachine(t *testing.T) *Stack {
	t.Helper()
	settings := h.env
	h.env = map[string]string{"BERTH_CLUSTER": "off", "BERTH_KEY_FILE": "", "BERTH_REGISTRY": ""}
	h.run(t)
	st := h.live(t, app, appManifest)
	h.write(t, st, "kept", "from one machine")
	h.stop(t)
	h.env = settings
	for _, each := range h.c.hosts {
		each.env["BERTH_KEY_FILE"] = h.c.dir + "/key"
	}
	return st
}

// rollsOut asserts that every stack serves through every node after a rollout of another image.
// TestCluster_Rollout asserts that the nodes whose turn it is not lose no request meanwhile.
func (c *Cluster) rollsOut(t *testing.T, stacks ...*Stack) {
	t.Helper()
	before := map[*Host]string{}
	for _, h := range c.hosts {
		before[h] = h.task(t)
	}
	began := time.Now()
	c.swarm(t, "service", "update", "--detach", "--no-resolve-image", "--image", serverImages[1], serverService)
	eventually(t, "the rollout is done", func() error {
		return same("completed", c.swarm(t, "service", "inspect", "--format", "{{.UpdateStatus.State}}", serverService))
	})
	t.Logf("the rollout took %s", time.Since(began).Round(time.Millisecond))
	for _, h := range c.hosts {
		h.awaitTask(t, before[h])
		for _, st := range stacks {
			require.Equal(t, "200 hello from web, generation 1", h.get(t, st.url("web", "/")).String())
		}
	}
}

// drains asserts that Swarm's drain of a node moves its stack, and that the node takes part
// again afterwards.
func (c *Cluster) drains(t *testing.T, gone *Host, st *Stack) {
	t.Helper()
	task, through := gone.task(t), c.others(t, st)
	load := press(t, st.url("web", "/"), through...)
	began := time.Now()
	c.swarm(t, "node", "update", "--availability", "drain", gone.node.Name)
	eventually(t, "the drained node's server has ended", func() error { return same("", gone.task(t)) })
	t.Logf("the drained node's server ended after %s", time.Since(began).Round(time.Millisecond))
	load.lostNone(t)
	require.NotSame(t, gone, c.owner(t, st))
	require.Equal(t, "200 data", through[0].reads(t, st, "kept"))
	gone.hasNothing(t)
	c.swarm(t, "node", "update", "--availability", "active", gone.node.Name)
	gone.awaitTask(t, task)
	require.Equal(t, "200 data", gone.reads(t, st, "kept"))
}
