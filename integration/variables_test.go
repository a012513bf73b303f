package integration

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// twoReaders is a program that reads its variables when it runs, and a site whose build
// reads them.
const twoReaders = `{name: readers, services: [
  {name: api, runtime: node, start: 'test "$KEY" != bad && exec node server.js', env: {KEY: from the manifest}},
  {name: web, runtime: static, root: site, build: 'echo "$KEY" > index.html', publish: .}]}`

// sets changes the variables of a stack and waits for what becomes of it.
func (h *Host) sets(t *testing.T, st *Stack, token, change string) *Stack {
	t.Helper()
	r := h.attempt(t, http.MethodPatch, "/v0/stacks/"+st.ID+"/env?wait=true", change, "Authorization", "Bearer "+token)
	require.Equal(t, http.StatusOK, r.status, r.body)
	return h.deployed(t, st)
}

// builds counts the builds of a stack's service.
func (h *Host) builds(t *testing.T, st *Stack, service string) (n int) {
	t.Helper()
	for _, e := range h.events(t, st) {
		if e.Type == "service.building" && e.Data["service"] == service {
			n++
		}
	}
	return n
}

func TestVariables_ReachProcessesAndBuildsAndStay(t *testing.T) {
	t.Parallel()
	h := start(t, short)
	st := h.live(t, program(t).plus(Tree{"site/about.html": "about"}), manifest(twoReaders))
	key := func() string { return h.environ(t, st, "api")["KEY"] }
	page := func() string { return strings.TrimSpace(h.get(t, st.url("web", "/")).body) }

	require.Equal(t, 2, h.sets(t, st, st.ManageToken, `{"services": {"api": {"KEY": "of api"}}}`).Generation)
	require.Equal(t, "of api", key())
	require.Equal(t, 1, h.builds(t, st, "api"))
	require.Equal(t, 1, h.builds(t, st, "web"))

	require.Equal(t, 3, h.sets(t, st, st.ManageToken, `{"all": {"KEY": "of all"}}`).Generation)
	require.Equal(t, "of api", key(), "a service's own wins")
	require.Equal(t, "of all", page())
	require.Equal(t, 1, h.builds(t, st, "api"))
	require.Equal(t, 2, h.builds(t, st, "web"))

	failed := h.sets(t, st, st.ManageToken, `{"services": {"api": {"KEY": "bad"}}}`)
	require.Equal(t, 3, failed.Generation)
	require.NotEmpty(t, failed.deployError())
	require.Equal(t, "of api", key())

	require.Equal(t, 4, h.redeploy(t, st, program(t).plus(Tree{"site/about.html": "more"}), manifest(twoReaders)).Generation)
	require.Equal(t, "of api", key())
	h.expire(t, st)
	owner := h.accountCreate(t, "ana@example.com")
	require.Equal(t, http.StatusOK, h.claim(t, owner, st.ClaimCode, "?wait=true").status)
	require.Equal(t, "of api", key())
	require.Equal(t, "of all", page())

	patch := func(token string) Reply {
		return h.attempt(t, http.MethodPatch, "/v0/stacks/"+st.ID+"/env", `{"services": {"api": {"KEY": null}}, "build": false}`, "Authorization", "Bearer "+token)
	}
	require.Contains(t, patch(st.ManageToken).refused(t, http.StatusForbidden), "ask ana@example.com")
	require.Equal(t, http.StatusOK, patch(owner).status)
	h.deployed(t, st)
	require.Equal(t, "of all", key())
}
