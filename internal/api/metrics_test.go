package api

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/usage"
)

// fakeMetrics has one history for all stacks.
type fakeMetrics struct {
	history usage.History
	fault   error
	asked   usage.Window
	named   []string
}

func (m *fakeMetrics) Read(_ context.Context, _ string, named []string, w usage.Window) (usage.History, error) {
	m.asked, m.named = w, named
	return m.history, m.fault
}

func TestMetrics_AreListsOfOneLength(t *testing.T) {
	e := newEnv(t)
	m := e.serves("")
	memory, data := int64(1<<20), int64(4096)
	measured := &usage.Point{
		Traffic: proxy.Counts{Answers: [6]uint64{1, 1, 10, 2, 3, 4}, In: 100, Out: 2000},
		CPU:     3 * time.Second, Over: 15 * time.Second, Memory: &memory, Data: &data,
	}
	measured.Traffic.First.Add(10 * time.Millisecond)
	e.metrics.history = usage.History{Step: 15 * time.Second, Times: []int64{300, 315, 330}, Services: map[string][]usage.Moment{
		"api": {{Point: measured, Crashes: 2, Restarts: 1}, {Crashes: 1}, {}},
		"web": {{Point: &usage.Point{}}, {}, {}},
	}}
	r := e.send("GET", "/v0/stacks/"+m.id+"/metrics?since=2h&step=5m", m.token, nil)
	require.Equal(t, 200, r.status, r.body)
	require.Equal(t, 2*time.Hour, e.metrics.asked.Since)
	require.Equal(t, 5*time.Minute, e.metrics.asked.Step.Length)
	require.Equal(t, []string{"web", "api"}, e.metrics.named)
	require.JSONEq(t, `{"step": 15, "services": {
		"api": {"times": [300, 315, 330], "requests": [21, null, null],
			"status_2xx": [10, null, null], "status_3xx": [2, null, null], "status_4xx": [3, null, null], "status_5xx": [4, null, null],
			"bytes_in": [100, null, null], "bytes_out": [2000, null, null], "restarts": [1, null, null], "crashes": [2, 1, null],
			"p50_ms": [9.728, null, null], "p95_ms": [9.728, null, null], "p99_ms": [9.728, null, null],
			"cpu_cores": [0.2, null, null], "memory_bytes": [1048576, null, null], "data_bytes": [4096, null, null]},
		"web": {"times": [300, 315, 330], "requests": [0, null, null],
			"status_2xx": [0, null, null], "status_3xx": [0, null, null], "status_4xx": [0, null, null], "status_5xx": [0, null, null],
			"bytes_in": [0, null, null], "bytes_out": [0, null, null], "restarts": [0, null, null], "crashes": [0, null, null],
			"p50_ms": [null, null, null], "p95_ms": [null, null, null], "p99_ms": [null, null, null],
			"cpu_cores": [null, null, null], "memory_bytes": [null, null, null], "data_bytes": [null, null, null]}}}`, r.body)
}

func TestMetrics_RefuseWhatIsNotKept(t *testing.T) {
	e := newEnv(t)
	m := e.serves("")
	for query, want := range map[string]string{
		"since=60":           `since: duration "60" has a number without a unit; write it as in 1h, 6h or 7d`,
		"since=31d":          "since must lie between 15s and 30 days, like 1h",
		"step=7s":            `step must be one of auto, 15s, 5m, 1h, not "7s"`,
		"since=1d&step=15s":  "steps of 15s are kept for 6h; ask for a since up to that, or leave step out",
		"since=30s&step=5m":  "since must be one step at least, 5m",
		"since=1h&step=-15s": `step must be one of auto, 15s, 5m, 1h, not "-15s"`,
	} {
		r := e.send("GET", "/v0/stacks/"+m.id+"/metrics?"+query, m.token, nil)
		require.Equal(t, 422, r.status, query)
		require.Equal(t, want, r.json()["detail"])
	}
}

func TestMetrics_AreForThoseWithAccess(t *testing.T) {
	e := newEnv(t)
	m, other := e.serves(""), e.serves("")
	for token, want := range map[string]int{"": 401, other.token: 403, m.token: 200} {
		require.Equal(t, want, e.send("GET", "/v0/stacks/"+m.id+"/metrics", token, nil).status)
	}
	e.metrics.fault = usage.ErrClosed
	r := e.send("GET", "/v0/stacks/"+m.id+"/metrics", m.token, nil)
	require.Equal(t, 503, r.status)
	require.Equal(t, "15", r.header.Get("Retry-After"))
	require.Equal(t, stack.Unavailable, stack.KindOf(e.metrics.fault))
}
