package integration

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/integration/hog"
)

// TestIsolation_ExhaustionLeavesTheNeighbourAlone sets the ceilings that are recommended
// for a public installation. The bench measures the effect on the neighbour.
func TestIsolation_ExhaustionLeavesTheNeighbourAlone(t *testing.T) {
	ceilings := func(h *Host) {
		for _, setting := range hog.Ceilings {
			name, value, _ := strings.Cut(setting, "=")
			h.env[name] = value
		}
	}
	h := start(t, asShipped, ceilings)
	neighbour := h.live(t, program(t), manifest(programManifest))
	busy := h.live(t, probe(t), manifest(hog.Manifest))
	for _, e := range hog.Exhaustions {
		t.Run(e.What, func(t *testing.T) {
			over := h.exhaust(t, busy, e)
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
	for _, st := range []*Stack{neighbour, busy} {
		require.Equal(t, "live", h.show(t, st, "").Status)
		require.NotContains(t, types(h.events(t, st)), "service.crashed web")
	}
}

// exhaust makes the hog use up a resource until it has reached its ceiling, and returns
// once it has begun. The channel receives the result of Check at the end.
func (h *Host) exhaust(t *testing.T, st *Stack, e hog.Exhaustion) <-chan error {
	t.Helper()
	res, err := h.client.Do(h.request(t, http.MethodGet, st.url("web", e.Path()), nil))
	require.NoError(t, err)
	t.Cleanup(func() { res.Body.Close() })
	require.Equal(t, http.StatusOK, res.StatusCode)
	over := make(chan error, 1)
	go func() { over <- e.Check(res.Body) }()
	return over
}
