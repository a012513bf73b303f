package integration

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// environ is what the service, one of program, has as its environment.
func (h *Host) environ(t *testing.T, st *Stack, service string) map[string]string {
	t.Helper()
	env := map[string]string{}
	require.NoError(t, json.Unmarshal([]byte(h.get(t, st.url(service, "/env")).body), &env))
	return env
}

// via asks a service to ask an address from inside the stack.
func (h *Host) via(t *testing.T, st *Stack, service, address string) Reply {
	t.Helper()
	return h.get(t, st.url(service, "/fetch?url="+url.QueryEscape(address)))
}

// Dependencies are built, started and healthy first, and the services of a
// stack reach each other by name.
func TestManifest_ServicesDependOnAndFindEachOther(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t), manifest(`services:
  - {name: web, runtime: node, start: node server.js, depends_on: [api, page]}
  - {name: api, runtime: node, start: node server.js, port: 3000, depends_on: [redis]}
  - {name: page, runtime: static, build: mkdir out && echo "$API_URL" > out/index.html}
  - {name: redis, runtime: node, start: node server.js}`))

	events := types(h.events(t, st))
	for _, order := range [][2]string{
		{"service.building redis", "service.building api"},
		{"service.building api", "service.building web"},
		{"service.building page", "service.building web"},
		{"service.ready redis", "service.ready api"},
		{"service.ready api", "service.ready web"},
		{"service.ready page", "service.ready web"},
	} {
		require.Contains(t, events, order[0])
		require.Less(t, slices.Index(events, order[0]), slices.Index(events, order[1]), "%v in %v", order, events)
	}

	env := h.environ(t, st, "web")
	require.Equal(t, "http://api:3000", env["API_INTERNAL_URL"])
	require.Equal(t, st.URLs["api"], env["API_URL"])
	require.Equal(t, "http://redis:8080", env["REDIS_INTERNAL_URL"])
	require.NotContains(t, env, "REDIS_URL", "clients of Redis would take this for its address")
	require.Equal(t, st.URLs["page"], env["PAGE_URL"])
	require.NotContains(t, env, "PAGE_INTERNAL_URL")
	require.NotContains(t, env, "WEB_URL")
	require.Equal(t, "hello from api", h.via(t, st, "web", env["API_INTERNAL_URL"]).body)
	require.Equal(t, "hello from web", h.via(t, st, "redis", "http://web:8080").body)
	require.Equal(t, st.URLs["api"]+"\n", h.get(t, st.url("page", "/")).body, "the address was not known to the build")

	other := h.live(t, program(t), manifest(programManifest))
	require.Equal(t, 599, h.via(t, other, "web", "http://api:3000").status, "a stack reaches a service of another one")
}

func TestManifest_Environment(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t), manifest(`name: shop
services:
  - name: web
    runtime: node
    start: node server.js
    env:
      OWN: ${services.web.url}/cb
      API: ${services.api.internal_url}/v1
      PLACE: ${services.api.host}:${services.api.port}
      ID: ${stack.name} ${stack.id}
      LITERAL: $${services.api.url} $HOME $(id) $$ 100% ${
      NUMBER: 12
      YES: true
      EMPTY: ""
      HOST: 127.1.1.1
      API_URL: mine
      PORT: 4321
      SECRET: {generate: true}
  - name: api
    runtime: node
    start: node server.js
    env:
      SECRET: {generate: true}`))
	env := h.environ(t, st, "web")
	for name, want := range map[string]string{
		"OWN": st.URLs["web"] + "/cb", "API": "http://api:8080/v1", "PLACE": "api:8080", "ID": "shop " + st.ID,
		"LITERAL": "${services.api.url} $HOME $(id) $$ 100% ${", "NUMBER": "12", "YES": "true", "EMPTY": "",
		"HOST": "127.1.1.1", "API_URL": "mine", "PORT": "4321",
		"DATA_DIR": "/data", "STACK_ID": st.ID, "STACK_NAME": "shop", "SERVICE_NAME": "web", "GENERATION": "1", "PUBLIC_URL": st.URLs["web"],
		"NODE_ENV": "production", "HOME": "/home/app",
	} {
		require.Contains(t, env, name)
		require.Equal(t, want, env[name], name)
	}
	require.GreaterOrEqual(t, len(env["SECRET"]), 22)
	api := h.environ(t, st, "api")
	require.NotEqual(t, env["SECRET"], api["SECRET"])
	require.Equal(t, "http://web:4321", api["WEB_INTERNAL_URL"])
	require.Equal(t, "0.0.0.0", api["HOST"])
	for name := range api {
		require.NotContains(t, name, "NPM_CONFIG_REGISTRY", "the operator's package hosts are for builds")
	}
}

// The release command runs once, with the data of the service, before it
// takes traffic; the service's user owns that folder.
func TestManifest_ReleasePreparesTheData(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t), manifest(`services: [{name: web, runtime: node, start: node server.js,
		release: 'echo "$SERVICE_NAME $GENERATION" >> $DATA_DIR/release; stat -c %u:%g /data; id -u; echo released'}]`))
	require.Equal(t, "web 1\n", h.get(t, st.url("web", "/read?name=release")).body)
	log := h.logs(t, st, "kind=build")
	_, release, found := strings.Cut(log, "== release web gen 1\n")
	require.True(t, found, log)
	lines := strings.Split(strings.TrimSpace(release), "\n")
	require.Len(t, lines, 4, release)
	owner, user := lines[1], lines[2]
	require.Equal(t, user+":"+user, owner)
	require.NotEqual(t, "0", user)
	require.Equal(t, "released", lines[3])

	r := h.do(t, h.request(t, http.MethodPut, st.url("web", "/write?name=mine"), strings.NewReader("kept")))
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.Equal(t, "kept", h.get(t, st.url("web", "/read?name=mine")).body)
}

func TestManifest_ReleaseThatFailsFailsTheDeploy(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.broken(t, program(t), manifest(`services: [{name: web, runtime: node, start: node server.js, release: echo no table; exit 7}]`))
	require.Equal(t, "service web: release failed: \"echo no table; exit 7\" exited with code 7; the end of its log:\nno table", st.reason())
	require.Empty(t, sections(h.logs(t, st, "kind=run"))["web"], "the service was started")
	h.leavesNothingRunning(t)
}

// sections are the parts of a log by service.
func sections(log string) map[string]string {
	parts := map[string]string{}
	for part := range strings.SplitSeq("\n"+log, "\n### ") {
		name, rest, _ := strings.Cut(part, " ")
		_, text, _ := strings.Cut(rest, "\n")
		parts[name] = text
	}
	return parts
}

// A program that cannot read $PORT says which one it has.
func TestManifest_PortOfTheProgram(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, Tree{"index.js": `require("http").createServer((req, res) => res.end(process.env.PORT)).listen(3000)`},
		manifest("services: [{name: web, runtime: node, start: node index.js, port: 3000}]"))
	require.Equal(t, "3000", h.get(t, st.url("web", "/")).body)
}

// The health check asks for its path as the outside would.
func TestManifest_HealthPath(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, Tree{"index.js": `let asked, times = 0;
require("http").createServer((req, res) => {
  if (req.url !== "/up?deep=1") return res.end(JSON.stringify({ asked, times }));
  asked ??= req.headers;
  res.writeHead(++times < 3 ? 503 : 302).end();
}).listen(process.env.PORT)`}, manifest("services: [{name: web, runtime: node, start: node index.js, health: '/up?deep=1'}]"))
	got := h.get(t, st.url("web", "/")).json(t)
	require.EqualValues(t, 3, got["times"])
	asked := got["asked"].(map[string]any)
	require.Equal(t, st.host("web"), asked["host"])
	require.Equal(t, "http", asked["x-forwarded-proto"])
}

// Commands run in the service's own folder, through a shell; "" skips a step.
func TestManifest_RootAndCommands(t *testing.T) {
	t.Parallel()
	h := start(t)
	tree := Tree{"shared/name.txt": "shared"}
	for name, content := range program(t).plus(Tree{"package.json": `{"scripts": {"build": "exit 1"}, "dependencies": {"express": "999"}}`}) {
		tree["apps/web/"+name] = content
	}
	st := h.live(t, tree, manifest(`services:
  - name: web
    root: ./apps/web/
    install: ""
    build: |
      set -e
      cp ../../shared/name.txt "$PWD/built"
    start: cat built && exec node server.js`))
	require.Equal(t, "hello from web", h.get(t, st.url("web", "/")).body)
	require.Contains(t, h.logs(t, st, "kind=run"), "shared")
	require.Regexp(t, `(?m)^  install +none +# manifest$`, h.logs(t, st, "kind=build"))
}

// The manifest may lie in the archive, under any of its names; the folder that
// the archive wraps everything in is the root.
func TestManifest_InTheArchive(t *testing.T) {
	t.Parallel()
	h := start(t)
	for name, text := range map[string]string{
		"stack.yaml":       "services:\n- name: site\n  publish: www\n",
		"stack.yml":        "services: [{name: site, publish: www}]",
		"stack.json":       `{"services": [{"name": "site", "publish": "www"}]}`,
		"guide/stack.yaml": "services: [{name: site, publish: www}]",
	} {
		dir := strings.TrimSuffix(name, name[strings.LastIndex(name, "/")+1:])
		st := h.live(t, Tree{name: text, dir + "www/index.html": "hello"}, nil)
		require.Equal(t, "hello", h.get(t, st.url("site", "/")).body, name)
		if dir != "" {
			require.Equal(t, "guide", st.Name)
		}
	}
}
