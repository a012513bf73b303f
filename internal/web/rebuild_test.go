package web

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRebuild_IsOfferedWhereASourceIsKept(t *testing.T) {
	e := newEnv(t)
	b := e.signedUp(ana)
	id := e.owned(b, "guestbook")
	at := "/dashboard/stacks/" + id
	require.NotContains(t, b.get(at).body, "Build fresh")
	require.Equal(t, http.StatusSeeOther, b.post(at+"/rebuild", nil).status)
	require.Contains(t, b.get(at).body, "is not kept")

	e.keepSource(id, map[string]string{"index.html": "hello"})
	require.Contains(t, b.get(at).body, "Build fresh")
	require.Equal(t, http.StatusSeeOther, b.post(at+"/rebuild", nil).status)
	page := b.get(at).body
	require.Contains(t, page, "A fresh build has begun.")
	require.NotContains(t, page, "Build fresh", "while one is under way")
}
