package integration

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/integration/authority"
	"github.com/berth-host/berth/internal/domain/dnstest"
)

// soonChecked makes the checks of domains so frequent that a test can wait for them.
func soonChecked(h *Host) {
	for name, value := range map[string]string{"PENDING_EVERY": "200ms", "EVERY": "500ms", "GRACE": "2s"} {
		h.env["BERTH_DOMAIN_"+name] = value
	}
}

// domainOf asks for something about the domains of a stack as its owner.
func (h *Host) domainOf(t *testing.T, key string, st *Stack, method, below, body string) Reply {
	t.Helper()
	return h.do(t, h.request(t, method, "/v0/stacks/"+st.ID+"/domains"+below, strings.NewReader(body), "Authorization", "Bearer "+key))
}

// adds adds a domain for the service web and returns the value of its TXT record.
func (h *Host) adds(t *testing.T, key string, st *Stack, host string) (proof string) {
	t.Helper()
	r := h.domainOf(t, key, st, http.MethodPost, "", `{"host": "`+host+`", "service": "web"}`)
	require.Equal(t, http.StatusCreated, r.status, r.body)
	records := r.json(t)["records"].([]any)
	return records[len(records)-1].(map[string]any)["value"].(string)
}

// awaitDomain waits until a domain has a status.
func (h *Host) awaitDomain(t *testing.T, key string, st *Stack, host, status string) map[string]any {
	t.Helper()
	var now map[string]any
	eventually(t, host+" is "+status, func() error {
		r := h.domainOf(t, key, st, http.MethodGet, "/"+host, "")
		if now = r.json(t); now["status"] != status {
			return fmt.Errorf("it is %s", r)
		}
		return nil
	})
	return now
}

// routed waits until an address answers with a status: routes change after their domain.
func (h *Host) routed(t *testing.T, url string, status int) (r Reply) {
	t.Helper()
	eventually(t, fmt.Sprint(url, " answers ", status), func() error {
		if r = h.get(t, url); r.status != status {
			return fmt.Errorf("it answers %s", r)
		}
		return nil
	})
	return r
}

// under returns a stack whose service web is asked for under a domain.
func (h *Host) under(st *Stack, host string) *Stack {
	other := *st
	other.URLs = map[string]string{"web": "http://" + host + ":" + strconv.Itoa(h.port)}
	return &other
}

func TestDomains_LeadToAServiceOfAClaimedStack(t *testing.T) {
	t.Parallel()
	server := dnstest.Start(t)
	server.Set(t, "localhost", "A 127.0.0.1")
	h := start(t, soonChecked, with("BERTH_DNS", server.Addr), with("BERTH_DRAIN", drainOfLoad.String()))
	ana, bob := h.accountCreate(t, "ana@example.com"), h.accountCreate(t, "bob@example.com")
	st := h.deployAs(t, ana, program(t), manifest(programManifest))
	const host = "www.example.com"
	own := h.under(st, host)
	require.Equal(t, http.StatusNotFound, h.get(t, own.url("web", "/")).status)
	server.Set(t, host, "CNAME "+strings.TrimSuffix(st.host("web"), ":"+strconv.Itoa(h.port))+".")
	server.Set(t, "_berth."+host, `TXT "something else"`)
	proof := h.adds(t, ana, st, host)
	eventually(t, "the record is missed", func() error {
		if now := h.domainOf(t, ana, st, http.MethodGet, "/"+host, "").json(t); now["checked_at"] == nil {
			return fmt.Errorf("it is %v", now)
		}
		return nil
	})
	require.Equal(t, http.StatusNotFound, h.get(t, own.url("web", "/")).status)
	server.Set(t, "_berth."+host, "TXT "+proof)
	h.awaitDomain(t, ana, st, host, "active")

	require.Equal(t, "hello from web", h.routed(t, own.url("web", "/"), http.StatusOK).body)
	seen := h.get(t, own.url("web", "/v0/stacks")).header
	require.Empty(t, seen.Get("X-Robots-Tag"))
	for _, path := range []string{"/dashboard", "/healthz", "/mcp", "/openapi.json"} {
		require.Equal(t, http.StatusNotFound, h.get(t, own.url("web", path)).status, "%s is the service's, which does not have it", path)
	}
	headers := h.get(t, own.url("web", "/request")).json(t)["headers"].(map[string]any)
	require.Equal(t, strings.TrimPrefix(own.URLs["web"], "http://"), headers["host"])
	require.Equal(t, headers["host"], headers["x-forwarded-host"])

	h.countsFromTheNextGeneration(t, ana, st, host)
	h.surviveUnderLoad(t, own)
	require.Equal(t, http.StatusOK, h.domainOf(t, ana, st, http.MethodPatch, "/"+host, `{"primary": true}`).status)
	h.redeploy(t, st, pathsTree(t), manifest(pathsManifest))
	require.Equal(t, own.URLs["web"], h.environ(t, &Stack{URLs: map[string]string{"api": own.url("web", "/api")}}, "api")["WEB_URL"])
	require.Equal(t, "the page", h.get(t, own.url("web", "/")).body)
	require.Equal(t, "/request?a=b", h.get(t, own.url("web", "/api/request?a=b")).json(t)["url"], "paths hold at a domain, too")
	h.redeploy(t, st, program(t), manifest(programManifest))
	h.kill(t)
	h.run(t)
	require.Equal(t, "hello from web", h.get(t, own.url("web", "/")).body, "right after a crash of the server")

	other := h.deployAs(t, bob, program(t), manifest(programManifest))
	his := h.adds(t, bob, other, host)
	server.Fail("_berth."+host, dns.RcodeServerFailure)
	time.Sleep(3 * time.Second)
	require.Equal(t, "active", h.domainOf(t, ana, st, http.MethodGet, "/"+host, "").json(t)["status"])
	server.Set(t, "_berth."+host, "TXT "+proof, "TXT "+his)
	require.Equal(t, "pending", h.domainOf(t, bob, other, http.MethodPost, "/"+host+"/check", "").json(t)["status"])
	server.Set(t, "_berth."+host, "TXT "+his)
	h.awaitDomain(t, bob, other, host, "active")
	require.Equal(t, "lost", h.domainOf(t, ana, st, http.MethodGet, "/"+host, "").json(t)["status"])
	server.Set(t, "_berth."+host, "TXT forgotten")
	h.awaitDomain(t, bob, other, host, "lost")
	h.routed(t, own.url("web", "/"), http.StatusNotFound)

	server.Set(t, "_berth."+host, "TXT "+proof)
	h.awaitDomain(t, ana, st, host, "active")
	require.Equal(t, http.StatusOK, h.delete(t, st).status)
	require.Equal(t, http.StatusNotFound, h.get(t, own.url("web", "/")).status)
	server.Set(t, "_berth."+host, "TXT "+his)
	h.awaitDomain(t, bob, other, host, "active")
	require.Equal(t, http.StatusNoContent, h.domainOf(t, bob, other, http.MethodDelete, "/"+host, "").status)
	require.Equal(t, http.StatusNotFound, h.get(t, own.url("web", "/")).status)
}

// countsFromTheNextGeneration checks which public URL the service web gets.
func (h *Host) countsFromTheNextGeneration(t *testing.T, key string, st *Stack, host string) {
	t.Helper()
	public := func() string { return h.environ(t, st, "web")["PUBLIC_URL"] }
	require.Equal(t, st.URLs["web"], public())
	require.Equal(t, http.StatusOK, h.domainOf(t, key, st, http.MethodPatch, "/"+host, `{"primary": true}`).status)
	h.stop(t)
	h.run(t)
	require.Equal(t, st.URLs["web"], public())
	h.redeploy(t, st, program(t).plus(Tree{"n": "2"}), manifest(programManifest))
	require.Equal(t, h.under(st, host).URLs["web"], public())
	require.Equal(t, st.URLs, h.show(t, st, "").URLs)
	require.Equal(t, http.StatusOK, h.domainOf(t, key, st, http.MethodPatch, "/"+host, `{"primary": false}`).status)
	require.Equal(t, h.under(st, host).URLs["web"], public())
}

// surviveUnderLoad redeploys a stack under load at its domain.
func (h *Host) surviveUnderLoad(t *testing.T, own *Stack) {
	t.Helper()
	l := &load{h: h, service: "web", st: own}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	for range 2 {
		l.constantly(ctx, &all, l.get)
		l.constantly(ctx, &all, l.post)
	}
	l.constantly(ctx, &all, l.listen)
	l.constantly(ctx, &all, l.talk)
	for n := range 3 {
		h.redeploy(t, own, program(t).plus(Tree{"n": fmt.Sprint("load", n)}), manifest(programManifest))
	}
	cancel()
	all.Wait()
	if first := l.first.Load(); first != nil {
		t.Errorf("%d of %d requests failed; the first: %v", l.failed.Load(), l.requests.Load(), *first)
	}
	require.Greater(t, l.requests.Load(), int64(50))
	require.Greater(t, l.messages.Load(), int64(10))
}

func TestDomains_GetCertificates(t *testing.T) {
	server := dnstest.Start(t)
	const host, pending, base = "www.example.com", "pending.example.com", "berth.test"
	for _, name := range []string{base, host, pending} {
		server.Set(t, name, "A 127.0.0.1")
	}
	plain := "127.0.0.1:" + strconv.Itoa(freePort(t))
	h := install(t, soonChecked, with("BERTH_TLS", "acme"), with("BERTH_DNS", server.Addr), with("BERTH_HTTP_LISTEN", plain), with("BERTH_APPS_DOMAIN", "apps.test"))
	_, plainPort, err := net.SplitHostPort(plain)
	require.NoError(t, err)
	checked, err := strconv.Atoi(plainPort)
	require.NoError(t, err)
	a := authority.Start(t, authority.Config{Address: "127.0.0.1", Resolver: server.Addr, PlainPort: checked, Port: h.port})
	trust := filepath.Join(t.TempDir(), "authority.crt")
	require.NoError(t, os.WriteFile(trust, a.Trust, 0o600))
	h.env["BERTH_BASE_URL"], h.env["BERTH_ACME_DIRECTORY"], h.env["SSL_CERT_FILE"] = "https://"+base+":"+strconv.Itoa(h.port), a.Directory, trust
	h.client.Transport.(*witness).transport.TLSClientConfig = &tls.Config{RootCAs: a.Issues}
	h.run(t)
	key := h.accountCreate(t, "ana@example.com")
	st := h.deployAs(t, key, program(t), manifest(programManifest))
	server.Set(t, strings.TrimPrefix(strings.TrimSuffix(st.URLs["web"], ":"+strconv.Itoa(h.port)), "https://"), "A 127.0.0.1")

	h.adds(t, key, st, pending)
	server.Set(t, "_berth."+host, "TXT "+h.adds(t, key, st, host))
	h.awaitDomain(t, key, st, host, "active")
	eventually(t, "there is a certificate", func() error {
		if now := h.domainOf(t, key, st, http.MethodGet, "/"+host, "").json(t); now["certificate_until"] == nil {
			return fmt.Errorf("there is none: %v", now["reason"])
		}
		return nil
	})
	require.Equal(t, "hello from web", h.get(t, "https://"+host+":"+strconv.Itoa(h.port)+"/").body)
	headers := h.get(t, "https://"+host+":"+strconv.Itoa(h.port)+"/request").json(t)["headers"].(map[string]any)
	require.Equal(t, "https", headers["x-forwarded-proto"])
	_, err = h.client.Get("https://" + pending + ":" + strconv.Itoa(h.port) + "/")
	require.Error(t, err, "a certificate for a pending domain")

	for name, want := range map[string]int{host: 308, base: 308, pending: 421, "unknown.example.com": 421} {
		r := h.plainly(t, plain, name)
		require.Equal(t, want, r.status, "%s: %s", name, r.body)
		if want == http.StatusPermanentRedirect {
			require.Equal(t, "https://"+name+":"+strconv.Itoa(h.port)+"/x?y=z", r.header.Get("Location"))
		}
	}
	kept := func() (names []string) {
		found, err := filepath.Glob(filepath.Join(h.dir, "acme", "certificates", "*", "*"))
		require.NoError(t, err)
		for _, path := range found {
			names = append(names, filepath.Base(path))
		}
		return names
	}
	require.Contains(t, kept(), host)
	require.NotContains(t, kept(), pending)
	require.Equal(t, http.StatusOK, h.delete(t, st).status)
	eventually(t, "the certificate is removed", func() error {
		if names := strings.Join(kept(), " "); strings.Contains(names, host) {
			return fmt.Errorf("there are %s", names)
		}
		return nil
	})
	require.Equal(t, http.StatusMisdirectedRequest, h.plainly(t, plain, host).status)
}

// plainly asks the plain listener for a host.
func (h *Host) plainly(t *testing.T, address, host string) Reply {
	t.Helper()
	req := h.request(t, http.MethodGet, "http://"+address+"/x?y=z", nil, "Host", host)
	client := &http.Client{CheckRedirect: h.client.CheckRedirect, Timeout: patience}
	res, err := client.Do(req)
	require.NoError(t, err)
	return read(t, res)
}
