package integration

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync"
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
	r := h.post(t, source, nil, "?wait=true")
	require.Equal(t, http.StatusCreated, r.status, "a refused create does not count")
	st := h.settled(t, r.stack(t))

	h.stop(t)
	with("BERTH_ALLOW_UNGUARDED", "false")(h)
	h.run(t)
	require.Contains(t, h.postDeploy(t, st, page("y"), nil).refused(t, http.StatusServiceUnavailable), "claim it")
	st.ManageToken, key = "ast_anon_wrong", st.ManageToken
	h.postDeploy(t, st, page("y"), nil).refused(t, http.StatusForbidden)
	st.ManageToken = key
	require.Equal(t, "x", h.get(t, st.url("web", "/")).body, "what runs goes on")
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

// There is room for each of these uploads when it begins, but not once it is unpacked.
func TestAdmit_NoUploadsUnderWayPassTheDiskFloor(t *testing.T) {
	t.Parallel()
	h := start(t, smallDisk(t, "64m,nr_inodes=4000"), with("BERTH_DISK_FLOOR", "40MiB"), with("BERTH_UNCLAIMED_PER_IP", "100"))
	st := h.live(t, page("the site"), nil)
	before := len(h.files(t))
	many := Tree{"index.html": "x"} // 40 MiB stand for 2,560 inodes
	for i := range 2000 {
		many[fmt.Sprintf("file%d", i)] = ""
	}
	for name, tree := range map[string]Tree{
		"bytes":  {"index.html": "x", "zeros": strings.Repeat("\x00", 30<<20)},
		"inodes": many,
	} {
		body, contentType := form(t, archive(t, tree), nil)
		replies := make([]Reply, 12)
		var all sync.WaitGroup
		for i := range replies {
			path := []string{"/v0/stacks", "/v0/stacks/" + st.ID + "/deploy", "/v0/validate"}[i%3]
			headers := []string{"Content-Type", contentType}
			if i%3 == 1 {
				headers = append(headers, "Authorization", "Bearer "+st.ManageToken)
			}
			all.Go(func() { replies[i] = h.attempt(t, http.MethodPost, path, string(body), headers...) })
		}
		all.Wait()
		for i, r := range replies {
			require.Contains(t, r.refused(t, http.StatusServiceUnavailable), "disk space", "%s %d", name, i)
			require.Equal(t, "60", r.header.Get("Retry-After"))
		}
		require.Len(t, h.files(t), before, "left of what was refused")
	}
	require.Equal(t, "the site", h.get(t, st.url("web", "/")).body)
	require.Nil(t, h.show(t, st, "").Deploying)
	require.Equal(t, 2, h.redeploy(t, st, page("another"), nil).Generation, "there is room again")
}
