package integration

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/store/postgrestest"
)

// migrate runs berthd migrate, and returns what it printed.
func (h *Host) migrate(t *testing.T, args ...string) (string, error) {
	t.Helper()
	path, err := buildShipped()
	require.NoError(t, err)
	cmd := exec.Command(path, append([]string{"migrate"}, args...)...)
	cmd.Env = os.Environ()
	for name, value := range h.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// mustMigrate stops a server, moves its state from or to a database of PostgreSQL, and starts
// it on the other one, which becomes its BERTH_DATABASE_URL.
func (h *Host) mustMigrate(t *testing.T, address, becomes string, args ...string) {
	t.Helper()
	h.env["BERTH_DATABASE_URL"] = address // not an argument, since it has a password
	refused, err := h.migrate(t, args...)
	require.Error(t, err, "a server runs")
	require.Regexp(t, "^berthd: a server uses the data directory [^\n]*\n$", refused)
	h.stop(t)
	said, err := h.migrate(t, args...)
	require.NoError(t, err, said)
	require.NotContains(t, said, postgrestest.Password)
	h.env["BERTH_DATABASE_URL"] = becomes
	h.run(t)
}

// People and stacks notice nothing of it.
func TestMigrate_MovesTheStateToPostgresAndBack(t *testing.T) {
	t.Parallel()
	address, elsewhere := postgrestest.Shared(t).Database(t), t.TempDir()
	h := start(t)
	site := h.live(t, page("one"), nil)
	st := h.live(t, program(t), manifest(programManifest))
	ana := h.person(t, "ana@example.com")
	require.Equal(t, http.StatusOK, h.claim(t, ana.key, st.ClaimCode, "").status)
	process := h.inspect(t, st, "web")
	file, back := "sqlite://"+filepath.Join(h.dir, "berth.db"), "sqlite://"+filepath.Join(elsewhere, "back.db")
	checks := func(word string, move func()) {
		t.Helper()
		before := h.events(t, site)
		move()
		now := h.inspect(t, st, "web")
		require.Equal(t, process.ID+process.State.StartedAt, now.ID+now.State.StartedAt, "its process was adopted")
		require.Equal(t, http.StatusOK, h.get(t, st.url("web", "/")).status)
		require.Contains(t, h.getAs(t, ana.key, "/v0/stacks/"+st.ID+"/events").body, `"stack.claimed"`)
		require.Equal(t, http.StatusOK, ana.do(t, h.request(t, http.MethodGet, "/dashboard", nil)).status, "the session holds")
		h.redeploy(t, site, page(word), nil) // with the token of before
		require.Equal(t, word, h.get(t, site.url("web", "/")).body)
		after := h.events(t, site)
		require.Equal(t, before, after[:len(before)])
		require.Greater(t, after[len(before)].ID, before[len(before)-1].ID)
		h.live(t, page("new"), nil)
	}
	checks("two", func() { h.mustMigrate(t, address, address, "--from", file) })
	checks("three", func() { h.mustMigrate(t, address, back, "--to", back) })
}
