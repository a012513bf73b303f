package integration

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const pathsManifest = `services:
  - {name: web, runtime: static, root: site, spa: false, paths: {/api: {service: api, strip: true}, /api/whole: api, /docs: {service: docs, strip: true}}}
  - {name: api, runtime: node, start: node server.js}
  - {name: docs, runtime: static, root: docs}`

func pathsTree(t *testing.T) Tree {
	return program(t).plus(Tree{
		"site/index.html": "the page", "site/api/file.txt": "hidden by the path",
		"docs/index.html": "the docs", "docs/guide/index.html": "the guide",
	})
}

func TestPaths_LeadToTheOtherServices(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, pathsTree(t), manifest(pathsManifest))
	for path, want := range map[string]string{
		"/": "the page", "/apis": "", "/docs/": "the docs", "/docs/guide/": "the guide",
		"/api": "hello from api", "/%61pi/": "hello from api", "/api/file.txt": "", "/api/../": "",
	} {
		r := h.get(t, st.url("web", path))
		if want == "" {
			require.Equal(t, http.StatusNotFound, r.status, path)
			continue
		}
		require.Equal(t, want, r.body, path)
	}
	require.Equal(t, "hello from api", h.get(t, st.url("api", "/")).body, "the service's own URL")
	require.Equal(t, "the docs", h.get(t, st.url("docs", "/")).body)
	for path, to := range map[string]string{"/docs/guide": "/docs/guide/", "/docs": "/docs/", "/x/../docs?a=/": "/docs/?a=/"} {
		require.Equal(t, to, h.get(t, st.url("web", path)).header.Get("Location"), path)
	}

	r := h.do(t, h.request(t, http.MethodPost, st.url("web", "/api/request?a=%2F"), strings.NewReader("a body"), "X-Forwarded-Prefix", "/evil"))
	v := r.json(t)
	require.Equal(t, "/request?a=%2F", v["url"])
	require.Equal(t, "a body", v["body"])
	headers := v["headers"].(map[string]any)
	require.Equal(t, "/api", headers["x-forwarded-prefix"])
	require.Equal(t, st.host("web"), headers["x-forwarded-host"])
	require.Equal(t, st.host("web"), headers["host"])
	require.NotContains(t, h.get(t, st.url("api", "/request"), "X-Forwarded-Prefix", "/evil").json(t)["headers"], "x-forwarded-prefix")

	require.NoError(t, h.killProcess(t, st, "api", "STOP"))
	require.Equal(t, "the page", h.get(t, st.url("web", "/")).body)
	require.NoError(t, h.killProcess(t, st, "api", "CONT"))
	h.restart(t)
	require.Equal(t, "hello from api", h.get(t, st.url("web", "/api")).body, "after a restart of the server")

	now := h.redeploy(t, st, pathsTree(t), manifest(strings.ReplaceAll(pathsManifest, "/docs:", "/manual:")))
	require.Equal(t, 2, now.Generation, now.deployError())
	require.Equal(t, http.StatusNotFound, h.get(t, st.url("web", "/docs")).status)
	require.Equal(t, "the docs", h.get(t, st.url("web", "/manual/")).body)
	build := h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID+"/logs?kind=build&service=web")
	require.Contains(t, build.body, "paths         /api -> api (stripped), /api/whole -> api, /manual -> docs (stripped)")
}

func TestPaths_LoseNoRequestOverRedeploys(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_DRAIN", drainOfLoad.String()))
	tree := pathsTree(t)
	l := &load{h: h, service: "api", below: "/api", st: h.live(t, tree, manifest(pathsManifest))}
	stop := l.begin(t)
	generation := 1
	for redeploys := wanted(t, "BERTH_TEST_REDEPLOYS", 5); generation <= redeploys; generation++ {
		now := h.redeploy(t, l.st, tree.plus(Tree{"n": fmt.Sprint(generation / 2)}), manifest(pathsManifest))
		require.Equal(t, generation+1, now.Generation, now.deployError())
	}
	stop()
	t.Logf("%d redeploys: %d requests, %d streams, %d messages, %d failed",
		generation-1, l.requests.Load(), l.streams.Load(), l.messages.Load(), l.failed.Load())
	if first := l.first.Load(); first != nil {
		t.Errorf("%d failed; the first: %v", l.failed.Load(), *first)
	}
	require.Greater(t, l.streams.Load(), int64(2), "the streams were never cut")
}

func TestPaths_WrongOnesAreRefused(t *testing.T) {
	t.Parallel()
	h := start(t)
	for paths, want := range map[string]string{
		"{/api: nowhere}":            `service web: path "/api" leads to "nowhere", but there is no such service; the services are web`,
		"{/api: web}":                `service web: path "/api" leads to the service itself, which has it already; leave it out`,
		"{api: web}":                 `service web: path "api" does not begin with /; write it as in /api`,
		`{/api: web, /api/: web}`:    `service web: path "/api" is given twice`,
		`{"/a%2Fb": web}`:            `service web: path "/a%2Fb" holds a %; write the character itself, since paths are compared decoded`,
		"{/a/../b: web}":             `service web: path "/a/../b" holds a segment of dots; write the path that it leads to`,
		"{/api: {to: web}}":          `service web: path "/api": unknown field "to"; here it is "service"`,
		"{/x: {service: web, a: 1}}": `service web: path "/x": unknown field "a"; the fields are service, strip`,
	} {
		refused := h.post(t, archive(t, page("hello")), manifest("services: [{name: web, runtime: static, paths: "+paths+"}]"), "").refused(t, http.StatusUnprocessableEntity)
		require.Contains(t, strings.Split(refused, "\n"), want, paths)
	}
}

func TestPaths_TheExampleHasOneOrigin(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, folder(t, "../examples/paths"), nil)
	require.Contains(t, h.get(t, st.url("web", "/")).body, "<title>Notes</title>")
	r := h.do(t, h.request(t, http.MethodPost, st.url("web", "/api/notes"), bytes.NewReader([]byte("first"))))
	require.JSONEq(t, `["first"]`, r.body)
	require.JSONEq(t, `["first"]`, h.get(t, st.url("api", "/notes")).body)
}
