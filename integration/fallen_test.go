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

// fallen is a stack that was live until it crashed too often while the next generation,
// a door, was starting.
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
	h.keeps(t, st, "container web-g2", "image web", "volume web-data", "volume api-data", "network g2")
}
