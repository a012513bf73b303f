package integration

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/require"
)

// crasher ends in the way that a request asks for. While the file "broken" is in its
// $DATA_DIR, it does not start again.
var crasher = Tree{"index.js": `
const fs = require('fs'), dir = process.env.DATA_DIR;
if (fs.existsSync(dir + '/broken')) process.exit(4);
const hoard = () => { const all = []; for (;;) all.push(Buffer.alloc(8 << 20, 'x')); };
require('http').createServer((req, res) => {
  const [, what, how] = req.url.split('/');
  if (what === 'break') fs.writeFileSync(dir + '/broken', '');
  res.end(process.env.SERVICE_NAME, () => {
    if (what === 'exit' || what === 'break') process.exit(Number(how));
    if (what === 'signal') process.kill(process.pid, how);
    if (what === 'memory') hoard();
  });
}).listen(process.env.PORT);`}

const crashes = `{services: [{name: web, runtime: node, start: node index.js}]}`

// quickly restarts crashed services without much of a wait.
func quickly(h *Host) {
	with("BERTH_BACKOFF", "20ms")(h)
	with("BERTH_BACKOFF_MAX", "50ms")(h)
}

// killProcess sends a signal to a service's container behind the server's back.
func (h *Host) killProcess(t *testing.T, st *Stack, service, signal string) error {
	t.Helper()
	docker, err := h.docker()
	require.NoError(t, err)
	defer docker.Close()
	return docker.ContainerKill(t.Context(), h.inspect(t, st, service).ID, signal)
}

// crash makes a service of a stack crash for the n-th time and waits until it runs
// again.
func (h *Host) crash(t *testing.T, st *Stack, service, how string, n int) {
	t.Helper()
	h.get(t, st.url(service, how))
	eventually(t, fmt.Sprintf("restart %d", n), func() error {
		if events := h.events(t, st); count(events, "service.restarted") < n {
			return fmt.Errorf("the events are %v", types(events))
		}
		return nil
	})
}

func TestCrash_IsRestartedAndTheLogTellsHowItEnded(t *testing.T) {
	t.Parallel()
	h := start(t, quickly, with("BERTH_SERVICE_MEMORY", "128MiB"))
	st := h.live(t, crasher, manifest(crashes))
	for i, c := range []struct {
		how, says string
		code      float64
	}{
		{"/exit/3", "== web exited with code 3\n", 3},
		{"/exit/0", "== web exited with code 0; a service's process must keep running\n", 0},
		{"/signal/SIGSEGV", "== web was ended by signal SIGSEGV (exit code 139)\n", 139},
		{"/memory", "== web ran out of memory and was killed (exit code 137)\n", 137},
	} {
		before := len(h.events(t, st))
		h.crash(t, st, "web", c.how, i+1)
		require.Equal(t, []string{"service.crashed web", "service.restarted web"}, h.after(t, st, before))
		events := h.events(t, st)[before:]
		require.Equal(t, map[string]any{"service": "web", "exit_code": c.code, "crashes": float64(i + 1)}, events[0].Data)
		require.Equal(t, map[string]any{"service": "web"}, events[1].Data)
		require.Contains(t, h.logs(t, st, ""), c.says)
		require.Equal(t, "web", h.get(t, st.url("web", "/")).body)
		now := h.show(t, st, "")
		require.Equal(t, "live", now.Status)
		require.Equal(t, "running", now.Services[0].Status)
	}
}

// The engine may give the address of a process that ended to another container, which must
// not answer in its name.
func TestCrash_NobodyElseAnswersForAServiceWithoutAProcess(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_BACKOFF", "1h"), with("BERTH_BACKOFF_MAX", "1h"))
	st := h.live(t, crasher, manifest(crashes))
	before := h.inspect(t, st, "web")
	h.get(t, st.url("web", "/exit/3"))
	h.logged(t, st, "", "restarting in 1h0m0s")
	stranger := h.takesPlaceOf(t, before)
	eventually(t, "the stranger answers", func() error {
		res, err := http.Get("http://" + stranger + ":8080/")
		if err != nil {
			return err
		}
		return res.Body.Close()
	})
	text := h.get(t, st.url("web", "/"), "Accept", "application/json").refused(t, http.StatusBadGateway)
	require.Contains(t, text, "is not running at the moment")
}

// takesPlaceOf runs a container that answers at the address of one that ended.
func (h *Host) takesPlaceOf(t *testing.T, ended container.InspectResponse) (ip string) {
	t.Helper()
	docker, err := h.docker()
	require.NoError(t, err)
	defer docker.Close()
	endpoints := map[string]*network.EndpointSettings{}
	for name, n := range ended.NetworkSettings.Networks {
		ip = n.IPAddress
		endpoints[name] = &network.EndpointSettings{IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: ip}}
	}
	answer := `require('http').createServer((req, res) => res.end('a stranger')).listen(8080)`
	c, err := docker.ContainerCreate(t.Context(), &container.Config{Image: ended.Config.Image, Cmd: []string{"node", "-e", answer}},
		nil, &network.NetworkingConfig{EndpointsConfig: endpoints}, nil, "")
	require.NoError(t, err)
	t.Cleanup(func() { h.removeContainer(t, c.ID) })
	require.NoError(t, docker.ContainerStart(t.Context(), c.ID, container.StartOptions{}))
	return ip
}

func (h *Host) removeContainer(t *testing.T, id string) {
	t.Helper()
	docker, err := h.docker()
	require.NoError(t, err)
	defer docker.Close()
	require.NoError(t, docker.ContainerRemove(context.Background(), id, container.RemoveOptions{Force: true}))
}

// A client that does not read what a process sent before it ended does not hold up
// the supervision of the next one.
func TestCrash_TheNextIsSeenWhileRequestsOfTheLastAreOpen(t *testing.T) {
	t.Parallel()
	h := start(t, quickly, with("BERTH_DRAIN", "1h"))
	st := h.live(t, program(t), manifest(programManifest))
	conn := h.dial(t)
	_, err := fmt.Fprintf(conn, "GET /bytes?n=1000000000 HTTP/1.1\r\nHost: %s\r\n\r\n", st.host("web"))
	require.NoError(t, err)
	_, err = conn.Read(make([]byte, 1))
	require.NoError(t, err)
	for n := range 2 {
		require.NoError(t, h.killProcess(t, st, "web", "KILL"))
		eventually(t, "the service is back", func() error {
			if events := h.events(t, st); count(events, "service.restarted") != n+1 {
				return fmt.Errorf("the events are %v", types(events))
			}
			return nil
		})
	}
	require.NoError(t, conn.Close())
}

func TestCrash_TheSixthFailsTheStackOverARestartOfTheServer(t *testing.T) {
	t.Parallel()
	h := start(t, quickly)
	fields := manifest(`{services: [{name: web, runtime: node, start: node index.js}, {name: api, runtime: node, start: node index.js}]}`)
	st := h.live(t, crasher, fields)
	for n := 1; n <= 5; n++ {
		if n == 3 {
			h.kill(t)
			h.run(t)
		}
		h.crash(t, st, "web", "/exit/3", n)
	}
	// Another service has a count of its own.
	h.crash(t, st, "api", "/exit/2", 6)
	require.EqualValues(t, 1, last(t, h.events(t, st), "service.crashed").Data["crashes"])

	h.get(t, st.url("web", "/exit/9"))
	eventually(t, "the stack fails", func() error {
		if now := h.show(t, st, ""); now.Status != "failed" {
			return fmt.Errorf("it is %s", now.Status)
		}
		return nil
	})
	const text = "web crashed 6 times in 10 min (last exit code 9); check its logs and redeploy"
	now := h.show(t, st, "")
	require.Equal(t, text, now.reason())
	require.Equal(t, map[string]string{"web": "stopped", "api": "stopped"}, now.statuses())
	events := h.events(t, st)
	require.Equal(t, []string{"service.crashed web", "stack.failed"}, types(events)[len(events)-2:])
	require.EqualValues(t, 6, events[len(events)-2].Data["crashes"])
	require.Equal(t, map[string]any{"error": text}, events[len(events)-1].Data)
	require.Contains(t, h.logs(t, st, "service=web"), text)
	h.keeps(t, st, "image web", "image api", "volume web-data", "volume api-data")
	require.Contains(t, h.pullData(t, st, "web", ""), "./", "its owner does not get at the files")
	for _, service := range []string{"web", "api"} {
		require.Equal(t, http.StatusServiceUnavailable, h.get(t, st.url(service, "/")).status)
	}

	h.begin(t, st, crasher, fields)
	h.mustLive(t, st)
	h.crash(t, st, "web", "/exit/3", 7)
	require.EqualValues(t, 1, last(t, h.events(t, st), "service.crashed").Data["crashes"], "a deploy resets the count")
}
