package api

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const twoProcesses = "services: [{name: api, runtime: node, start: x}, {name: web, runtime: node, start: x}, {name: site, runtime: static}]"

func TestRestart_OfAServiceOrOfAll(t *testing.T) {
	e := newEnv(t)
	m := e.creates("", sourcePart(site(t)), textPart("manifest", twoProcesses))
	path := "/v0/stacks/" + m.id + "/restart"
	statuses := func(r reply) (all []any) {
		require.Equal(t, 200, r.status, r.body)
		require.ElementsMatch(t, stackFields, keys(r.json()))
		for _, service := range r.json()["services"].([]any) {
			all = append(all, service.(map[string]any)["status"])
		}
		return all
	}
	require.Equal(t, []any{"restarting", "running", "running"}, statuses(e.send("POST", path+"?service=api", m.token, nil)))
	require.Equal(t, []any{"restarting", "restarting", "running"}, statuses(e.send("POST", path, m.token, nil)))
}

func TestRestart_IsRefusedWithTheReason(t *testing.T) {
	e := newEnv(t)
	m := e.creates("", sourcePart(site(t)), textPart("manifest", twoProcesses))
	path := "/v0/stacks/" + m.id + "/restart"
	for query, want := range map[string]struct {
		status int
		detail string
	}{
		"?service=x":    {404, "api, web, site"},
		"?service=site": {409, "static site"},
	} {
		r := e.send("POST", path+query, m.token, nil)
		require.Equal(t, want.status, r.status, r.body)
		require.Contains(t, r.detail(), want.detail)
	}
	require.Equal(t, 401, e.send("POST", path, "", nil).status)
	require.Equal(t, 403, e.send("POST", path, e.creates("").token, nil).status)
	require.Equal(t, 200, e.redeploy(m.id, m.token).status)
	require.Equal(t, 409, e.send("POST", path, m.token, nil).status, "while a build runs")
	e.live(m.id)
	e.expire(m.id)
	r := e.send("POST", path, m.token, nil)
	require.Equal(t, 409, r.status)
	require.Contains(t, r.detail(), "expired")
}
