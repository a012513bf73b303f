package integration

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAdmit_AnonymousCreatesNeedTheFirewall(t *testing.T) {
	t.Parallel()
	h := start(t, with("PATH", t.TempDir()), with("BERTH_CREATES_PER_HOUR", "1")) // where there is no iptables
	require.Contains(t, h.log.String(), "iptables-save is not installed")
	source := archive(t, page("x"))
	for range 2 {
		require.Contains(t, h.post(t, source, nil, "").refused(t, http.StatusServiceUnavailable), "firewall")
	}
	require.Empty(t, h.files(t))
	key := "Bearer " + h.accountCreate(t, "ana@example.com")
	require.Equal(t, http.StatusCreated, h.post(t, source, nil, "?wait=true", "Authorization", key).status)

	h.stop(t)
	with("BERTH_ALLOW_UNGUARDED", "true")(h)
	h.run(t)
	require.Equal(t, http.StatusCreated, h.post(t, source, nil, "?wait=true").status, "a refused create does not count")
}

func TestAdmit_NoUploadsBelowTheDiskFloor(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t), manifest(programManifest))
	pid := h.get(t, st.url("web", "/pid")).body
	h.stop(t)
	with("BERTH_DISK_FLOOR", "1000000GB")(h)
	h.run(t)
	r := h.post(t, archive(t, page("x")), nil, "")
	require.Contains(t, r.refused(t, http.StatusServiceUnavailable), "disk space")
	require.Equal(t, "60", r.header.Get("Retry-After"))
	body, contentType := form(t, archive(t, page("x")), nil)
	redeploy := h.request(t, http.MethodPost, "/v0/stacks/"+st.ID+"/deploy", bytes.NewReader(body),
		"Content-Type", contentType, "Authorization", "Bearer "+st.ManageToken)
	require.Contains(t, h.do(t, redeploy).refused(t, http.StatusServiceUnavailable), "disk space")
	require.Equal(t, pid[:3], h.get(t, st.url("web", "/pid")).body[:3], "what runs goes on")
	require.NotContains(t, types(h.events(t, st)), "stack.redeploying")
	require.Nil(t, h.show(t, st, "").Deploying)

	h.stop(t)
	with("BERTH_DISK_FLOOR", "1MB")(h)
	h.run(t)
	require.Equal(t, http.StatusCreated, h.post(t, archive(t, page("x")), nil, "").status)
}
