package api

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRateLimit_TellsWhatIsLeft(t *testing.T) {
	e := newEnv(t)
	e.limiter.left = 2
	post := func(parts ...part) reply {
		body, contentType := makeForm(t, parts...)
		return e.send("POST", "/v0/stacks", "", body, "Content-Type", contentType)
	}
	for i, tt := range []struct {
		parts           []part
		status          int
		remaining, wait string
	}{
		{[]part{textPart("name", "x")}, 400, "2", ""}, // not counted
		{[]part{sourcePart(site(t))}, 201, "1", ""},
		{[]part{sourcePart(site(t))}, 201, "0", ""},
		{[]part{sourcePart(site(t))}, 429, "0", "3600"},
	} {
		r := post(tt.parts...)
		require.Equal(t, tt.status, r.status, i)
		require.Equal(t, "1000", r.header.Get("RateLimit-Limit"), i)
		require.Equal(t, tt.remaining, r.header.Get("RateLimit-Remaining"), i)
		require.Equal(t, "90", r.header.Get("RateLimit-Reset"), i)
		require.Equal(t, tt.wait, r.header.Get("Retry-After"), i)
	}
	_, key := e.account("ana@example.com")
	r := e.claim(key, claimBody("x"))
	require.Equal(t, 404, r.status)
	require.Equal(t, "999", r.header.Get("RateLimit-Remaining"))
	require.Empty(t, e.send("GET", "/v0/me", key, nil).header.Get("RateLimit-Limit"))
}

func TestConflict_OfABuildSaysWhenToTryAgain(t *testing.T) {
	e := newEnv(t)
	v := e.create("")
	r := e.redeploy(v["id"].(string), v["manage_token"].(string))
	require.Equal(t, 409, r.status)
	require.Equal(t, "5", r.header.Get("Retry-After"))
}
