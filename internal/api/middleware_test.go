package api

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/berth-host/berth/internal/appserver"
	"github.com/berth-host/berth/internal/slowbody"
)

// trickle is a body that comes a few bytes at a time.
func trickle(t *testing.T, size int, every time.Duration, pieces int) *body {
	client, server := net.Pipe()
	ended := make(chan struct{})
	t.Cleanup(func() { server.Close(); <-ended })
	go func() {
		defer close(ended)
		defer client.Close()
		for range pieces {
			time.Sleep(every)
			if _, err := client.Write(make([]byte, size)); err != nil {
				return
			}
		}
	}()
	return &body{stream: slowbody.NewReader(server, server.SetReadDeadline), declared: int64(size * pieces)}
}

func TestBody_MayBeSlowButMustMove(t *testing.T) {
	for name, c := range map[string]struct {
		size   int
		every  time.Duration
		pieces int
		comes  bool
	}{
		"slow and steady":     {50 << 10, 10 * time.Second, 1000, true},
		"slow at first":       {1 << 20, 50 * time.Second, 20, true},
		"silent":              {1, 2 * time.Minute, 1, false},
		"silent after a part": {10 << 20, 2 * time.Minute, 2, false},
		"a trickle":           {1, 30 * time.Second, 10_000, false},
		"a steady trickle":    {1 << 10, time.Second, 10_000, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := trickle(t, c.size, c.every, c.pieces)
				began := time.Now()
				_, err := io.Copy(io.Discard, b)
				if c.comes {
					require.NoError(t, err)
					require.Equal(t, b.declared, b.read)
					return
				}
				require.True(t, slowbody.Stalled(b.err), "%v", err)
				require.Less(t, time.Since(began), 2*slowbody.Stall, "it was held too long")
			})
		})
	}
}

func requireClientFault(t *testing.T, err error) {
	t.Helper()
	_, status := appserver.Refuse(&fasthttp.ResponseHeader{}, err)
	require.NotZero(t, status, "%v", err)
}

func TestRouter_UnknownRouteSaysWhichThereAre(t *testing.T) {
	e := newEnv(t)
	for request, want := range map[string]string{
		"POST /stacks":                         "did you mean POST /v0/stacks?",
		"POST /api/v1/stacks":                  "did you mean POST /v0/stacks?",
		"GET /v1/stacks/stk_000000000000":      "did you mean GET /v0/stacks/{id} or PATCH /v0/stacks/{id} or DELETE /v0/stacks/{id}?",
		"GET /v0/healthz":                      "did you mean GET /healthz?",
		"GET /nowhere":                         "GET /v0/stacks/{id}/logs, ",
		"GET /v0":                              "POST /v0/stacks, ",
		"GET /V0/stacks/x":                     "did you mean GET /v0/stacks/{id}",
		"GET /v0/stacks/x/y/z":                 "GET /healthz",
		"GET /v0/" + strings.Repeat("x", 5000): "…",
		"GET /<script>\"\\":                    `/%3Cscript%3E%22%5C`,
	} {
		method, path, _ := strings.Cut(request, " ")
		r := e.send(method, path, "", nil)
		require.Equal(t, 404, r.status, request)
		require.Contains(t, r.detail(), want)
		require.Less(t, len(r.body), 1000)
	}
}

func TestRouter_WrongMethodNamesTheRightOnes(t *testing.T) {
	e := newEnv(t)
	for request, allow := range map[string]string{
		"GET /v0/stacks":                      "POST, OPTIONS",
		"PUT /v0/stacks/x":                    "GET, HEAD, PATCH, DELETE, OPTIONS",
		"POST /v0/stacks/x":                   "GET, HEAD, PATCH, DELETE, OPTIONS",
		"GET /v0/stacks/x/deploy":             "POST, OPTIONS",
		"GET /v0/claim":                       "POST, OPTIONS",
		"POST /v0/me":                         "GET, HEAD, OPTIONS",
		"POST /healthz":                       "GET, HEAD, OPTIONS",
		"DELETE /v0/stacks/":                  "POST, OPTIONS",
		"PROPFIND /v0/stacks":                 "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS",
		"get /healthz":                        "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS",
		"POST /v0/stacks/x/events":            "GET, HEAD, OPTIONS",
		"POST /v0/stacks/x/services/web/data": "GET, HEAD, PUT, OPTIONS",
	} {
		method, path, _ := strings.Cut(request, " ")
		w := e.dial()
		w.printf("%s %s HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", method, path)
		r := w.reply()
		require.Equal(t, 405, r.status, request)
		require.Equal(t, allow, r.header.Get("Allow"))
		require.Contains(t, r.detail(), allow)
	}
}

// panickingStore is broken.
type panickingStore struct{ Store }

func (panickingStore) Watch(string) (<-chan struct{}, func()) { panic("lost my mind") }

func TestMiddleware_APanicIsA500WithARequestID(t *testing.T) {
	e := newEnv(t, func(c *Config) { c.Store = panickingStore{c.Store} })
	made := e.create("")
	r := e.send("GET", "/v0/stacks/"+made["id"].(string)+"?wait=true", made["manage_token"].(string), nil, "X-Request-Id", "req-7")
	require.Equal(t, 500, r.status)
	require.Contains(t, r.detail(), "req-7")
	require.NotContains(t, r.body, "mind")
	require.Contains(t, e.logged.String(), "lost my mind")
	require.Contains(t, e.logged.String(), "req-7")
	require.Equal(t, 200, e.send("GET", "/healthz", "", nil).status)
}

func TestMiddleware_WhatIsNoRequestIsAnsweredInJSON(t *testing.T) {
	e := newEnv(t)
	for text, status := range map[string]int{
		"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", appserver.MaxHead) + "\r\n\r\n": 431,
		"GET /" + strings.Repeat("x", appserver.MaxHead) + " HTTP/1.1\r\nHost: a\r\n\r\n":        431,
		"nonsense\r\n\r\n": 400,
		"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n": 400,
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n":                    400,
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n":      400,
	} {
		w := e.dial()
		w.printf("%s", text)
		r := w.reply()
		require.Equal(t, status, r.status, text[:min(60, len(text))])
		require.NotEmpty(t, r.detail())
		w.closed()
	}
}

func TestMiddleware_StringsOutliveTheirRequest(t *testing.T) {
	e := newEnv(t)
	first := e.create("", sourcePart(site(t)), textPart("name", "first"))
	w := e.dial()
	for range 20 { // the same Ctx and its buffers, over and over
		w.printf("GET /v0/stacks/stk_ffffffffffff?wait=false HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\nX-Test-Client: 10.0.0.1\r\n\r\n",
			strings.Repeat("y", 60))
		require.Equal(t, 401, w.reply().status)
	}
	s, err := e.store.Get(t.Context(), first["id"].(string))
	require.NoError(t, err)
	require.Equal(t, "first", s.Name)
	require.Equal(t, []string{"unknown"}, e.limiter.networks)
}

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
		"/v0/stacks":                     "POST, OPTIONS",
		"/v0/stacks/x":                   "GET, HEAD, PATCH, DELETE, OPTIONS",
		"/v0/stacks/x/logs":              "GET, HEAD, OPTIONS",
		"/v0/stacks/x/services/web/data": "GET, HEAD, PUT, OPTIONS",
		"*":                              "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS",
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
