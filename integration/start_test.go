package integration

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A site is read before its first answer, and a start does not wait for that.
func TestStart_ReadsASiteBeforeItsFirstAnswer(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, page("the site"), nil)
	h.stop(t)
	h.run(t)
	// The index of a site that has not been asked for is not there yet.
	late := filepath.Join(h.dir, "stacks", st.hex(), "sites", "web", "g1", "late.html")
	require.NoError(t, os.WriteFile(late, []byte("late"), 0o600))
	require.Equal(t, "late", h.get(t, st.url("web", "/late")).body)
	require.Equal(t, "the site", h.get(t, st.url("web", "/")).body)
	h.onceRestored(t, st, 1)
}
