package integration

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/require"
)

// diagnosis is what berthd doctor --json prints.
type diagnosis struct {
	OK     bool `json:"ok"`
	Checks []struct{ Name, Status, Detail, Fix string }
}

// statuses are the results by the names of the checks.
func (d diagnosis) statuses() map[string]string {
	found := map[string]string{}
	for _, c := range d.Checks {
		found[c.Name] = c.Status
	}
	return found
}

// diagnose runs berthd doctor with the settings of a server.
func (h *Host) diagnose(t *testing.T) diagnosis {
	t.Helper()
	path, err := h.binary()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), path, "doctor", "--json")
	cmd.Env = os.Environ()
	for name, value := range h.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.Output()
	var d diagnosis
	require.NoError(t, json.Unmarshal(out, &d), "%s, %v", out, err)
	exit, failed := errors.AsType[*exec.ExitError](err)
	require.Equal(t, !d.OK, failed, "%v: %s", err, out)
	if failed {
		require.Equal(t, 1, exit.ExitCode())
	}
	t.Logf("%s", out)
	return d
}

func TestDoctor_ExaminesThisMachineWithAndWithoutAServer(t *testing.T) {
	t.Parallel()
	h := install(t)
	// What this machine is like, as its clock and runc, is not in the test.
	want := map[string]string{
		"engine": "ok", "storage": "ok", "firewall": "ok", "disk": "ok", "inodes": "ok", "redis": "ok",
		"database": "ok", "certificates": "skip", "public-url": "ok",
	}
	require.Subset(t, h.diagnose(t).statuses(), want)
	require.NoFileExists(t, h.dir+"/berth.db")
	h.run(t)
	found := h.diagnose(t)
	require.Subset(t, found.statuses(), want)
	var names []string
	for _, c := range found.Checks {
		names = append(names, c.Name)
	}
	require.Equal(t, strings.Fields("engine storage firewall dns disk inodes clock redis database certificates images runc public-url"), names)

	docker, err := engine()
	require.NoError(t, err)
	defer docker.Close()
	// The tests of the command may have one meanwhile.
	eventually(t, "no network of doctor is left", func() error {
		networks, err := docker.NetworkList(t.Context(), network.ListOptions{})
		if err != nil {
			return err
		}
		for _, n := range networks {
			if strings.HasPrefix(n.Labels[labelInstance], "doctor-") {
				return errors.New(n.Name + " is")
			}
		}
		return nil
	})
}

func TestReadyz_AnswersInTheShapeOfDoctor(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_ADMIN_LISTEN", "127.0.0.1:"+strconv.Itoa(freePort(t))))
	r := h.admin(t, "/readyz")
	var d diagnosis
	require.NoError(t, json.Unmarshal([]byte(r.body), &d))
	require.Equal(t, map[bool]int{true: http.StatusOK, false: http.StatusServiceUnavailable}[d.OK], r.status, r.body)
	require.Len(t, d.Checks, 13)
	require.Subset(t, d.statuses(), map[string]string{
		"engine": "ok", "firewall": "ok", "redis": "ok", "database": "ok", "dns": "skip", "public-url": "skip",
	})
	require.Equal(t, http.StatusNotFound, h.get(t, "/readyz").status)
	require.JSONEq(t, `{"ok": true}`, h.get(t, "/healthz").body)
}
