package integration

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// door is healthy once /open was asked of it, and ends when /fail is.
var door = Tree{"server.js": `
let open = false;
require('http').createServer((req, res) => {
  if (req.url === '/open') open = true;
  res.statusCode = open ? 200 : 503;
  res.end('generation ' + process.env.GENERATION, () => { if (req.url === '/fail') process.exit(7); });
}).listen(process.env.PORT);`}

const opened = `{services: [{name: web, runtime: node, start: node server.js, health: /}]}`

// container is the name of a container, as in "web-g2".
func (st *Stack) container(name string) string { return "berth-" + st.hex() + "-" + name }

// ask sends a request to the process in a container, past the host.
func (h *Host) ask(t *testing.T, st *Stack, name, path string) {
	t.Helper()
	docker, err := engine()
	require.NoError(t, err)
	defer docker.Close()
	c, err := docker.ContainerInspect(t.Context(), st.container(name))
	require.NoError(t, err)
	for _, network := range c.NetworkSettings.Networks {
		eventually(t, name+" answers", func() error {
			res, err := http.Get("http://" + network.IPAddress + ":8080" + path)
			if err != nil {
				return err
			}
			return res.Body.Close()
		})
	}
}

// fallen is a stack that was live until it crashed once too often while the next
// generation, a door, was being brought up.
func (h *Host) fallen(t *testing.T) *Stack {
	t.Helper()
	st := h.live(t, crasher, manifest(`{services: [{name: web, runtime: node, start: node index.js}, {name: api, runtime: node, start: node index.js}]}`))
	h.crash(t, st, "web", "/exit/3", 1)
	h.begin(t, st, door, manifest(opened))
	h.waitFor(t, st, "container web-g2")
	before := len(h.events(t, st))
	h.get(t, st.url("web", "/exit/9"))
	now := h.becomes(t, st, "building")
	require.Equal(t, []string{"service.crashed web", "stack.failed"}, h.after(t, st, before))
	require.Equal(t, map[string]any{"error": "web crashed 2 times in 10 min (last exit code 9); check its logs and redeploy"}, last(t, h.events(t, st), "stack.failed").Data)
	require.Equal(t, 1, now.Generation)
	require.Equal(t, 2, *now.Deploying)
	require.Nil(t, now.Error)
	require.Nil(t, now.DeployError)
	require.Equal(t, map[string]string{"web": "stopped", "api": "stopped"}, now.statuses())
	for _, service := range []string{"web", "api"} {
		r := h.get(t, st.url(service, "/"), "Accept", "application/json")
		require.Contains(t, r.refused(t, http.StatusServiceUnavailable), "is being built")
		require.NotEmpty(t, r.header.Get("Retry-After"))
	}
	eventually(t, "the old generation has ended", func() error {
		if has := set(h.has(t, st)); has["container web-g1"] || has["container api-g1"] || !has["container web-g2"] {
			return fmt.Errorf("the engine has %v", has)
		}
		return nil
	})
	return st
}

func TestFallen_TheDeployThatIsUnderWayGoesOn(t *testing.T) {
	t.Parallel()
	h := start(t, quickly, with("BERTH_CRASH_LIMIT", "1"))
	st := h.fallen(t)
	before := len(h.events(t, st))
	require.Contains(t, h.postDeploy(t, st, door, manifest(opened)).refused(t, http.StatusConflict), "already running")
	h.ask(t, st, "web-g2", "/open")
	now := h.mustLive(t, st)
	require.Equal(t, 2, now.Generation)
	require.Nil(t, now.Deploying)
	require.Nil(t, now.DeployError)
	require.Equal(t, map[string]string{"web": "running"}, now.statuses())
	require.Equal(t, "generation 2", h.get(t, st.url("web", "/")).body)
	require.Equal(t, []string{"service.ready web", "stack.live"}, h.after(t, st, before))
	h.keeps(t, st, "container web-g2", "image web:g2", "volume web-data", "volume api-data", "network g2")
}

func TestFallen_FailsAgainWithTheDeploy(t *testing.T) {
	t.Parallel()
	h := start(t, quickly, with("BERTH_CRASH_LIMIT", "1"))
	st := h.fallen(t)
	before := len(h.events(t, st))
	h.ask(t, st, "web-g2", "/fail")
	now := h.becomes(t, st, "failed")
	require.Contains(t, now.reason(), "exited with code 7")
	require.Equal(t, 1, now.Generation)
	require.Nil(t, now.Deploying)
	require.Equal(t, []string{"stack.failed"}, h.after(t, st, before))
	require.Contains(t, h.get(t, st.url("web", "/"), "Accept", "application/json").refused(t, http.StatusServiceUnavailable), "has failed")
	h.keeps(t, st, "image web:g1", "image api:g1", "volume web-data", "volume api-data")
	h.begin(t, st, program(t), manifest(programManifest))
	require.Equal(t, 2, h.mustLive(t, st).Generation)
}

func TestFallen_MeetsWhatElseHappens(t *testing.T) {
	t.Parallel()
	h := start(t, short, quickly, with("BERTH_CRASH_LIMIT", "1"))
	key := h.accountCreate(t, "ana@example.com")

	claimed := h.fallen(t)
	require.Equal(t, "building", h.claim(t, key, claimed.ClaimCode, "").stack(t).Status)
	h.ask(t, claimed, "web-g2", "/open")
	require.Equal(t, 2, h.mustLive(t, claimed).Generation)
	require.Empty(t, h.get(t, claimed.url("web", "/")).header.Get("X-Robots-Tag"))

	deleted := h.fallen(t)
	require.Equal(t, http.StatusOK, h.delete(t, deleted).status)
	h.forgetStack(deleted.ID)
	h.keeps(t, deleted)

	expired := h.fallen(t)
	require.Nil(t, h.expire(t, expired).Deploying)
	require.Equal(t, http.StatusOK, h.claim(t, key, expired.ClaimCode, "?wait=true").status)
	require.Equal(t, "web", h.get(t, expired.url("web", "/")).body, "the generation that was live is brought back")

	interrupted := h.fallen(t)
	h.kill(t)
	h.run(t)
	now := h.becomes(t, interrupted, "failed")
	require.Contains(t, now.reason(), "restarted while generation 2 was being built")
	h.keeps(t, interrupted, "image web:g1", "image api:g1", "volume web-data", "volume api-data")
}

func TestFallen_ADeployThatWaitsForABuildSlotGoesOn(t *testing.T) {
	t.Parallel()
	h := start(t, quickly, with("BERTH_CRASH_LIMIT", "1"), with("BERTH_MAX_BUILDS", "1"))
	st := h.live(t, crasher, manifest(crashes))
	h.crash(t, st, "web", "/exit/3", 1)
	other := h.create(t, page("x"), manifest("services: [{name: web, runtime: node, build: 'echo it builds; sleep 600', start: x}]"))
	h.logged(t, other, "kind=build", "\nit builds\n")
	h.begin(t, st, program(t), manifest(programManifest))
	before := len(h.events(t, st))
	h.get(t, st.url("web", "/exit/9"))
	now := h.becomes(t, st, "building")
	require.Equal(t, []string{"service.crashed web", "stack.failed"}, h.after(t, st, before))
	require.Equal(t, 2, *now.Deploying)
	require.Nil(t, now.Error)
	require.Nil(t, now.DeployError)
	require.Zero(t, count(h.events(t, st)[before:], "service.building"))
	require.Equal(t, http.StatusOK, h.delete(t, other).status)
	h.forgetStack(other.ID)
	require.Equal(t, 2, h.mustLive(t, st).Generation)
	require.Equal(t, "2", h.served(t, st, "web"))
	require.Equal(t, []string{"service.crashed web", "stack.failed", "service.building web", "service.ready web", "stack.live"}, h.after(t, st, before))
	h.keeps(t, st, "container web-g2", "image web:g2", "volume web-data", "network g2")
}

// A service whose process was stopped to make way does not come back for a
// generation in which another one loops.
func TestFallen_WithAServiceThatMadeWay(t *testing.T) {
	t.Parallel()
	h := start(t, quickly, with("BERTH_CRASH_LIMIT", "1"))
	const both = `{services: [{name: web, runtime: node, start: node %s, strategy: recreate, health: /}, {name: api, runtime: node, start: node index.js, depends_on: [web]}]}`
	fallen := func() *Stack {
		st := h.live(t, crasher, manifest(fmt.Sprintf(both, "index.js")))
		h.crash(t, st, "api", "/exit/3", 1)
		h.begin(t, st, crasher.plus(door), manifest(fmt.Sprintf(both, "server.js")))
		h.waitFor(t, st, "container web-g2")
		require.Equal(t, map[string]string{"web": "stopped", "api": "running"}, h.show(t, st, "").statuses())
		before := len(h.events(t, st))
		h.get(t, st.url("api", "/exit/9"))
		now := h.becomes(t, st, "building")
		require.Equal(t, []string{"service.crashed api", "stack.failed"}, h.after(t, st, before))
		require.Equal(t, 2, *now.Deploying)
		require.Equal(t, map[string]string{"web": "stopped", "api": "stopped"}, now.statuses())
		return st
	}

	live := fallen()
	h.ask(t, live, "web-g2", "/open")
	require.Equal(t, 2, h.mustLive(t, live).Generation)
	require.Equal(t, "generation 2", h.get(t, live.url("web", "/")).body)
	h.keeps(t, live, "container web-g2", "container api-g2", "image web:g2", "image api:g2", "volume web-data", "volume api-data", "network g2")

	failed := fallen()
	h.ask(t, failed, "web-g2", "/fail")
	now := h.becomes(t, failed, "failed")
	require.Contains(t, now.reason(), "exited with code 7")
	require.Equal(t, map[string]string{"web": "stopped", "api": "stopped"}, now.statuses())
	h.keeps(t, failed, "image web:g1", "image api:g1", "volume web-data", "volume api-data")
}

// A deploy that waits while a stack is brought back, and fails to come back, is
// not lost either.
func TestFallen_AQueuedDeployFollowsARestoreThatFails(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t), manifest(`services: [{name: web, runtime: node, start: 'if [ -e $DATA_DIR/broken ]; then echo it hangs; sleep 600; fi; exec node server.js'}]`))
	h.put(t, st, "web", "broken", "")
	h.stop(t)
	h.stopContainer(t, h.inspect(t, st, "web").ID)
	h.run(t)
	h.logged(t, st, "", "it hangs")
	before := len(h.events(t, st))
	begun := h.begin(t, st, program(t), manifest(programManifest))
	require.Equal(t, "live", begun.Status)
	require.NoError(t, h.killProcess(t, st, "web", "KILL"))
	now := h.mustLive(t, st)
	require.Equal(t, 2, now.Generation)
	require.Nil(t, now.Error)
	require.Equal(t, "2", h.served(t, st, "web"))
	require.Equal(t, []string{"stack.redeploying", "stack.failed", "service.building web", "service.ready web", "stack.live"}, h.after(t, st, before))
	require.Contains(t, last(t, h.events(t, st), "stack.failed").Data["error"], "before it answered")
	h.keeps(t, st, "container web-g2", "image web:g2", "volume web-data", "network g2")
}
