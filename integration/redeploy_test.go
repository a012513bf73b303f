package integration

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

func TestRedeploy_OldGenerationServesUntilTheNewOneIsHealthy(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t), manifest(programManifest))
	before := len(h.events(t, st))
	begun := h.begin(t, st, program(t), manifest(gated))
	require.Equal(t, "live", begun.Status)
	require.Equal(t, 1, begun.Generation)
	require.Equal(t, 2, *begun.Deploying)
	require.Equal(t, st.URLs, begun.URLs)
	eventually(t, "the new generation runs", func() error {
		if has := set(h.has(t, st)); !has["container web-g2"] {
			return fmt.Errorf("the engine has %v", has)
		}
		return nil
	})
	for range 20 {
		require.Equal(t, "1", h.served(t, st, "web"))
	}
	require.Contains(t, h.postDeploy(t, st, program(t), manifest(programManifest)).refused(t, http.StatusConflict), "already running")
	require.Equal(t, []string{"stack.redeploying", "service.building web"}, h.after(t, st, before))

	h.put(t, st, "web", "go", "")
	now := h.deployed(t, st)
	require.Equal(t, "live", now.Status)
	require.Equal(t, 2, now.Generation)
	require.Nil(t, now.DeployError)
	require.Equal(t, st.URLs, now.URLs)
	require.Equal(t, st.ExpiresAt, now.ExpiresAt)
	require.Equal(t, "2", h.served(t, st, "web"))
	require.Equal(t, []string{"stack.redeploying", "service.building web", "service.ready web", "stack.live"}, h.after(t, st, before))
	events := h.events(t, st)
	require.EqualValues(t, 2, last(t, events, "stack.redeploying").Data["generation"])
	require.EqualValues(t, 2, last(t, events, "service.building").Data["generation"])
	require.EqualValues(t, 2, last(t, events, "stack.live").Data["generation"])
	h.keeps(t, st, "container web-g2", "image web", "volume web-data", "network g2")
}

func TestRedeploy_DoesNotBuildWhatIsUnchanged(t *testing.T) {
	t.Parallel()
	h := start(t)
	stamp := "mkdir -p out && date +%s%N | tee out/index.html"
	fields := manifest(fmt.Sprintf(`services:
  - {name: a, runtime: node, root: a, start: node index.js, build: %q}
  - {name: b, runtime: node, root: b, start: node index.js, build: %q}
  - {name: c, runtime: static, root: c, build: %q, publish: out}`, stamp, stamp, stamp))
	tree := Tree{"a/index.js": reader["index.js"], "b/index.js": reader["index.js"], "c/x": ""}
	st := h.live(t, tree, fields)
	stamps := func() [3]string {
		return [3]string{
			h.get(t, st.url("a", "/app/a/out/index.html")).body,
			h.get(t, st.url("b", "/app/b/out/index.html")).body,
			h.get(t, st.url("c", "/")).body,
		}
	}
	first := stamps()
	for _, s := range first {
		require.NotEmpty(t, strings.TrimSpace(s))
	}
	require.Equal(t, 2, h.redeploy(t, st, tree.plus(Tree{"b/more.txt": "new"}), fields).Generation)
	second := stamps()
	require.Equal(t, first[0], second[0], "a was built again")
	require.NotEqual(t, first[1], second[1], "b was not")
	require.Equal(t, first[2], second[2], "c was built again")
	require.Contains(t, h.logs(t, st, "kind=build&service=a"), "not built again")
	require.Contains(t, h.logs(t, st, "kind=build&service=a"), "== build a (node) gen 2\n")
	require.NotContains(t, h.logs(t, st, "kind=build&service=b"), "not built again")
	require.Equal(t, 6, count(h.events(t, st), "service.building"))

	changed := manifest(strings.Replace(fields["manifest"], "name: a,", "name: a, env: {X: '1'},", 1))
	require.Equal(t, 3, h.redeploy(t, st, tree.plus(Tree{"b/more.txt": "new"}), changed).Generation)
	third := stamps()
	require.NotEqual(t, second[0], third[0], "a has a new environment and was not built again")
	require.Equal(t, second[1], third[1], "b was built again")
	require.Equal(t, second[2], third[2], "c was built again")
	h.keeps(t, st, "container a-g3", "container b-g3", "image a", "image b", "volume a-data", "volume b-data", "network g3")
	eventually(t, "only the site that was taken over is on the disk", func() error {
		sites, err := filepath.Glob(filepath.Join(h.dir, "stacks", st.hex(), "sites", "*", "*"))
		if err == nil && (len(sites) != 1 || filepath.Base(sites[0]) != "g1") {
			err = fmt.Errorf("there are %v", sites)
		}
		return err
	})
}

func TestRedeploy_AddsAndDropsServices(t *testing.T) {
	t.Parallel()
	h := start(t)
	services := func(names ...string) Fields {
		text := "services:\n"
		for _, name := range names {
			text += "  - {name: " + name + ", runtime: node, start: node server.js}\n"
		}
		return manifest(text)
	}
	st := h.live(t, program(t), services("web", "api"))
	h.put(t, st, "api", "kept", "data of api")
	now := h.redeploy(t, st, program(t), services("web", "extra"))
	require.Equal(t, map[string]string{"web": "running", "extra": "running"}, now.statuses())
	require.ElementsMatch(t, []string{"web", "extra"}, keys(last(t, h.events(t, st), "stack.live").Data["urls"].(map[string]any)))
	require.Equal(t, "hello from extra", h.get(t, now.url("extra", "/")).body)
	require.Equal(t, st.URLs["web"], now.URLs["web"])
	h.get(t, st.url("api", "/"), "Accept", "application/json").refused(t, http.StatusNotFound)
	h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID+"/logs?service=api").refused(t, http.StatusNotFound)
	h.keeps(t, st, "container web-g2", "container extra-g2", "image web", "image extra",
		"volume web-data", "volume extra-data", "volume api-data", "network g2")

	h.redeploy(t, st, program(t), services("api"))
	require.Equal(t, "data of api", h.file(t, st, "api", "kept"), "the data of a dropped service is kept")
	h.get(t, st.url("web", "/"), "Accept", "application/json").refused(t, http.StatusNotFound)
}

func TestRedeploy_ThatFailsLeavesTheOldGeneration(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t), manifest(programManifest))
	long := `for (let i = 0; i < 900; i++) console.log("line of the log " + i); process.exitCode = 7`
	for name, c := range map[string]struct {
		tree   Tree
		fields Fields
		reason string
	}{
		"build":  {program(t), manifest("services: [{name: web, runtime: node, build: 'echo it breaks; exit 9', start: node server.js}]"), "it breaks"},
		"health": {Tree{"server.js": long}, manifest(programManifest), "exited with code 7"},
	} {
		now := h.redeploy(t, st, c.tree, c.fields)
		require.Equal(t, "live", now.Status, name)
		require.Equal(t, 1, now.Generation)
		require.Contains(t, now.deployError(), c.reason)
		require.LessOrEqual(t, len(now.deployError()), 4000)
		require.Nil(t, now.Error)
		require.Equal(t, "running", now.Services[0].Status)
		events := h.events(t, st)
		require.Equal(t, "stack.deploy_failed", events[len(events)-1].Type)
		data := events[len(events)-1].Data
		require.EqualValues(t, 2, data["generation"])
		require.EqualValues(t, 1, data["serving_generation"])
		text := data["error"].(string)
		require.LessOrEqual(t, len(text), 1000)
		require.True(t, strings.HasSuffix(now.deployError(), text))
		require.Equal(t, "1", h.served(t, st, "web"))
		h.keeps(t, st, "container web-g1", "image web", "volume web-data", "network g1")
	}
	now := h.redeploy(t, st, program(t), manifest(programManifest))
	require.Equal(t, 2, now.Generation, "a failed attempt takes no number")
	require.Nil(t, now.DeployError)
	require.Equal(t, "2", h.served(t, st, "web"))
}

// locking serves while it holds a lock in $DATA_DIR, which it gives back when it is asked
// to end.
var locking = Tree{"server.js": `
const fs = require('fs'), dir = process.env.DATA_DIR;
fs.mkdirSync(dir + '/lock');
process.on('SIGTERM', () => { fs.rmdirSync(dir + '/lock'); process.exit(0); });
require('http').createServer((req, res) => res.end('generation ' + process.env.GENERATION)).listen(process.env.PORT);`}

const recreates = `{services: [{name: web, runtime: node, start: node server.js, strategy: recreate}]}`

func TestRedeploy_RecreateStopsTheOldOneFirstAndBringsItBack(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, locking, manifest(recreates))
	require.Equal(t, 2, h.redeploy(t, st, locking, manifest(recreates)).Generation)
	require.Equal(t, "generation 2", h.get(t, st.url("web", "/")).body)

	before := len(h.events(t, st))
	now := h.redeploy(t, st, Tree{"server.js": "process.exit(5)"}, manifest(recreates))
	require.Equal(t, "live", now.Status, now.reason())
	require.Equal(t, 2, now.Generation)
	require.Contains(t, now.deployError(), "exited with code 5")
	require.Equal(t, "generation 2", h.get(t, st.url("web", "/")).body)
	require.Equal(t, []string{"stack.redeploying", "service.building web", "service.ready web", "stack.deploy_failed"}, h.after(t, st, before))
	require.EqualValues(t, 2, last(t, h.events(t, st), "stack.deploy_failed").Data["serving_generation"])
	h.keeps(t, st, "container web-g2", "image web", "volume web-data", "network g2")

	// What was brought back is watched again.
	require.NoError(t, h.killProcess(t, st, "web", "TERM"))
	eventually(t, "it is restarted", func() error {
		if n := count(h.events(t, st), "service.restarted"); n == 0 {
			return fmt.Errorf("it is not")
		}
		return nil
	})
}

func TestRedeploy_ReleaseRunsOncePerGeneration(t *testing.T) {
	t.Parallel()
	h := start(t)
	release := func(command string) Fields {
		return manifest(fmt.Sprintf("services: [{name: web, runtime: node, start: node server.js, release: %q}]", command))
	}
	notes := release("echo it migrates; echo $GENERATION >> $DATA_DIR/releases")
	st := h.live(t, program(t), notes)
	require.Equal(t, "1\n", h.file(t, st, "web", "releases"))
	require.Equal(t, 2, h.redeploy(t, st, program(t), notes).Generation)
	require.Equal(t, "1\n2\n", h.file(t, st, "web", "releases"))
	require.Contains(t, h.logs(t, st, "kind=build"), "== release web gen 2\n$ echo it migrates;")
	require.Contains(t, h.logs(t, st, "kind=build"), "\nit migrates\n")

	now := h.redeploy(t, st, program(t), release("echo no such column; exit 4"))
	require.Equal(t, 2, now.Generation)
	require.Contains(t, now.deployError(), "exited with code 4")
	require.Contains(t, now.deployError(), "no such column")
	h.stop(t)
	h.stopContainer(t, h.inspect(t, st, "web").ID)
	h.run(t)
	h.mustLive(t, st)
	eventually(t, "it serves again", func() error {
		if text := h.file(t, st, "web", "releases"); text != "1\n2\n" {
			return fmt.Errorf("releases: %q", text)
		}
		return nil
	})
}

func TestRedeploy_OpenRequestsGetTheDrainTime(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_DRAIN", "15s"))
	st := h.live(t, program(t), manifest(programManifest))
	old := h.inspect(t, st, "web")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, "ws://"+st.host("web")+"/any", &websocket.DialOptions{HTTPClient: h.client})
	require.NoError(t, err)
	held := make(chan Reply, 1)
	hold := h.request(t, http.MethodGet, st.url("web", "/hold"), nil)
	go func() { held <- h.do(t, hold) }()
	eventually(t, "the request is held", func() error {
		if n := h.get(t, st.url("web", "/held")).body; n != "1" {
			return fmt.Errorf("%s are", n)
		}
		return nil
	})
	require.Equal(t, 2, h.redeploy(t, st, program(t), manifest(programManifest)).Generation)
	switched := time.UnixMicro(int64(last(t, h.events(t, st), "stack.live").CreatedAt * 1e6))
	require.Equal(t, "2", h.served(t, st, "web"))
	require.NoError(t, ws.Write(ctx, websocket.MessageText, []byte("still there")))
	_, got, err := ws.Read(ctx)
	require.NoError(t, err)
	require.Equal(t, "still there", string(got))
	for _, n := range old.NetworkSettings.Networks {
		res, err := http.Get("http://" + n.IPAddress + ":8080/release")
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
	}
	require.Equal(t, "released", (<-held).body)
	_, _, err = ws.Read(ctx)
	require.Equal(t, websocket.StatusGoingAway, websocket.CloseStatus(err), "%v", err)
	require.Greater(t, time.Since(switched), 5*time.Second, "the WebSocket did not get the drain time")
	h.keeps(t, st, "container web-g2", "image web", "volume web-data", "network g2")
}

func TestRedeploy_TheFirstWebhookBringsItsSecret(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, page("x"), nil)
	hooked := manifest("notify: {webhook: 'https://example.com/hook'}\nservices: [{name: web, runtime: static}]")
	r := h.postDeploy(t, st, page("y"), hooked)
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.True(t, strings.HasPrefix(r.stack(t).WebhookSecret, "whsec_"), r.body)
	h.deployed(t, st)
	r = h.postDeploy(t, st, page("z"), hooked)
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.NotContains(t, r.body, "webhook_secret")
	h.deployed(t, st)
	require.Equal(t, "z", h.get(t, st.url("web", "/")).body)
	left, err := os.ReadDir(filepath.Join(h.dir, "uploads"))
	require.NoError(t, err)
	require.Empty(t, left)
}
