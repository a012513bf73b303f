package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// berthd runs a command of the server's program as its operator does, and returns what it
// prints. The error is what it says.
func (h *Host) berthd(t *testing.T, stdin string, args ...string) (stdout string, err error) {
	t.Helper()
	cmd := h.command(t, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		require.Equal(t, 1, failed.ExitCode())
		err = errors.New(strings.TrimSpace(string(failed.Stderr)))
	}
	return string(out), err
}

// command returns a command of berthd with the server's settings.
func (h *Host) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path, err := buildShipped() // starts faster than the server under test
	require.NoError(t, err)
	cmd := exec.Command(path, args...)
	cmd.Env = os.Environ()
	for name, value := range h.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

// governs runs a command that must work, and reads the JSON that it prints.
func (h *Host) governs(t *testing.T, args ...string) (answer map[string]any) {
	t.Helper()
	out, err := h.berthd(t, "", append(args, "--json")...)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(out), &answer))
	return answer
}

func TestGovern_StopsAndDeletesStacks(t *testing.T) {
	t.Parallel()
	h := start(t)
	key := h.accountCreate(t, "ana@example.com")
	st := h.deployAs(t, key, program(t), manifest(programManifest))
	free := h.live(t, program(t), manifest(programManifest))
	h.put(t, st, "web", "kept", "data")
	owners := map[string]any{}
	for _, s := range h.governs(t, "stacks", "list")["stacks"].([]any) {
		s := s.(map[string]any)
		owners[s["id"].(string)] = s["owner"]
		require.Equal(t, "live", s["status"])
		require.Contains(t, s, "name")
	}
	require.Equal(t, map[string]any{st.ID: "ana@example.com", free.ID: nil}, owners)
	services := h.governs(t, "stacks", "show", st.ID)["services"].([]any)
	require.Equal(t, "web", services[0].(map[string]any)["name"])

	_, err := h.berthd(t, "", "stacks", "stop", st.ID)
	require.ErrorContains(t, err, "--reason TEXT")
	_, err = h.berthd(t, "", "stacks", "stop", st.ID, "--reason", "it mines coins")
	require.NoError(t, err)
	for range 2 {
		now := h.becomes(t, st, "failed")
		require.Equal(t, "stopped by the operator of this host: it mines coins", now.reason())
		require.Equal(t, http.StatusServiceUnavailable, h.get(t, st.url("web", "/")).status)
		h.restart(t)
	}
	h.redeploy(t, st, program(t), manifest(programManifest))
	require.Equal(t, "data", h.get(t, st.url("web", "/read?name=kept")).body)

	_, err = h.berthd(t, "no\n", "stacks", "delete", free.ID)
	require.ErrorContains(t, err, "nothing was deleted")
	_, err = h.berthd(t, free.ID+"\n", "stacks", "delete", free.ID)
	require.NoError(t, err)
	require.Equal(t, http.StatusNotFound, h.getAs(t, free.ManageToken, "/v0/stacks/"+free.ID).status)
	h.forgetStack(free.ID)

	entries := h.governs(t, "audit")["entries"].([]any)
	stopped := entries[3].(map[string]any)
	require.Equal(t, "stacks stop "+st.ID+` --reason "it mines coins"`, stopped["command"])
	require.Equal(t, "ok", stopped["result"])
	require.EqualValues(t, os.Getuid(), stopped["uid"])
	require.Contains(t, stopped, "at")
	h.stop(t)
	for _, args := range [][]string{{"stacks", "list"}, {"accounts", "list"}, {"ban", "203.0.113.7"}, {"audit"}} {
		_, err := h.berthd(t, "", args...)
		require.EqualError(t, err, "berthd: no berthd is running on "+h.dir)
	}
	h.run(t)
}

func TestGovern_ListsWhatStacksUseAndWhatIsBuilt(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_MAX_BUILDS", "1"))
	st := h.live(t, program(t), manifest(programManifest))
	h.put(t, st, "web", "kept", strings.Repeat("x", 100_000))
	bad := h.deploy(t, Tree{"server.js": "process.exit(3)"}, manifest(programManifest))
	h.create(t, program(t), builds("sleep 600"))
	h.create(t, program(t).plus(Tree{"n": "2"}), builds("sleep 600"))
	eventually(t, "what the stack uses is measured, and a build waits for another", func() error {
		list := h.governs(t, "stacks", "list")
		found := map[string]map[string]any{}
		for _, s := range list["stacks"].([]any) {
			s := s.(map[string]any)
			found[s["id"].(string)] = s
		}
		require.Contains(t, found[bad.ID]["error"], "exited with code 3")
		require.Equal(t, "failed", found[bad.ID]["status"])
		require.Nil(t, found[bad.ID]["memory_bytes"])
		memory, _ := found[st.ID]["memory_bytes"].(float64)
		data, _ := found[st.ID]["data_bytes"].(float64)
		cores, measured := found[st.ID]["cpu_cores"].(float64)
		inLine := list["builds"].(map[string]any)
		if memory < 1<<20 || data < 100_000 || !measured || cores > 2 || inLine["running"] != 1.0 || inLine["waiting"] != 1.0 {
			return fmt.Errorf("the list has %v and %v", found[st.ID], inLine)
		}
		service := h.governs(t, "stacks", "show", st.ID)["services"].([]any)[0].(map[string]any)
		if service["memory_bytes"] == nil || service["data_bytes"] == nil {
			return fmt.Errorf("the service has %v", service)
		}
		return nil
	})
}

func TestGovern_DisablesAccounts(t *testing.T) {
	t.Parallel()
	h := start(t, easy)
	ana := h.person(t, "ana@example.com")
	st, other := h.deployAs(t, ana.key, program(t), manifest(programManifest)), h.live(t, page("x"), nil)
	_, err := h.berthd(t, "", "accounts", "disable", "ana@example.com", "--reason", "it sends spam")
	require.NoError(t, err)
	const says = "the operator of this host has disabled this account: it sends spam"
	for name, r := range map[string]Reply{
		"read":   h.getAs(t, ana.key, "/v0/stacks/"+st.ID),
		"create": h.post(t, archive(t, page("x")), nil, "", "Authorization", "Bearer "+ana.key),
		"claim":  h.claim(t, ana.key, other.ClaimCode, ""),
	} {
		require.Equal(t, says, r.refused(t, http.StatusForbidden), name)
	}
	shown := ana.open(t, "/dashboard")
	require.Equal(t, http.StatusForbidden, shown.status)
	require.Contains(t, shown.body, "disabled this account: it sends spam")
	require.Equal(t, http.StatusForbidden, h.visitor(t).signIn(t, "ana@example.com", personsPassword).status)
	require.Equal(t, http.StatusOK, ana.open(t, "/signin").status)
	require.Equal(t, "hello from web", h.get(t, st.url("web", "/")).body, "its stacks go on")
	require.False(t, h.show(t, other, "").Claimed)

	h.restart(t)
	require.Equal(t, http.StatusForbidden, h.getAs(t, ana.key, "/v0/stacks/"+st.ID).status)
	_, err = h.berthd(t, "", "accounts", "disable", "ana@example.com", "--stop")
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, h.get(t, st.url("web", "/")).status)
	listed := h.governs(t, "accounts", "list")["accounts"].([]any)[0].(map[string]any)
	require.Equal(t, true, listed["disabled"])
	_, err = h.berthd(t, "", "accounts", "enable", "ana@example.com")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, ana.open(t, "/dashboard").status)
	require.Equal(t, 2, h.redeploy(t, st, program(t), manifest(programManifest)).Generation)
}

func TestGovern_BansNetworks(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_TRUSTED_PROXIES", "127.0.0.1"))
	st := h.live(t, page("the page"), nil)
	status := func(path, from string) int {
		t.Helper()
		return h.get(t, path, "X-Forwarded-For", from).status
	}
	_, err := h.berthd(t, "", "ban", "203.0.113.0/24", "--for", "24h")
	require.NoError(t, err)
	_, err = h.berthd(t, "", "ban", "2001:db8::/32")
	require.NoError(t, err)
	_, err = h.berthd(t, "", "ban", "0.0.0.0/0")
	require.ErrorContains(t, err, "every address there is")
	for range 2 {
		for _, path := range []string{st.url("web", "/"), "/healthz", "/signin", "/v0/stacks"} {
			require.Equal(t, http.StatusForbidden, status(path, "203.0.113.7"), path)
			require.Equal(t, http.StatusForbidden, status(path, "2001:db8:1::1"), path)
			require.NotEqual(t, http.StatusForbidden, status(path, "203.0.114.7"), path)
		}
		h.kill(t)
		h.run(t)
	}
	require.Len(t, h.governs(t, "ban", "--list")["bans"], 2)
	_, err = h.berthd(t, "", "unban", "203.0.113.0/24")
	require.NoError(t, err)
	require.Equal(t, "the page", h.get(t, st.url("web", "/"), "X-Forwarded-For", "203.0.113.7").body)
	_, err = h.berthd(t, "", "unban", "203.0.113.0/24")
	require.ErrorContains(t, err, "is not banned")
}
