package api

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/slowbody"
	"github.com/berth-host/berth/internal/stack"
)

// trickle is a body of which a few bytes come at a time.
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
	var known *stack.Error
	require.True(t, errors.As(err, &known), "%v", err)
	require.NotZero(t, statuses[known.Kind])
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
		require.Less(t, len(r.body), 700)
	}
}

func TestRouter_WrongMethodNamesTheRightOnes(t *testing.T) {
	e := newEnv(t)
	for request, allow := range map[string]string{
		"GET /v0/stacks":           "POST, OPTIONS",
		"PUT /v0/stacks/x":         "GET, HEAD, PATCH, DELETE, OPTIONS",
		"POST /v0/stacks/x":        "GET, HEAD, PATCH, DELETE, OPTIONS",
		"GET /v0/stacks/x/deploy":  "POST, OPTIONS",
		"GET /v0/claim":            "POST, OPTIONS",
		"POST /v0/me":              "GET, HEAD, OPTIONS",
		"POST /healthz":            "GET, HEAD, OPTIONS",
		"DELETE /v0/stacks/":       "POST, OPTIONS",
		"PROPFIND /v0/stacks":      "GET, HEAD, POST, PATCH, DELETE, OPTIONS",
		"get /healthz":             "GET, HEAD, POST, PATCH, DELETE, OPTIONS",
		"POST /v0/stacks/x/events": "GET, HEAD, OPTIONS",
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

func TestBorder_APanicIsA500WithARequestID(t *testing.T) {
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

func TestBorder_WhatIsNoRequestIsAnsweredInJSON(t *testing.T) {
	e := newEnv(t)
	for text, status := range map[string]int{
		"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", maxHead) + "\r\n\r\n": 431,
		"GET /" + strings.Repeat("x", maxHead) + " HTTP/1.1\r\nHost: a\r\n\r\n":        431,
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

func TestBorder_StringsOutliveTheirRequest(t *testing.T) {
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
