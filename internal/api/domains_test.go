package api

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/domain"
	"github.com/berth-host/berth/internal/domain/dnstest"
	"github.com/berth-host/berth/internal/stack"
)

// unlimited admits everything.
type unlimited struct{}

func (unlimited) Allow(context.Context, string) bool { return true }

// newDomainsEnv returns an API whose domains ask the test's own DNS server.
func newDomainsEnv(t *testing.T) (*env, *dnstest.Server) {
	dns := dnstest.Start(t)
	dns.Set(t, "localhost", "A 198.51.100.7")
	e := newEnv(t, func(cfg *Config) {
		cfg.Domains = domain.New(domain.Config{
			Store: cfg.Store.(domain.Store), Resolver: domain.NewResolver(dns.Addr), Key: cfg.Key, URLs: cfg.URLs,
			Times: stack.DomainTimes{PendingEvery: time.Minute, Pending: time.Hour, Every: time.Hour, Grace: time.Hour},
			Route: func(map[string]string) {}, Orders: unlimited{}, Checks: unlimited{}, Log: slog.New(slog.DiscardHandler),
		})
	})
	return e, dns
}

var domainFields = []string{"host", "service", "status", "reason", "primary", "records", "checked_at", "certificate_until"}

func (e *env) domain(method, id, below, token, body string) reply {
	e.t.Helper()
	if body == "" {
		return e.send(method, "/v0/stacks/"+id+"/domains"+below, token, nil)
	}
	return e.send(method, "/v0/stacks/"+id+"/domains"+below, token, strings.NewReader(body))
}

func TestDomains_LifeOfOne(t *testing.T) {
	e, dns := newDomainsEnv(t)
	_, key := e.account("ana@example.com")
	id := e.serves(key).id
	const add = `{"host": "WWW.example.com.", "service": "web"}`
	r := e.domain("POST", id, "", key, add)
	require.Equal(t, 201, r.status, r.body)
	v := r.json()
	require.ElementsMatch(t, domainFields, keys(v))
	require.Equal(t, []any{"www.example.com", "web", "pending", false, nil}, []any{v["host"], v["service"], v["status"], v["primary"], v["certificate_until"]})
	records := v["records"].([]any)
	require.Equal(t, map[string]any{"type": "CNAME", "name": "www.example.com", "value": "web-" + strings.TrimPrefix(id, "stk_") + ".localhost"}, records[0])
	proof := records[1].(map[string]any)
	require.Equal(t, []any{"TXT", "_berth.www.example.com"}, []any{proof["type"], proof["name"]})
	require.Equal(t, 200, e.domain("POST", id, "", key, add).status)

	r = e.domain("PATCH", id, "/www.example.com", key, `{"primary": true}`)
	require.Equal(t, 409, r.status)
	dns.Set(t, "_berth.www.example.com", "TXT "+proof["value"].(string))
	dns.Set(t, "www.example.com", "A 198.51.100.7")
	r = e.domain("POST", id, "/www.example.com/check", key, "")
	require.Equal(t, 200, r.status, r.body)
	require.Equal(t, []any{"active", nil}, []any{r.json()["status"], r.json()["reason"]})
	require.Positive(t, r.json()["checked_at"])
	r = e.domain("PATCH", id, "/www.example.com", key, `{"primary": true}`)
	require.Equal(t, 200, r.status, r.body)
	require.Equal(t, true, r.json()["primary"])
	require.Equal(t, r.json(), e.domain("GET", id, "/WWW.Example.com", key, "").json())
	all := e.domain("GET", id, "", key, "").json()["domains"].([]any)
	require.Equal(t, []any{any(r.json())}, all)

	r = e.domain("DELETE", id, "/www.example.com", key, "")
	require.Equal(t, 204, r.status)
	require.Empty(t, r.body)
	require.Equal(t, 404, e.domain("DELETE", id, "/www.example.com", key, "").status)
	require.JSONEq(t, `{"domains": []}`, e.domain("GET", id, "", key, "").body)
}

func TestDomains_AreForTheOwnerOfAClaimedStack(t *testing.T) {
	e, _ := newDomainsEnv(t)
	_, key := e.account("ana@example.com")
	_, stranger := e.account("bob@example.com")
	m := e.creates("")
	const add = `{"host": "www.example.com", "service": "web"}`
	calls := []struct{ method, below, body string }{
		{"GET", "", ""},
		{"POST", "", add},
		{"GET", "/www.example.com", ""},
		{"PATCH", "/www.example.com", `{"primary": false}`},
		{"POST", "/www.example.com/check", ""},
		{"DELETE", "/www.example.com", ""},
	}
	for _, call := range calls {
		r := e.domain(call.method, m.id, call.below, m.token, call.body)
		require.Equal(t, 409, r.status, r.body)
		require.Contains(t, r.body, "the stack is not claimed")
	}
	require.Equal(t, 200, e.claim(key, claimBody(m.code)).status)
	for _, call := range calls {
		r := e.domain(call.method, m.id, call.below, m.token, call.body)
		require.Equal(t, 403, r.status, r.body)
		require.Contains(t, r.body, "ask ana@example.com to do it")
		require.Equal(t, 403, e.domain(call.method, m.id, call.below, stranger, call.body).status)
		require.Equal(t, 401, e.domain(call.method, m.id, call.below, "", call.body).status)
	}
	require.JSONEq(t, `{"domains": []}`, e.domain("GET", m.id, "", key, "").body)
}

func TestDomains_BadInputSaysWhatToDo(t *testing.T) {
	e, _ := newDomainsEnv(t)
	_, key := e.account("ana@example.com")
	id := e.serves(key).id
	for body, want := range map[string]int{
		``: 400, `[]`: 400, `{}`: 400, `{"host": "www.example.com"}`: 400, `{"host": "www.example.com", "service": null}`: 400, `{"host": 1, "service": "web"}`: 400,
		`{"host": "www.example.com", "service": ["web"]}`: 400, `{"host": "a.example.com", "service": "web", "primary": true}`: 400,
		`{"host": "*.example.com", "service": "web"}`: 422, `{"host": "www.example.com:80", "service": "web"}`: 422, `{"host": "com", "service": "web"}`: 422,
		`{"host": "web.localhost", "service": "web"}`: 422, `{"host": "www.example.com", "service": "db"}`: 422, `{"host": "` + strings.Repeat("x", 20000) + `", "service": "web"}`: 413,
	} {
		r := e.send("POST", "/v0/stacks/"+id+"/domains", key, strings.NewReader(body))
		require.Equal(t, want, r.status, "%.80s: %s", body, r.body)
	}
	for _, body := range []string{``, `{}`, `{"primary": null}`, `{"primary": "true"}`, `{"primary": 1}`, `{"primary": true, "x": 1}`} {
		r := e.send("PATCH", "/v0/stacks/"+id+"/domains/www.example.com", key, strings.NewReader(body))
		require.Equal(t, 400, r.status, body)
	}
	for _, call := range [][2]string{{"GET", ""}, {"DELETE", ""}, {"POST", "/check"}} {
		r := e.domain(call[0], id, "/www.example.com"+call[1], key, "")
		require.Equal(t, 404, r.status)
		require.Contains(t, r.body, "does not have the domain www.example.com")
	}
	require.JSONEq(t, `{"domains": []}`, e.domain("GET", id, "", key, "").body)
}

func TestDomains_TheTwentyFirstIsAConflict(t *testing.T) {
	e, _ := newDomainsEnv(t)
	_, key := e.account("ana@example.com")
	id := e.serves(key).id
	for i := range stack.MaxDomains {
		require.Equal(t, 201, e.domain("POST", id, "", key, `{"host": "a`+string(rune('a'+i))+`.example.com", "service": "api"}`).status)
	}
	r := e.domain("POST", id, "", key, `{"host": "one.more.example.com", "service": "api"}`)
	require.Equal(t, 409, r.status)
	require.Contains(t, r.body, "the stack has 20 domains")
}
