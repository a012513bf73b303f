package integration

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHealthz_NeedsNoToken(t *testing.T) {
	h := start(t)
	r := h.get(t, "/healthz")
	require.Equal(t, http.StatusOK, r.status)
	require.JSONEq(t, `{"ok": true}`, r.body)
}
