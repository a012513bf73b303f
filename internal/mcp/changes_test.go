package mcp

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
)

func TestRedeploy_SendsWhatChanged(t *testing.T) {
	t.Parallel()
	const path = "/v0/stacks/stk_0123456789ab"
	api := &fakeAPI{answers: map[string]string{
		"GET " + path:                live,
		"POST " + path + "/deploy":   building,
		"GET " + path + "?wait=true": live,
	}}
	session := connect(t, api, nil)
	redeploy := func(args map[string]any) string {
		t.Helper()
		api.source, api.form = nil, nil
		args["stack"] = "stk_0123456789ab"
		text, failed := call(t, session, "redeploy", args)
		require.False(t, failed, text)
		return text
	}
	edit := map[string]any{"src/app.js": "new()"}

	redeploy(map[string]any{"files": edit, "delete": []string{"old", "[id].js"}})
	require.Equal(t, map[string]string{"src/app.js": "new()"}, api.source)
	require.Equal(t, []string{"1"}, api.form["base"])
	require.Equal(t, []string{`["old","[id].js"]`}, api.form["delete"])
	require.Equal(t, `"d1"`, api.match)

	redeploy(map[string]any{"delete": []string{"old"}, "base": 7})
	require.Nil(t, api.source)
	require.Equal(t, []string{"7"}, api.form["base"])

	redeploy(map[string]any{"files": edit, "whole": true})
	require.Nil(t, api.form["base"])

	redeploy(map[string]any{"manifest": "name: x"})
	require.Nil(t, api.source)
	require.Equal(t, []string{"name: x"}, api.form["manifest"])
	require.Nil(t, api.form["base"])

	api.answers["HEAD "+path+"/source"] = `404 {"detail": "no source is kept"}`
	require.Contains(t, redeploy(map[string]any{"files": edit}), "note: no source of this stack was kept")
	require.Nil(t, api.form["base"])
	_, failed := call(t, session, "redeploy", map[string]any{"stack": "stk_0123456789ab", "delete": []string{"old"}})
	require.True(t, failed)
	_, failed = call(t, session, "redeploy", map[string]any{"stack": "stk_0123456789ab", "files": edit, "whole": true, "base": 1})
	require.True(t, failed)
}

func TestReadSource_ListsFilesAndReadsOne(t *testing.T) {
	t.Parallel()
	const path = "/v0/stacks/stk_0123456789ab/source"
	api := &fakeAPI{answers: map[string]string{
		"GET " + path:                    `{"generation": 3, "files": [{"path": "run.sh", "size": 2, "mode": "0755"}, {"path": "l", "mode": "0777", "target": "run.sh"}, {"path": "a/b.js", "size": 5, "mode": "0644"}]}`,
		"GET " + path + "/a/%5Bid%5D.js": "code()",
	}}
	session := connect(t, api, nil)
	text, failed := call(t, session, "read_source", map[string]any{"stack": "stk_0123456789ab"})
	require.False(t, failed, text)
	require.Equal(t, "generation: 3\nrun.sh (2 bytes, executable)\nl -> run.sh\na/b.js (5 bytes)\nnext: call read_source with path to read a file, or redeploy with the files that you change.", text)

	api.kind = "text/plain; charset=utf-8"
	text, failed = call(t, session, "read_source", map[string]any{"stack": "stk_0123456789ab", "path": "a/[id].js"})
	require.False(t, failed, text)
	require.Equal(t, "code()", text)
	api.kind = "application/octet-stream"
	text, _ = call(t, session, "read_source", map[string]any{"stack": "stk_0123456789ab", "path": "a/[id].js"})
	require.Equal(t, "a/[id].js is not text.", text)
}

func TestReadSource_StaysInTheSource(t *testing.T) {
	t.Parallel()
	api := &fakeAPI{}
	session := connect(t, api, nil)
	for _, path := range []string{"..", "../logs", "../../..", "src/../../x", "/../x", "./../x"} {
		text, failed := call(t, session, "read_source", map[string]any{"stack": "stk_0123456789ab", "path": path})
		require.True(t, failed, text)
		require.Equal(t, "there is no "+path+" in the source\nnext: call read_source without path to list what there is", text)
	}
	require.Empty(t, api.asked)
}

func TestRedeploy_WithABaseAndNoChangesSaysSo(t *testing.T) {
	t.Parallel()
	api := &fakeAPI{}
	text, failed := call(t, connect(t, api, nil), "redeploy", map[string]any{"stack": "stk_0123456789ab", "base": 1})
	require.True(t, failed)
	require.Equal(t, "base says which generation your changes are for, and there are none: pass files, delete or manifest, or fresh to build the same source again", text)
	require.Empty(t, api.asked)
}

func TestRedeploy_WithNothingButTheStackNamesWhatItTakes(t *testing.T) {
	t.Parallel()
	api := &fakeAPI{}
	text, failed := call(t, connect(t, api, nil), "redeploy", map[string]any{"stack": "stk_0123456789ab"})
	require.True(t, failed)
	require.Equal(t, "there is nothing to deploy: pass files, delete or manifest, or fresh to build the same source again", text)
	require.Empty(t, api.asked)
}

func TestRedeploy_OverAnotherSourceAdvisesToReadIt(t *testing.T) {
	t.Parallel()
	const url = "POST /v0/stacks/stk_0123456789ab/deploy"
	s := &stack.Stack{ID: "stk_0123456789ab", Generation: stack.Generation{Number: 3, Source: stack.Source{Folder: "a", Digest: "d3"}}}
	for status, err := range map[int]error{409: s.CheckBase(2), 412: s.CheckDigest("d2")} {
		api := &fakeAPI{answers: map[string]string{url: fmt.Sprintf(`%d {"detail": %q}`, status, err)}}
		text, failed := call(t, connect(t, api, nil), "redeploy", map[string]any{"stack": s.ID, "base": 2, "files": map[string]any{"a": "b"}})
		require.True(t, failed)
		require.Contains(t, text, "generation 3 is served")
		require.Contains(t, text, "next: call read_source, and redeploy")
		require.NotContains(t, text, "GET /v0")
	}
}
