package server

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/edge"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/redis"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// withDomains returns a server with what its domains need, and a stack with an active one.
func withDomains(t *testing.T, host string) (*Server, *stack.Stack) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "berth.db"), Sealer: auth.NewSealer(auth.Key{}), Log: log})
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	account, err := db.CreateAccount(t.Context(), "ana@example.com", "", store.Key{Hash: []byte("hash")})
	require.NoError(t, err)
	st := stack.New("shop", []stack.Spec{{Name: "web"}}, stack.Now())
	st.Owner = account.ID
	require.NoError(t, db.Create(t.Context(), st, nil))
	_, _, err = db.AddDomain(t.Context(), stack.NewDomain(st.ID, host, "web", stack.Now()))
	require.NoError(t, err)
	_, err = db.UpdateDomain(t.Context(), st.ID, host, func(d, _ *stack.Domain) error { d.Status = stack.DomainActive; return nil })
	require.NoError(t, err)
	client, err := redis.Open(t.Context(), "embedded", log)
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	s := &Server{
		store: db, redis: client, routes: &proxy.Routes{}, log: log,
		cfg: Config{BaseURL: &url.URL{Scheme: "https", Host: "berth.test:8443"}, AppsDomain: "apps.test", DomainTimes: stack.DomainTimes{PendingEvery: time.Minute}},
	}
	require.NoError(t, s.openDomains(t.Context(), auth.Key{1}))
	return s, st
}

func TestDomains_OfTheDatabaseAreRoutedBeforeAnythingIsServed(t *testing.T) {
	s, _ := withDomains(t, "www.example.com")
	require.True(t, s.routes.HasDomain("www.example.com"))
	require.True(t, s.hasName(t.Context(), "www.example.com"))
	require.False(t, s.hasName(t.Context(), "example.com"))
}

func TestStanding_OfADomainDependsOnItsCertificate(t *testing.T) {
	s, st := withDomains(t, "www.example.com")
	s.routes.Set(st.ID, proxy.Entry{Status: stack.Live, Hosts: map[string]proxy.Service{s.urls().Hostname(st, "web"): {Name: "web"}}})
	for covered, want := range map[string]edge.Standing{"www.example.com": edge.Certain, "*.apps.test": edge.Uncertain} {
		s.certificates = &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return &tls.Certificate{Leaf: &x509.Certificate{DNSNames: []string{covered}}}, nil
		}}
		require.Equal(t, want, s.standing(t.Context(), "www.example.com"), covered)
	}
	for host, want := range map[string]edge.Standing{
		"berth.test": edge.Certain, s.urls().Hostname(st, "web"): edge.Certain,
		"web-000000000000.apps.test": edge.Unknown, "example.com": edge.Unknown, "127.0.0.1": edge.Unknown, "localhost": edge.Unknown,
	} {
		require.Equal(t, want, s.standing(t.Context(), host), host)
	}
}

func TestBeginOrder_LimitsDomainsAndNothingElse(t *testing.T) {
	s, _ := withDomains(t, "www.example.com")
	for range 10 {
		for _, name := range []string{"berth.test", "web-3f2a9c1b7d4e.apps.test"} {
			ended, err := s.beginOrder(t.Context(), name)
			require.NoError(t, err)
			ended(nil)
		}
	}
	_, err := s.beginOrder(t.Context(), "pending.example.com")
	require.ErrorContains(t, err, "is not an active domain")
	for i := range 6 {
		_, err := s.beginOrder(t.Context(), "www.example.com")
		require.Equal(t, i < 5, err == nil, i)
	}
}
