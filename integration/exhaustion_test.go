package integration

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// exhaustion is what the hog uses up, how much of it at least, and what keeps it
// from more.
type exhaustion struct {
	what  string
	least int
	end   string
}

var exhaustions = []exhaustion{
	{"processes", 200, "EAGAIN"},
	{"memory", 1, "killed"},
	{"descriptors", 1000, "EMFILE"},
	{"inotify", 100, "EMFILE"},
	{"disk", 64, "time"},
	{"log", 1, "time"},
}

// TestIsolation_ExhaustionLeavesTheNeighbourAlone sets the ceilings that a public
// installation is told to set. The bench measures what the neighbour feels of it.
func TestIsolation_ExhaustionLeavesTheNeighbourAlone(t *testing.T) {
	h := start(t, asShipped, with("BERTH_SERVICE_PIDS", "256"), with("BERTH_SERVICE_MEMORY", "512MiB"), with("BERTH_SERVICE_CPUS", "0.5"))
	neighbour := h.live(t, program(t), manifest(programManifest))
	hog := h.live(t, probe(t), manifest(`services: [{name: web, runtime: node, install: "", build: chmod +x probe, start: ./probe serve}]`))
	for _, e := range exhaustions {
		t.Run(e.what, func(t *testing.T) {
			over := h.exhaust(t, hog, e)
			for {
				r := h.get(t, neighbour.url("web", "/"))
				require.Equal(t, http.StatusOK, r.status, r.body)
				require.Equal(t, "hello from web", r.body)
				select {
				case err := <-over:
					require.NoError(t, err)
					return
				default:
				}
			}
		})
	}
	for _, st := range []*Stack{neighbour, hog} {
		require.Equal(t, "live", h.show(t, st, "").Status)
		require.NotContains(t, types(h.events(t, st)), "service.crashed web")
	}
}

// exhaust has the hog use something up until it has met its ceiling, and returns
// once it has begun. The channel gets a value when it is over: an error if it did
// not get as much, or something else kept it from more.
func (h *Host) exhaust(t *testing.T, hog *Stack, e exhaustion) <-chan error {
	t.Helper()
	path := fmt.Sprintf("/exhaust?what=%s&for=1s&least=%d", e.what, e.least)
	res, err := h.client.Do(h.request(t, http.MethodGet, hog.url("web", path), nil))
	require.NoError(t, err)
	t.Cleanup(func() { res.Body.Close() })
	require.Equal(t, http.StatusOK, res.StatusCode)
	over := make(chan error, 1)
	go func() {
		var got int
		var end string
		_, err := fmt.Fscan(res.Body, &got, &end)
		if err == nil && (got < e.least || end != e.end) {
			err = fmt.Errorf("the hog got %d until %s; want %d or more until %s", got, end, e.least, e.end)
		}
		over <- err
	}()
	return over
}
