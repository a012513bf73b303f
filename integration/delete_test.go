package integration

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDelete_LeavesNothing(t *testing.T) {
	t.Parallel()
	h := start(t)
	tree := program(t).plus(Tree{"site/index.html": "hi", "package.json": `{"scripts": {"build": "echo built > $HOME/x"}}`})
	st := h.live(t, tree, manifest(`
services:
  - {name: api, runtime: node, build: npm run build, start: node server.js}
  - {name: web, runtime: static, root: site, depends_on: [api]}
`))
	require.Equal(t, http.StatusOK, h.do(t, h.request(t, http.MethodPost, st.url("api", "/write?name=a"), strings.NewReader("data"))).status)
	had := h.objects(t)
	require.Positive(t, had.containers)
	require.Positive(t, had.images)
	require.Positive(t, had.volumes)
	require.Positive(t, had.networks)
	require.Positive(t, had.files)

	r := h.delete(t, st)
	require.Equal(t, http.StatusOK, r.status)
	require.JSONEq(t, `{"id": "`+st.ID+`", "status": "deleted"}`, r.body)
	require.Equal(t, objects{}, h.objects(t), "%v", h.files(t))
}

func TestDelete_EndsTokensAndURLs(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, page("hi"), nil)
	require.Equal(t, http.StatusOK, h.delete(t, st).status)
	for _, path := range []string{"", "?wait=true", "/logs", "/events"} {
		h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID+path).refused(t, http.StatusNotFound)
	}
	h.delete(t, st).refused(t, http.StatusNotFound)
	other := h.live(t, page("other"), nil)
	h.getAs(t, st.ManageToken, "/v0/stacks/"+other.ID).refused(t, http.StatusForbidden)
	h.get(t, st.url("web", "/")).refused(t, http.StatusNotFound)
}

func TestDelete_StopsABuildWithinSeconds(t *testing.T) {
	t.Parallel()
	h := start(t)
	// A command that ignores SIGTERM, in a process of its own.
	build := `echo it builds; (trap "" TERM INT HUP; sleep 600) & trap "" TERM INT HUP; sleep 600`
	st := h.create(t, page("x"), manifest(fmt.Sprintf("services: [{name: web, runtime: node, build: %q, start: node x}]", build)))
	h.logged(t, st, "kind=build", "\nit builds\n")
	asked := time.Now()
	require.Equal(t, http.StatusOK, h.delete(t, st).status)
	require.Less(t, time.Since(asked), 4*time.Minute)
	require.Equal(t, objects{}, h.objects(t))
}

func TestDelete_StopsAHealthCheckWithinSeconds(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_HEALTH_TIMEOUT", "10m"))
	st := h.create(t, Tree{"server.js": "console.log('it runs'); setInterval(() => {}, 1000)"}, manifest(programManifest))
	h.logged(t, st, "kind=run", "\nit runs\n")
	asked := time.Now()
	require.Equal(t, http.StatusOK, h.delete(t, st).status)
	require.Less(t, time.Since(asked), 4*time.Minute)
	require.Equal(t, objects{}, h.objects(t))
}

func TestDelete_TwiceAtOnceIsOneDeletion(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t), manifest(programManifest))
	count := atOnce(4, func() int { return h.delete(t, st).status })
	require.Equal(t, map[int]int{200: 1, 404: 3}, count)
	require.Equal(t, objects{}, h.objects(t))
}

func TestDelete_AFailedStackLeavesNothing(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.deploy(t, Tree{"server.js": "process.exit(7)"}, manifest(programManifest))
	require.Equal(t, "failed", st.Status)
	eventually(t, "a failed stack keeps no container, and of images what was installed, for its next build", func() error {
		if left := h.objects(t); left.containers > 0 || left.images != 1 {
			return fmt.Errorf("there is %+v", left)
		}
		return nil
	})
	require.Equal(t, http.StatusOK, h.delete(t, st).status)
	require.Equal(t, objects{}, h.objects(t))
}

// logged waits until a log holds text, and returns the log.
func (h *Host) logged(t *testing.T, st *Stack, query, text string) string {
	t.Helper()
	var log string
	eventually(t, "the log holds "+text, func() error {
		if log = h.logs(t, st, query); !strings.Contains(log, text) {
			return fmt.Errorf("it holds:\n%s", log)
		}
		return nil
	})
	return log
}

// While one stack builds a base image, which can take minutes, the stacks that wait for
// it still end at once.
func TestDelete_DoesNotWaitForTheBaseImageThatAnotherStackMakes(t *testing.T) {
	t.Parallel()
	p := startProxy(t)
	h := start(t, through(p), short)
	fields := manifest("services: [{name: web, runtime: node, start: node server.js}]")
	making := p.add(http.MethodGet, "/images/berth/base-node:.+/json", 1, hang)
	first := h.create(t, program(t), fields)
	eventually(t, "the first stack makes the image", func() error {
		if p.count(making) == 0 {
			return errors.New("it does not")
		}
		return nil
	})
	deleted, expired := h.create(t, program(t), fields), h.create(t, program(t), fields)
	for _, st := range []*Stack{deleted, expired} {
		h.logged(t, st, "kind=build", "== build web")
	}
	require.Equal(t, http.StatusOK, h.delete(t, deleted).status)
	h.forgetStack(deleted.ID)
	h.extend(t, expired, "1s")
	h.becomes(t, expired, "expired")
	require.Equal(t, "building", h.show(t, first, "").Status)
}
