package integration

import (
	"fmt"
	"html"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const twoServices = `
services:
  - {name: api, runtime: node, build: 'echo out; echo err >&2', start: node server.js}
  - {name: web, runtime: node@24, start: node server.js, depends_on: [api]}
`

func TestLogs_OneSectionPerService(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t), manifest(twoServices))
	h.logged(t, st, "", "web starts")
	r := h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID+"/logs")
	require.True(t, strings.HasPrefix(r.header.Get("Content-Type"), "text/plain"), r.header)
	require.Equal(t, "### api (run)\napi starts\n### web (run)\nweb starts\n", r.body)
	require.Equal(t, r.body, h.logs(t, st, "kind=run"))
	require.Equal(t, "### web (run)\nweb starts\n", h.logs(t, st, "service=web"))
}

func TestLogs_ABuildSectionHasItsMarks(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t), manifest(twoServices))
	text := h.logs(t, st, "kind=build")
	api, web, found := strings.Cut(text, "### web (build)\n")
	require.True(t, found, text)
	require.True(t, strings.HasPrefix(api, "### api (build)\n"), text)
	require.Contains(t, api, "\n== build api (node) gen 1\n$ echo out; echo err >&2\nout\nerr\n== build ok\n")
	require.Contains(t, web, "\n== build web (node@24) gen 1\n== build ok\n")
	require.True(t, strings.HasPrefix(web, "plan web\n"), "the plan opens the log: %s", web)
	require.Contains(t, api, "install ")
	require.Contains(t, web, "node@24")
}

func TestLogs_OfAFailedBuildHaveNoMarkOfSuccess(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.deploy(t, page("x"), manifest("services: [{name: web, runtime: node, build: 'echo why; exit 9', start: x}]"))
	text := h.logs(t, st, "kind=build")
	require.Contains(t, text, "why\n")
	require.NotContains(t, text, "== build ok")
	require.Equal(t, "### web (run)\n", h.logs(t, st, ""))
}

func TestLogs_TailCountsLinesPerService(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t), manifest(twoServices))
	for _, service := range []string{"api", "web"} {
		require.Equal(t, 200, h.get(t, st.url(service, "/log?from=0&to=500")).status)
		h.logged(t, st, "tail=1&service="+service, "line 499\n")
	}
	require.Equal(t, "### api (run)\nline 499\n### web (run)\nline 499\n", h.logs(t, st, "tail=1"))
	require.Equal(t, "### web (run)\n"+lines(300, 500), h.logs(t, st, "service=web"), "200 lines by default")
	require.Equal(t, "### web (run)\n"+lines(200, 500), h.logs(t, st, "service=web&tail=300"))
	require.Equal(t, "### web (run)\nweb starts\n"+lines(0, 500), h.logs(t, st, "service=web&tail=100000"))
	require.Equal(t, "### web (run)\n", h.logs(t, st, "service=web&tail=0"))
}

// lines are the lines that the program logs for a range.
func lines(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

func TestLogs_RefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, Tree{"a/index.html": "a", "b/index.html": "b"},
		manifest("services: [{name: first, runtime: static, root: a}, {name: second, runtime: static, root: b}]"))
	ask := func(query string) Reply { return h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID+"/logs?"+query) }
	detail := ask("kind=all").refused(t, http.StatusBadRequest)
	require.Contains(t, detail, "run")
	require.Contains(t, detail, "build")
	ask("tail=x").refused(t, http.StatusBadRequest)
	ask("tail=-1").refused(t, http.StatusBadRequest)
	detail = ask("service=third").refused(t, http.StatusNotFound)
	require.Contains(t, detail, "first")
	require.Contains(t, detail, "second")
}

func TestLogs_RotateAtTheirLimitAndReadTheCurrentFile(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_LOG_MAX", "100KB"))
	st := h.live(t, program(t), manifest(programManifest))
	require.Equal(t, 200, h.get(t, st.url("web", "/log?from=0&to=20000")).status)
	text := h.logged(t, st, "tail=1000000", "line 19999\n")
	require.Less(t, len(text), 100_000)
	require.NotContains(t, text, "line 0\n")
	_, first, _ := strings.Cut(text, "\n")
	var from int
	_, err := fmt.Sscanf(first, "line %d", &from)
	require.NoError(t, err)
	if first != lines(from, 20000) {
		t.Errorf("of the lines from %d to 20000, %d are there: some are missing or doubled", from, strings.Count(first, "\n"))
	}
	var names []string
	for _, path := range h.files(t) {
		if strings.Contains(path, ".run.log") {
			names = append(names, path[strings.LastIndex(path, "/")+1:])
		}
	}
	require.ElementsMatch(t, []string{"web.run.log", "web.run.log.1"}, names)
}

func TestLogs_OfABuildCanBeReadWhileItRuns(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.create(t, page("x"), manifest("services: [{name: web, runtime: node, build: 'echo half way; sleep 600', start: x}]"))
	text := h.logged(t, st, "kind=build", "\nhalf way\n")
	require.NotContains(t, text, "== build ok")
	require.Equal(t, "building", h.show(t, st, "").Status)
}

// A redeploy that fails leaves its build logs, also of services that it adds.
func TestLogs_OfServicesThatAFailedRedeployAdds(t *testing.T) {
	t.Parallel()
	h := start(t)
	ana := h.person(t, "ana@example.com")
	st := h.owned(t, ana.key, page("x"))
	path := "/v0/stacks/" + st.ID + "/logs?kind=build"
	follows := h.stream(t, st.ManageToken, path)
	now := h.redeploy(t, st, page("x"), manifest("services: [{name: web, runtime: static}, {name: extra, runtime: node, build: 'echo why; exit 9', start: x}]"))
	require.Contains(t, now.deployError(), "why")
	require.Contains(t, h.logs(t, st, "kind=build&service=extra"), "\n$ echo why; exit 9\nwhy\n")
	require.Contains(t, h.logs(t, st, "kind=build"), "### extra (build)\n")
	require.NotContains(t, h.logs(t, st, ""), "extra")
	said := follows.until(t, saying(`"why"`))
	require.JSONEq(t, `{"service": "extra", "line": "why"}`, said[len(said)-1].data)
	h.stream(t, st.ManageToken, path+"&service=extra").until(t, saying(`"why"`))
	link := "/dashboard/stacks/" + st.ID + "?kind=build&amp;service=extra"
	require.Contains(t, ana.open(t, "/dashboard/stacks/"+st.ID).body, link)
	require.Contains(t, ana.open(t, html.UnescapeString(link)).body, "\nwhy\n")
	require.Contains(t, h.getAs(t, st.ManageToken, path+"&service=other").refused(t, http.StatusNotFound), "web, extra")

	// The latest build has none.
	require.Nil(t, h.redeploy(t, st, page("y"), nil).DeployError)
	h.getAs(t, st.ManageToken, path+"&service=extra").refused(t, http.StatusNotFound)
}
