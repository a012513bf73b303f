package server

import (
	"net/url"
	"testing"

	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
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
		if got := s.hasName(name); got != known {
			t.Errorf("%q: %t", name, got)
		}
	}
}
