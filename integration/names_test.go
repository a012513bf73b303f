package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/require"
)

// callers is a stack whose service web asks its service api with each request, on
// a new connection. An api that is "broken" answers 500, a "slow" one does so for
// the first two seconds.
func callers(mode string) Tree {
	return Tree{"mode": mode, "index.js": `
const http = require('http'), { SERVICE_NAME, GENERATION, API_INTERNAL_URL, PORT } = process.env;
const mode = require('fs').readFileSync('mode', 'utf8'), boot = Date.now();
const api = (req, res) => {
  res.statusCode = mode === 'good' || mode === 'slow' && Date.now() - boot > 2000 ? 200 : 500;
  res.end(GENERATION + ' booted ' + boot);
};
const web = (req, res) => http.get(API_INTERNAL_URL, { agent: false }, (answer) => {
  let body = '';
  answer.on('data', (data) => { body += data; });
  answer.on('end', () => { res.statusCode = answer.statusCode; res.end(GENERATION + ' asked ' + body); });
}).on('error', (err) => { res.statusCode = 502; res.end(GENERATION + ' got ' + err); });
http.createServer(SERVICE_NAME === 'api' ? api : web).listen(PORT);`}
}

const callersManifest = `{name: callers, services: [
  {name: web, runtime: node, start: node index.js, depends_on: [api]},
  {name: api, runtime: node, start: node index.js, health: /}]}`

// called asks web, which must have asked the api of its own generation, and returns
// when that api was started.
func (l *load) called(client *http.Client) (boot string, err error) {
	res, err := client.Get(l.st.url("web", "/"))
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return "", err
	}
	var web, api int
	if _, err := fmt.Sscanf(string(body), "%d asked %d booted %s", &web, &api, &boot); err != nil || res.StatusCode != http.StatusOK || web != api {
		return "", fmt.Errorf("%s: %s", res.Status, body)
	}
	l.requests.Add(1)
	return boot, nil
}

// underCalls does something while the service web is asked without a pause, and
// asserts that every answer was right, or began with one of those allowed.
func (h *Host) underCalls(t *testing.T, st *Stack, do func(), allowed ...string) {
	t.Helper()
	l := &load{h: h, service: "web", st: st}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	for range 4 {
		l.constantly(ctx, &all, func(_ context.Context, client *http.Client) error {
			_, err := l.called(client)
			if err != nil && slices.ContainsFunc(allowed, func(begin string) bool { return strings.HasPrefix(err.Error(), begin) }) {
				return nil
			}
			return err
		})
	}
	do()
	enough := l.requests.Load() + 50
	eventually(t, "calls afterwards", func() error {
		if l.requests.Load() < enough {
			return errors.New("too few")
		}
		return nil
	})
	cancel()
	all.Wait()
	if first := l.first.Load(); first != nil {
		t.Errorf("%d of %d calls went wrong, the first: %v", l.failed.Load(), l.requests.Load(), *first)
	}
}

func TestNames_ReachTheirOwnGenerationOverEveryRedeploy(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_HEALTH_TIMEOUT", "20s"), with("BERTH_DRAIN", "2s"))
	st := h.live(t, callers("good"), manifest(callersManifest))
	h.underCalls(t, st, func() {
		require.Contains(t, h.redeploy(t, st, callers("broken"), manifest(callersManifest)).deployError(), "service api: not healthy")
		require.Equal(t, 2, h.redeploy(t, st, callers("slow"), manifest(callersManifest)).Generation)
		require.Equal(t, 3, h.redeploy(t, st, callers("good"), manifest(callersManifest)).Generation)
	})
	h.keeps(t, st, "container web-g3", "container api-g3", "image web", "image api", "volume web-data", "volume api-data", "network g3")
}

func TestNames_ReachAHealthyProcessOverARestart(t *testing.T) {
	t.Parallel()
	h := start(t)
	ana := h.person(t, "ana@example.com")
	st := h.owned(t, ana.key, callers("slow").plus(Tree{"stack.yaml": callersManifest}))
	before := h.inspect(t, st, "api").ID
	h.underCalls(t, st, func() {
		for n := range 2 {
			require.Equal(t, http.StatusSeeOther, ana.act(t, st, "restart/api").status)
			h.awaitRestart(t, st, n+1)
		}
		h.keeps(t, st, "container web-g1", "container api-g1-r2", "image web", "image api", "volume web-data", "volume api-data", "network g1")
	})
	require.NotEqual(t, before, h.inspect(t, st, "api").ID)
	require.True(t, strings.HasPrefix(h.get(t, st.url("web", "/")).body, "1 asked 1 booted "))
}

// A call may find no process while the only one restarts.
func TestNames_ReachNoProcessThatRestartsInPlaceBeforeItIsHealthy(t *testing.T) {
	t.Parallel()
	h := start(t)
	ana := h.person(t, "ana@example.com")
	inPlace := strings.Replace(callersManifest, "health: /", "health: /, strategy: recreate", 1)
	st := h.owned(t, ana.key, callers("slow").plus(Tree{"stack.yaml": inPlace}))
	before := h.inspect(t, st, "api")
	h.underCalls(t, st, func() {
		for n := range 2 {
			ana.act(t, st, "restart/api")
			h.awaitRestart(t, st, n+1)
		}
	}, "502 Bad Gateway: 1 got Error: ")
	after := h.inspect(t, st, "api")
	require.Equal(t, before.ID, after.ID)
	require.NotEqual(t, before.State.StartedAt, after.State.StartedAt)
	require.Zero(t, count(h.events(t, st), "service.crashed"))
}

// shareOneNetwork puts a live stack on the one network of all its generations that
// a release had before each got one of its own, and ends that release's server.
func (h *Host) shareOneNetwork(t *testing.T, st *Stack, services ...string) {
	t.Helper()
	docker, err := h.docker()
	require.NoError(t, err)
	defer docker.Close()
	own, shared := "berth-"+st.hex()+"-g1", "berth-"+st.hex()
	found, err := docker.NetworkInspect(t.Context(), own, network.InspectOptions{})
	require.NoError(t, err)
	h.stop(t)
	delete(found.Labels, "berth.generation")
	for _, service := range services {
		require.NoError(t, docker.NetworkDisconnect(t.Context(), own, h.inspect(t, st, service).ID, false))
	}
	require.NoError(t, docker.NetworkRemove(t.Context(), own))
	_, err = docker.NetworkCreate(t.Context(), shared, network.CreateOptions{
		IPAM: &found.IPAM, Labels: found.Labels, Options: map[string]string{"com.docker.network.bridge.name": "bth" + st.hex()},
	})
	require.NoError(t, err)
	for _, service := range services {
		settings := &network.EndpointSettings{Aliases: []string{service}}
		require.NoError(t, docker.NetworkConnect(t.Context(), shared, h.inspect(t, st, service).ID, settings))
	}
	h.run(t)
}

func TestNetworks_OfAnEarlierReleaseAreKeptUntilTheNextRedeploy(t *testing.T) {
	t.Parallel()
	h := start(t)
	ana := h.person(t, "ana@example.com")
	st := h.owned(t, ana.key, callers("good").plus(Tree{"stack.yaml": callersManifest}))
	h.shareOneNetwork(t, st, "web", "api")
	before := h.inspect(t, st, "web")
	all := []string{"container web-g1", "image web", "image api", "volume web-data", "volume api-data", "network"}
	h.keeps(t, st, append(all, "container api-g1")...)
	h.underCalls(t, st, func() {
		ana.act(t, st, "restart/api")
		h.awaitRestart(t, st, 1)
		h.keeps(t, st, append(all, "container api-g1-r1")...)
	})
	h.restart(t)
	after := h.inspect(t, st, "web")
	require.Equal(t, before.ID+before.State.StartedAt, after.ID+after.State.StartedAt)
	h.underCalls(t, st, func() {
		require.Equal(t, 2, h.redeploy(t, st, callers("slow"), manifest(callersManifest)).Generation)
	})
	h.keeps(t, st, "container web-g2", "container api-g2", "image web", "image api", "volume web-data", "volume api-data", "network g2")
}
