package server

import (
	"log/slog"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

func TestHasName_KnowsTheBaseURLAndTheServicesThatAreHere(t *testing.T) {
	base := &url.URL{Scheme: "https", Host: "berth.test:8443"}
	s := &Server{cfg: Config{BaseURL: base, AppsDomain: "apps.test"}, routes: &proxy.Routes{}}
	st := stack.New("shop", nil, stack.Now())
	s.routes.Set(st.ID, proxy.Entry{
		Status:   stack.Building,
		Hosts:    map[string]proxy.Service{s.urls().Hostname(st, "web"): {Name: "web"}},
		Wildcard: s.urls().Hostname(st, "*"),
	})
	for name, known := range map[string]bool{
		"berth.test": true, "web-" + st.Hex() + ".apps.test": true,
		"old-" + st.Hex() + ".apps.test": false, "*-" + st.Hex() + ".apps.test": false, "web-000000000000.apps.test": false,
		"web-" + st.Hex() + ".berth.test": false, "apps.test": false, "": false,
	} {
		if got := s.hasName(t.Context(), name); got != known {
			t.Errorf("%q: %t", name, got)
		}
	}
}

func TestHasName_KnowsTheServicesOfOtherNodes(t *testing.T) {
	db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "berth.db"), Sealer: auth.NewSealer(auth.Key{}), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer db.Close()
	st := stack.New("shop", []stack.Spec{{Name: "web"}}, stack.Now())
	st.Node = "n2"
	require.NoError(t, db.Create(t.Context(), st, nil))
	s := &Server{store: db, routes: &proxy.Routes{}, log: slog.New(slog.DiscardHandler), cfg: Config{AppsDomain: "apps.test", BaseURL: &url.URL{Scheme: "https", Host: "berth.test"}}}
	require.NoError(t, s.openOthers(t.Context(), &others{nodes: two{}}, "127.0.0.1:0"))
	defer s.others.close()
	for name, known := range map[string]bool{
		"berth.test": true, "web-" + st.Hex() + ".apps.test": true,
		"old-" + st.Hex() + ".apps.test": false, "web-" + st.Hex() + ".other.test": false, "web-000000000000.apps.test": false, "apps.test": false,
	} {
		require.Equal(t, known, s.hasName(t.Context(), name), name)
	}
}
