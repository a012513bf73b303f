package domain

import (
	"context"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/domain/dnstest"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

const (
	host    = "www.example.com"
	address = "A 198.51.100.7" // of the server
)

var testTimes = stack.DomainTimes{PendingEvery: time.Minute, Pending: 7 * 24 * time.Hour, Every: 24 * time.Hour, Grace: 72 * time.Hour}

// always admits everything.
type always struct{}

func (always) Allow(context.Context, string) bool { return true }

// env is domains with a database and the test's own DNS server.
type env struct {
	t       *testing.T
	dns     *dnstest.Server
	store   *store.Store
	domains *Domains
	routes  map[string]string // as routed last
}

func newEnv(t *testing.T, change ...func(*Config)) *env {
	t.Helper()
	db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "db"), Sealer: auth.NewSealer(auth.Key{1}), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	e := &env{t: t, dns: dnstest.Start(t), store: db}
	cfg := Config{
		Store: db, Resolver: NewResolver(e.dns.Addr), Key: auth.Key{1}, Times: testTimes,
		URLs:   stack.URLs{Base: &url.URL{Scheme: "https", Host: "berth.host.example"}, AppsDomain: "apps.example.net"},
		Route:  func(hosts map[string]string) { e.routes = hosts },
		Orders: always{}, Checks: always{}, Log: slog.New(slog.DiscardHandler),
	}
	cfg.Resolver.limit = 20 * time.Second
	for _, f := range change {
		f(&cfg)
	}
	e.domains = New(cfg)
	e.dns.Set(t, "berth.host.example", address, "AAAA 2001:db8::7")
	return e
}

// claimed returns a stack of a new account.
func (e *env) claimed(email string) *stack.Stack {
	e.t.Helper()
	account, err := e.store.CreateAccount(e.t.Context(), email, "", store.Key{Hash: []byte(email)})
	require.NoError(e.t, err)
	return e.stackOf(account.ID)
}

func (e *env) stackOf(owner string) *stack.Stack {
	e.t.Helper()
	k := stack.New("shop", []stack.Spec{{Name: "web"}, {Name: "api"}}, stack.Now())
	k.Owner, k.Status = owner, stack.Live
	require.NoError(e.t, e.store.Create(e.t.Context(), k, nil))
	return k
}

// add adds a domain and returns the value of its TXT record.
func (e *env) add(k *stack.Stack, host string) string {
	e.t.Helper()
	v, added, err := e.domains.Add(e.t.Context(), k, host, "web")
	require.NoError(e.t, err)
	require.True(e.t, added)
	return v.Records[len(v.Records)-1].Value
}

func (e *env) check(k *stack.Stack, host string) stack.Domain {
	e.t.Helper()
	v, err := e.domains.Check(e.t.Context(), k, host)
	require.NoError(e.t, err)
	return v.Domain
}

// prove enters texts as the records of a host.
func (e *env) prove(host string, texts ...string) {
	var lines []string
	for _, text := range texts {
		lines = append(lines, "TXT "+text)
	}
	e.dns.Set(e.t, "_berth."+host, lines...)
}

func TestDomain_BecomesActiveOnceItsRecordsAreThere(t *testing.T) {
	e := newEnv(t)
	k := e.claimed("ana@example.com")
	v, _, err := e.domains.Add(t.Context(), k, host, "web")
	require.NoError(t, err)
	proof := v.Records[1].Value
	require.Equal(t, []Record{{"CNAME", host, "web-" + k.Hex() + ".apps.example.net"}, {"TXT", "_berth." + host, proof}}, v.Records)
	require.Len(t, proof, 32)
	d := e.check(k, host)
	require.Equal(t, stack.DomainPending, d.Status)
	require.Contains(t, d.Reason, "_berth."+host)
	require.Contains(t, d.Reason, host+" has no address yet")

	e.prove(host, `"something else"`, proof)
	d = e.check(k, host)
	require.Equal(t, stack.DomainPending, d.Status)
	require.Equal(t, host+" has no address yet", d.Reason)

	e.dns.Set(t, host, "A 203.0.113.9")
	require.Contains(t, e.check(k, host).Reason, "leads to 203.0.113.9, and this server is at 198.51.100.7 and 2001:db8::7")
	e.dns.Set(t, host, address, "AAAA 2001:db8::99")
	require.Contains(t, e.check(k, host).Reason, "leads to 2001:db8::99")
	require.Empty(t, e.routes)

	e.dns.Set(t, host, address)
	d = e.check(k, host)
	require.Equal(t, stack.DomainActive, d.Status)
	require.Empty(t, d.Reason)
	require.Equal(t, map[string]string{host: "web-" + k.Hex() + ".apps.example.net"}, e.routes)

	k.Generation.Services = k.Generation.Services[1:]
	v, err = e.domains.Get(t.Context(), k, host)
	require.NoError(t, err)
	require.Equal(t, stack.DomainActive, v.Domain.Status)
	require.Contains(t, v.Reason, "the stack has no service web any more")
}

func TestDomain_AddedAgainIsLookedForAgain(t *testing.T) {
	e := newEnv(t)
	k := e.claimed("ana@example.com")
	e.add(k, host)
	_, err := e.store.UpdateDomain(t.Context(), k.ID, host, func(d, _ *stack.Domain) error { d.NextCheck = time.Time{}; return nil })
	require.NoError(t, err)
	v, err := e.domains.Get(t.Context(), k, host)
	require.NoError(t, err)
	require.Contains(t, v.Reason, "nobody looks for it any more: add the domain again")
	v, added, err := e.domains.Add(t.Context(), k, host, "web")
	require.NoError(t, err)
	require.False(t, added)
	require.False(t, v.Domain.NextCheck.IsZero())
	require.NotContains(t, v.Reason, "any more")
}

func TestDomain_LeadsHereByACNAMEWhateverTheAddresses(t *testing.T) {
	e := newEnv(t)
	k := e.claimed("ana@example.com")
	e.prove(host, e.add(k, host))
	e.dns.Set(t, host, "CNAME web-"+k.Hex()+".apps.example.net.")
	e.dns.Set(t, "web-"+k.Hex()+".apps.example.net", "A 203.0.113.80") // one of a changing set
	require.Equal(t, stack.DomainActive, e.check(k, host).Status)
}

func TestDomain_ACNAMEToLocalhostLeadsHereIfTheBaseURLDoes(t *testing.T) {
	for base, want := range map[string]stack.DomainStatus{"berth.host.example": stack.DomainPending, "localhost:8080": stack.DomainActive} {
		e := newEnv(t, func(cfg *Config) { cfg.URLs.Base = &url.URL{Scheme: "https", Host: base} })
		k := e.claimed("ana@example.com")
		for name, target := range map[string]string{host: "localhost", "shop.example.com": "web.localhost"} {
			e.prove(name, e.add(k, name))
			e.dns.Set(t, name, "CNAME "+target+".")
			e.dns.Set(t, target, "A 127.0.0.1")
			require.Equal(t, want, e.check(k, name).Status, "%s at %s", target, base)
		}
	}
}

func TestDomain_ARegisteredNameGetsAddresses(t *testing.T) {
	e := newEnv(t)
	v, _, err := e.domains.Add(t.Context(), e.claimed("ana@example.com"), "example.co.uk", "web")
	require.NoError(t, err)
	require.Equal(t, []Record{{"A", "example.co.uk", "198.51.100.7"}, {"AAAA", "example.co.uk", "2001:db8::7"}}, v.Records[:2])
	require.Equal(t, "TXT", v.Records[2].Type)
}

func TestList_LooksUpTheBaseURLsHostOnce(t *testing.T) {
	e := newEnv(t)
	k := e.claimed("ana@example.com")
	for _, name := range []string{"example.co.uk", "example.org", "example.edu"} {
		e.add(k, name)
	}
	before := e.dns.Asked()
	views, err := e.domains.List(t.Context(), k)
	require.NoError(t, err)
	require.Len(t, views, 3)
	require.Equal(t, "A", views[2].Records[0].Type)
	require.Equal(t, 2, e.dns.Asked()-before, "A and AAAA")
}

func TestProof_IsOfTheAccountAndTheHost(t *testing.T) {
	e := newEnv(t)
	ana, bob := e.claimed("ana@example.com"), e.claimed("bob@example.com")
	first := e.add(ana, host)
	require.NotEqual(t, first, e.add(ana, "other.example.com"))
	require.NotEqual(t, first, e.add(bob, host))
	require.NoError(t, e.domains.Remove(t.Context(), ana, host))
	require.Equal(t, first, e.add(ana, host))
}

// faults are the ways in which a DNS server gives no answer.
var faults = map[string]func(*dnstest.Server){
	"a failure": func(s *dnstest.Server) { s.Fail("_berth."+host, dns.RcodeServerFailure) },
	"a refusal": func(s *dnstest.Server) { s.Fail("_berth."+host, dns.RcodeRefused) },
	"silence":   func(s *dnstest.Server) { s.Silence("_berth." + host) },
}

func TestCheck_WithoutAnAnswerCountsAsNone(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			ana, bob := e.claimed("ana@example.com"), e.claimed("bob@example.com")
			e.dns.Set(t, host, address)
			e.prove(host, e.add(ana, host))
			active := e.check(ana, host)
			require.Equal(t, stack.DomainActive, active.Status)
			e.add(bob, host)
			e.domains.cfg.Resolver.limit = 200 * time.Millisecond // of a silence
			fault(e.dns)
			after := e.check(ana, host)
			require.Equal(t, stack.DomainActive, after.Status)
			require.Equal(t, active.CheckedAt, after.CheckedAt)
			require.True(t, after.MissingSince.IsZero())
			require.Contains(t, after.Reason, "the DNS has no answer")
			require.Equal(t, stack.DomainPending, e.check(bob, host).Status)
			require.Equal(t, stack.DomainActive, e.check(ana, host).Status)
		})
	}
}

func TestCheck_WithoutAnAnswerAboutTheAddressLetsNobodyIn(t *testing.T) {
	e := newEnv(t)
	k := e.claimed("ana@example.com")
	e.prove(host, e.add(k, host))
	e.dns.Fail(host, dns.RcodeServerFailure)
	d := e.check(k, host)
	require.Equal(t, stack.DomainPending, d.Status)
	require.True(t, d.CheckedAt.IsZero())
	e.dns.Set(t, host, address)
	require.Equal(t, stack.DomainActive, e.check(k, host).Status)
	e.dns.Fail(host, dns.RcodeServerFailure)
	require.Equal(t, stack.DomainActive, e.check(k, host).Status)
}

func TestRivals_TheOneWithTheProofGetsTheHost(t *testing.T) {
	e := newEnv(t)
	ana, bob := e.claimed("ana@example.com"), e.claimed("bob@example.com")
	e.dns.Set(t, host, address)
	hers, his := e.add(ana, host), e.add(bob, host)
	e.prove(host, hers)
	require.Equal(t, stack.DomainActive, e.check(ana, host).Status)
	require.Equal(t, stack.DomainPending, e.check(bob, host).Status)
	_, err := e.domains.SetPrimary(t.Context(), ana, host, true)
	require.NoError(t, err)

	e.prove(host, hers, his)
	d := e.check(bob, host)
	require.Equal(t, stack.DomainPending, d.Status)
	require.Contains(t, d.Reason, "of another account")
	require.NotContains(t, d.Reason, ana.ID)

	e.prove(host, his)
	require.Equal(t, stack.DomainActive, e.check(bob, host).Status)
	require.Equal(t, map[string]string{host: "web-" + bob.Hex() + ".apps.example.net"}, e.routes)
	lost, err := e.domains.Get(t.Context(), ana, host)
	require.NoError(t, err)
	require.Equal(t, stack.DomainLost, lost.Domain.Status)
	require.False(t, lost.Domain.Primary)
	require.Contains(t, lost.Domain.Reason, "another account has proved")

	e.prove(host, hers, his)
	require.Equal(t, stack.DomainLost, e.check(ana, host).Status)
	e.prove(host, hers)
	require.Equal(t, stack.DomainActive, e.check(ana, host).Status)
}

func TestRivals_OfTheSameAccountKeepWhatTheyHave(t *testing.T) {
	e := newEnv(t)
	ana := e.claimed("ana@example.com")
	other := e.stackOf(ana.Owner)
	e.dns.Set(t, host, address)
	e.prove(host, e.add(ana, host))
	e.add(other, host)
	require.Equal(t, stack.DomainActive, e.check(ana, host).Status)
	d := e.check(other, host)
	require.Equal(t, stack.DomainPending, d.Status)
	require.Contains(t, d.Reason, "active for your stack "+ana.ID)
	require.NoError(t, e.domains.Remove(t.Context(), ana, host))
	require.Empty(t, e.routes)
	require.Equal(t, stack.DomainActive, e.check(other, host).Status)
}

func TestCheck_IsLimitedByAccount(t *testing.T) {
	e := newEnv(t, func(cfg *Config) { cfg.Checks = never{} })
	k := e.claimed("ana@example.com")
	e.add(k, host)
	before := e.dns.Asked()
	_, err := e.domains.Check(t.Context(), k, host)
	require.Equal(t, stack.TooMany, stack.KindOf(err))
	require.Equal(t, before, e.dns.Asked())
}

// never admits nothing.
type never struct{}

func (never) Allow(context.Context, string) bool { return false }

func TestPrimary_IsForActiveDomainsAndOneOfAService(t *testing.T) {
	e := newEnv(t)
	k := e.claimed("ana@example.com")
	_, err := e.domains.SetPrimary(t.Context(), k, host, true)
	require.Equal(t, stack.NotFound, stack.KindOf(err))
	for _, h := range []string{host, "shop.example.com"} {
		e.dns.Set(t, h, address)
		proof := e.add(k, h)
		_, err := e.domains.SetPrimary(t.Context(), k, h, true)
		require.Equal(t, stack.Conflict, stack.KindOf(err))
		e.prove(h, proof)
		require.Equal(t, stack.DomainActive, e.check(k, h).Status)
		v, err := e.domains.SetPrimary(t.Context(), k, strings.ToUpper(h), true)
		require.NoError(t, err)
		require.True(t, v.Domain.Primary)
	}
	all, err := e.domains.List(t.Context(), k)
	require.NoError(t, err)
	require.Equal(t, []bool{true, false}, []bool{all[0].Domain.Primary, all[1].Domain.Primary}, "%v", all)
	st, err := e.store.Get(t.Context(), k.ID)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"web": "shop.example.com"}, st.PrimaryHosts)
	require.NoError(t, e.domains.Remove(t.Context(), k, "shop.example.com"))
	st, err = e.store.Get(t.Context(), k.ID)
	require.NoError(t, err)
	require.Empty(t, st.PrimaryHosts)
}

func TestAdd_OfADomainThatTheStackHasLeadsToTheService(t *testing.T) {
	e := newEnv(t)
	k := e.claimed("ana@example.com")
	e.dns.Set(t, host, address)
	e.prove(host, e.add(k, host))
	require.Equal(t, stack.DomainActive, e.check(k, host).Status)
	v, added, err := e.domains.Add(t.Context(), k, host, "api")
	require.NoError(t, err)
	require.False(t, added)
	require.Equal(t, "api", v.Domain.Service)
	require.Equal(t, map[string]string{host: "api-" + k.Hex() + ".apps.example.net"}, e.routes)
	_, _, err = e.domains.Add(t.Context(), k, host, "db")
	require.Equal(t, stack.Unprocessable, stack.KindOf(err))
	require.Contains(t, err.Error(), "the services are web, api")
	k.Generation.Services = append(k.Generation.Services, stack.Services([]stack.Spec{{Name: "db", Runtime: stack.Runtime{Name: "postgres", Version: "17"}}})...)
	_, _, err = e.domains.Add(t.Context(), k, host, "db")
	require.Equal(t, stack.Unprocessable, stack.KindOf(err))
	require.Contains(t, err.Error(), "db is a database")
}

func TestResolver_AsksOverTCPForALongAnswer(t *testing.T) {
	e := newEnv(t)
	var texts []string
	for range 60 {
		texts = append(texts, strings.Repeat("x", 100))
	}
	e.prove(host, append(texts, "last")...)
	found, err := e.domains.cfg.Resolver.Texts(t.Context(), "_berth."+host)
	require.NoError(t, err)
	require.Len(t, found, 61)
	require.Contains(t, found, "last")
}

func TestResolver_TakesNoReferralForAnAnswer(t *testing.T) {
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) { w.WriteMsg(new(dns.Msg).SetReply(r)) })}
	go server.ActivateAndServe()
	defer server.Shutdown()
	_, err = NewResolver(pc.LocalAddr().String()).Texts(t.Context(), host)
	require.ErrorContains(t, err, "only refers to others")
}

func TestResolver_JoinsThePartsOfAText(t *testing.T) {
	e := newEnv(t)
	e.dns.Set(t, host, `TXT "ab" "cd"`)
	found, err := e.domains.cfg.Resolver.Texts(t.Context(), host)
	require.NoError(t, err)
	require.Equal(t, []string{"abcd"}, found)
}
