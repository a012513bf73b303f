package integration

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// What docs/operating.md says of pruning, on an engine of the test's own: with the
// filter nothing of Berth's goes, without it the only copy of an expired stack.
func TestPrune_SparesWhatCarriesTheLabel(t *testing.T) {
	t.Parallel()
	e := startEngine(t, "")
	h := start(t, on(e), short)
	key := h.accountCreate(t, "ana@example.com")
	st := h.live(t, perl, manifest(perlManifest))
	spared, lost := h.live(t, perl, manifest(perlManifest)), h.live(t, perl, manifest(perlManifest))
	h.says(t, st, "web", "/keep/it", "hello from web, generation 1")
	for _, expired := range []*Stack{spared, lost} {
		h.says(t, expired, "web", "/keep/it", "hello from web, generation 1")
		h.extend(t, expired, "1s")
		h.becomes(t, expired, "expired")
		h.keeps(t, expired, "image web", "image web:data")
	}
	h.byHand(t, "image", "inspect", baseImage)

	h.stop(t)
	h.byHand(t, "stop", h.inspect(t, st, "web").ID) // a stopped container does not protect its image
	h.byHand(t, "system", "prune", "--all", "--force", "--filter", "label!=berth.instance")
	h.byHand(t, "volume", "prune", "--force", "--filter", "label!=berth.instance")
	h.lacksImage(t, baseImage)
	h.keeps(t, st, serving(st)...)
	h.run(t)
	h.says(t, st, "web", "/kept", "it")
	for _, expired := range []*Stack{spared, lost} {
		h.keeps(t, expired, "image web", "image web:data")
	}
	require.Equal(t, http.StatusOK, h.claim(t, key, spared.ClaimCode, "?wait=true").status)
	h.mustLive(t, spared)
	h.says(t, spared, "web", "/kept", "it")

	h.byHand(t, "system", "prune", "--all", "--force")
	h.keeps(t, lost)
	require.Equal(t, http.StatusOK, h.claim(t, key, lost.ClaimCode, "?wait=true").status)
	require.Contains(t, h.show(t, lost, "").reason(), "its data is no longer on this host")
	h.says(t, st, "web", "/kept", "it")
	h.says(t, spared, "web", "/kept", "it")
}

// lacksImage asserts that the engine has no image of a name.
func (h *Host) lacksImage(t *testing.T, ref string) {
	t.Helper()
	docker, err := h.docker()
	require.NoError(t, err)
	defer docker.Close()
	_, err = docker.ImageInspect(t.Context(), ref)
	require.ErrorContains(t, err, "No such image")
}
