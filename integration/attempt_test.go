package integration

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// postQuery sends a redeploy of a tree with a query.
func (h *Host) postQuery(t *testing.T, st *Stack, query string, tree Tree, fields Fields) Reply {
	t.Helper()
	body, contentType := form(t, archive(t, tree), fields)
	return h.do(t, h.request(t, http.MethodPost, "/v0/stacks/"+st.ID+"/deploy"+query, bytes.NewReader(body),
		"Content-Type", contentType, "Authorization", "Bearer "+st.ManageToken))
}

// An agent makes the usual mistake, reads what is wrong while the host still waits, and
// does not wait for the end of it.
func TestDeploy_TellsItsProblemAndIsSuperseded(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_HEALTH_TIMEOUT", "10m"), with("BERTH_WAIT", "10m"))
	const alone = "services: [{name: web, runtime: node, start: node index.js}]"
	st := h.live(t, serves(`res.end("one")`), manifest(alone))
	require.Equal(t, []any{1, "live"}, []any{st.Deploy.Attempt, st.Deploy.Outcome})

	answer := make(chan Reply, 1)
	go func() {
		answer <- h.postQuery(t, st, "?wait=true&fail=true", script(`require("http").createServer().listen(process.env.PORT, "127.0.0.1")`), manifest(alone))
	}()
	eventually(t, "the problem is told", func() error {
		d := h.show(t, st, "").Deploy
		switch {
		case d.Problem == nil:
			return fmt.Errorf("the deploy is %+v", d)
		case *d.Problem != "web listens on 127.0.0.1:8080; it must listen on 0.0.0.0:$PORT (8080)":
			return errors.New(*d.Problem) // of a program that is still starting
		}
		require.Equal(t, []any{2, 2, "running", "web"}, []any{d.Generation, d.Attempt, d.Outcome, *d.Service})
		return nil
	})

	refused := h.postQuery(t, st, "", serves(`res.end("two")`), manifest(alone))
	require.Contains(t, refused.refused(t, http.StatusConflict), "attempt 2, generation 2")
	require.NotEmpty(t, refused.header.Get("Retry-After"))

	// It does not wait for the end of the health check, which is longer than a client waits.
	now := h.postQuery(t, st, "?supersede=true&wait=true&fail=true", serves(`res.end("two")`), manifest(alone))
	require.Equal(t, http.StatusOK, now.status, now.body)
	d := now.stack(t).Deploy
	require.Equal(t, []any{2, 3, "live"}, []any{d.Generation, d.Attempt, d.Outcome})
	require.Nil(t, d.Phase)
	require.Equal(t, "two", h.get(t, st.url("web", "/")).body)
	first := <-answer
	require.Equal(t, "attempt 2 was superseded by attempt 3", first.refused(t, http.StatusUnprocessableEntity))

	failed := last(t, h.events(t, st), "stack.deploy_failed").Data
	require.EqualValues(t, 2, failed["attempt"])
	require.Equal(t, "attempt 2 was superseded by attempt 3", failed["error"])
	require.EqualValues(t, 3, last(t, h.events(t, st), "stack.live").Data["attempt"])
	require.Contains(t, h.logs(t, st, "kind=build&tail=1000"), "\n== attempt 3\n== build web (node) gen 2\n")
	eventually(t, "nothing is left of the others", func() error {
		if has := set(h.has(t, st)); !has["container web-g2"] || has["container web-g1"] || has["network g1"] {
			return fmt.Errorf("the engine has %v", has)
		}
		return nil
	})
}
