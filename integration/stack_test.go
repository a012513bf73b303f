package integration

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGetStack_ShowsTheObjectAndTheRole(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, page("hi"), nil)
	r := h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID)
	require.Equal(t, http.StatusOK, r.status)
	v := r.json(t)
	require.ElementsMatch(t, []string{
		"id", "name", "status", "claimed", "urls", "services", "created_at", "expires_at", "expired_at", "retained_until",
		"generation", "deploying", "error", "deploy_error", "deploy", "role",
	}, keys(v))
	require.Equal(t, "agent", v["role"])
	require.Equal(t, "live", v["status"])
	require.Nil(t, v["deploying"])
	require.EqualValues(t, 1, v["generation"])
	services := v["services"].([]any)
	require.Len(t, services, 1)
	require.Equal(t, map[string]any{"name": "web", "runtime": "static", "status": "running", "url": st.URLs["web"]}, services[0])
}

func TestAccess_MissingTokenThenMissingStackThenWrongToken(t *testing.T) {
	t.Parallel()
	h := start(t)
	one, two := h.live(t, page("one"), nil), h.live(t, page("two"), nil)
	const unknown = "stk_0123456789ab"
	for _, path := range []string{"", "/logs", "/events"} {
		for _, c := range []struct {
			id, authorization string
			status            int
		}{
			{one.ID, "", 401},
			{unknown, "", 401},
			{one.ID, "Bearer as_live_wrong", 401},
			{one.ID, "Bearer something", 401},
			{one.ID, "Basic " + one.ManageToken, 401},
			{unknown, "Bearer as_live_wrong", 401},
			{unknown, "Bearer " + one.ManageToken, 404},
			{"nonsense", "Bearer " + one.ManageToken, 404},
			{one.ID, "Bearer " + two.ManageToken, 403},
			{one.ID, "Bearer ast_anon_unknown", 403},
			{one.ID, "Bearer " + one.ManageToken, 200},
			{one.ID, "bearer " + one.ManageToken, 200},
		} {
			var headers []string
			if c.authorization != "" {
				headers = []string{"Authorization", c.authorization}
			}
			r := h.get(t, "/v0/stacks/"+c.id+path, headers...)
			require.Equal(t, c.status, r.status, "%s%s with %q: %s", c.id, path, c.authorization, r.body)
			if c.status != 200 {
				require.NotEmpty(t, r.detail(t))
			}
		}
	}
	for status, token := range map[int]string{401: "as_live_wrong", 403: two.ManageToken} {
		req := h.request(t, http.MethodDelete, "/v0/stacks/"+one.ID, nil, "Authorization", "Bearer "+token)
		h.do(t, req).refused(t, status)
	}
	require.Equal(t, "live", h.show(t, one, "").Status)
}
