package api

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCORS_AnyOriginMayAskWithAToken(t *testing.T) {
	e := newEnv(t)
	r := e.send("OPTIONS", "/v0/stacks", "", nil, "Origin", "https://example.com",
		"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,idempotency-key")
	require.Equal(t, 204, r.status)
	require.Empty(t, r.body)
	require.Equal(t, "*", r.header.Get("Access-Control-Allow-Origin"))
	require.Contains(t, r.header.Get("Access-Control-Allow-Methods"), "POST")
	require.Contains(t, r.header.Get("Access-Control-Allow-Headers"), "Authorization")
	require.Contains(t, r.header.Get("Access-Control-Allow-Headers"), "Idempotency-Key")
	require.Equal(t, "86400", r.header.Get("Access-Control-Max-Age"))
	require.Empty(t, r.header.Get("Access-Control-Allow-Credentials"))
	for _, path := range []string{"/healthz", "/v0/me", "/v0/none"} {
		r := e.send("GET", path, "", nil, "Origin", "https://example.com")
		require.Equal(t, "*", r.header.Get("Access-Control-Allow-Origin"), path)
		require.Contains(t, r.header.Get("Access-Control-Expose-Headers"), "Retry-After", path)
		require.Empty(t, r.header.Get("Access-Control-Allow-Credentials"), path)
	}
}

func TestOptions_NamesTheMethods(t *testing.T) {
	e := newEnv(t)
	for path, allow := range map[string]string{
		"/v0/stacks":        "POST, OPTIONS",
		"/v0/stacks/x":      "GET, HEAD, PATCH, DELETE, OPTIONS",
		"/v0/stacks/x/logs": "GET, HEAD, OPTIONS",
		"*":                 "GET, HEAD, POST, PATCH, DELETE, OPTIONS",
	} {
		w := e.dial()
		w.printf("OPTIONS %s HTTP/1.1\r\nHost: a\r\n\r\n", path)
		r := w.reply()
		require.Equal(t, 204, r.status, path)
		require.Equal(t, allow, r.header.Get("Allow"), path)
		require.Empty(t, r.header.Get("Access-Control-Allow-Methods"), path)
	}
	require.Equal(t, 404, e.send("OPTIONS", "/v0/none", "", nil).status)
}

func TestHead_IsGetWithoutTheBody(t *testing.T) {
	e := newEnv(t)
	m := e.creates("")
	path := "/v0/stacks/" + m.id
	for _, path := range []string{"/healthz", path, path + "/events"} {
		get, head := e.send("GET", path, m.token, nil), e.send("HEAD", path, m.token, nil)
		require.Equal(t, get.status, head.status, path)
		require.Empty(t, head.body, path)
		require.Equal(t, get.header.Get("Content-Type"), head.header.Get("Content-Type"), path)
		require.Equal(t, get.header.Get("Content-Length"), head.header.Get("Content-Length"), path)
	}
	require.Equal(t, 401, e.send("HEAD", path, "", nil).status)
}

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

func TestRequests_AreLoggedAndCountedByRoute(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	e := newEnv(t, func(c *Config) {
		c.Observe = func(route, method string, status int, took time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			if status < 100 || took < 0 {
				t.Errorf("%s %s took %s to %d", method, route, took, status)
			}
			seen = append(seen, method+" "+route)
		}
	})
	m := e.creates("")
	require.Equal(t, 200, e.send("GET", "/v0/stacks/"+m.id, m.token, nil, "X-Request-Id", "req-7").status)
	require.Equal(t, 404, e.send("GET", "/nowhere", "", nil).status)
	mu.Lock()
	require.Equal(t, []string{"POST /v0/stacks", "GET /v0/stacks/{id}", "GET "}, seen)
	mu.Unlock()
	var line string
	for text := range strings.Lines(e.logged.String()) {
		if strings.Contains(text, "request=req-7") {
			line = text
		}
	}
	require.Contains(t, line, "msg=request")
	require.Contains(t, line, "status=200")
	require.Contains(t, line, "stack="+m.id)
	require.NotContains(t, e.logged.String(), m.token)
}
