package integration

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// admin asks the address for operators.
func (h *Host) admin(t *testing.T, path string) Reply {
	t.Helper()
	res, err := http.Get("http://" + h.env["BERTH_ADMIN_LISTEN"] + path)
	require.NoError(t, err)
	return read(t, res)
}

// metric is the value of one line of the metrics; 0 for one that is not there.
func (h *Host) metric(t *testing.T, name string) float64 {
	t.Helper()
	for line := range strings.Lines(h.admin(t, "/metrics").body) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			require.NoError(t, err)
			return n
		}
	}
	return 0
}

func TestMetrics_CountWhatHappened(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_ADMIN_LISTEN", "127.0.0.1:"+strconv.Itoa(freePort(t))))
	st := h.live(t, program(t), manifest(programManifest))
	h.deploy(t, Tree{"server.js": "process.exit(3)"}, manifest(programManifest))
	for name, want := range map[string]float64{
		`berth_stacks{status="live"}`:                                              1,
		`berth_stacks{status="failed"}`:                                            1,
		`berth_stacks{status="building"}`:                                          0,
		`berth_events_total{type="stack.live"}`:                                    1,
		`berth_events_total{type="stack.failed"}`:                                  1,
		`berth_build_duration_seconds_count{result="ok",runtime="node"}`:           2,
		`berth_http_requests_total{method="POST",route="/v0/stacks",status="201"}`: 2,
		`berth_builds_running`:                                                     0,
		`berth_builds_waiting`:                                                     0,
	} {
		require.Equal(t, want, h.metric(t, name), name)
	}
	require.Equal(t, http.StatusOK, h.get(t, st.url("web", "/")).status)
	require.Positive(t, h.metric(t, `berth_arrivals_total{host="service"}`))
	require.Positive(t, h.metric(t, `berth_engine_call_duration_seconds_count{call="POST /containers/create",result="ok"}`))
	require.Positive(t, h.metric(t, `berth_http_request_duration_seconds_count{route="/v0/stacks/{id}"}`))
	text := h.admin(t, "/metrics").body
	require.NotContains(t, text, st.hex(), "an id is a label")
	require.NotRegexp(t, regexp.MustCompile(`berth_engine[^\n]*berth-`), text, "a name is a label")
}

func TestMetrics_AreNotOnThePublicAddress(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_ADMIN_LISTEN", "127.0.0.1:"+strconv.Itoa(freePort(t))))
	for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/heap"} {
		require.Equal(t, http.StatusOK, h.admin(t, path).status, path)
		require.Equal(t, http.StatusNotFound, h.get(t, path).status, path)
	}
	require.Equal(t, http.StatusNotFound, h.admin(t, "/v0/me").status)
}
