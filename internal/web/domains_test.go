package web

import (
	"log/slog"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/domain"
	"github.com/berth-host/berth/internal/domain/dnstest"
	"github.com/berth-host/berth/internal/stack"
)

// newDomainsEnv returns pages whose domains ask the test's own DNS server.
func newDomainsEnv(t *testing.T) (*env, *dnstest.Server) {
	dns := dnstest.Start(t)
	dns.Set(t, "localhost", "A 198.51.100.7")
	e := newEnv(t, func(cfg *Config) {
		cfg.Domains = domain.New(domain.Config{
			Store: cfg.Store, Resolver: domain.NewResolver(dns.Addr), Key: cfg.Key, URLs: cfg.URLs,
			Times: stack.DomainTimes{PendingEvery: time.Minute, Pending: time.Hour, Every: time.Hour, Grace: time.Hour},
			Route: func(map[string]string) {}, Orders: unlimited{}, Checks: unlimited{}, Log: slog.New(slog.DiscardHandler),
		})
	})
	return e, dns
}

func TestDomains_AreAddedCheckedMarkedAndRemoved(t *testing.T) {
	e, dns := newDomainsEnv(t)
	b := e.signedUp(ana)
	id := e.owned(b, "guestbook")
	page := "/dashboard/stacks/" + id + "/domains"
	require.Contains(t, b.get("/dashboard/stacks/"+id).body, page)
	submit := func(path string, form url.Values) string {
		t.Helper()
		r := b.post(page+path, form)
		require.Equal(t, http.StatusSeeOther, r.status, r.body)
		require.Equal(t, page, r.header.Get("Location"))
		return b.get(page).body
	}
	host := url.Values{"host": {"www.example.com"}}
	body := submit("", url.Values{"host": {"WWW.example.com"}, "service": {"web"}})
	require.Contains(t, body, "Enter the records of www.example.com at its DNS provider. The server looks for them for a week; after that, add the domain again.")
	require.Regexp(t, `(?s)CNAME.*www\.example\.com.*web-[0-9a-f]{12}\.localhost.*TXT.*_berth\.www\.example\.com`, body)
	require.NotContains(t, body, "Use as primary")

	proof := e.key.DomainProof(e.owner(id), "www.example.com")
	require.Contains(t, body, proof)
	dns.Set(t, "_berth.www.example.com", "TXT "+proof)
	body = submit("/check", host)
	require.Contains(t, body, "www.example.com is pending.")
	require.Contains(t, body, "Www.example.com has no address yet.")
	dns.Set(t, "www.example.com", "A 198.51.100.7")
	body = submit("/check", host)
	require.Contains(t, body, "www.example.com is active.")
	require.Contains(t, body, `href="http://www.example.com:8080"`)

	body = submit("/primary", url.Values{"host": host["host"], "primary": {"yes"}})
	require.Contains(t, body, "www.example.com is the primary domain of web.")
	require.Contains(t, body, "Do not use as primary")
	body = submit("/primary", url.Values{"host": host["host"], "primary": {"no"}})
	require.Contains(t, body, "is not primary any more")
	body = submit("/remove", host)
	require.Contains(t, body, "www.example.com was removed.")
	require.NotContains(t, body, "Check now")
	require.Contains(t, submit("/remove", host), "does not have the domain")
}

func (e *env) owner(id string) string {
	e.t.Helper()
	s, err := e.store.Get(e.t.Context(), id)
	require.NoError(e.t, err)
	return s.Owner
}

func TestDomains_ARefusedOneStaysInTheForm(t *testing.T) {
	e, _ := newDomainsEnv(t)
	b := e.signedUp(ana)
	id := e.owned(b, "guestbook")
	page := "/dashboard/stacks/" + id + "/domains"
	r := b.post(page, url.Values{"host": {"*.example.com"}, "service": {"api"}})
	require.Equal(t, http.StatusUnprocessableEntity, r.status)
	require.Contains(t, r.body, "is a wildcard")
	require.Contains(t, r.body, `value="*.example.com"`)
	require.Regexp(t, `<option value="api" selected`, r.body)
	other := e.signedUp(bob)
	require.Equal(t, http.StatusNotFound, other.get(page).status)
	require.Equal(t, http.StatusNotFound, other.post(page, url.Values{"host": {"www.example.com"}, "service": {"web"}}).status)
}
