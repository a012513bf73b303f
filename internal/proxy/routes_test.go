package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
)

func TestRoutes_AClaimLeavesTheTargets(t *testing.T) {
	var routes proxy.Routes
	routes.MarkClaimed(testHex)
	if routes.Has(testHost) {
		t.Error("a claim made a stack known")
	}
	web := proxy.NewHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: hosts(map[string]*proxy.Target{"web": web}), Unclaimed: true})
	for _, want := range []string{"noindex", ""} {
		w := httptest.NewRecorder()
		routes.Serve(w, httptest.NewRequest(http.MethodGet, "/", nil), testHost)
		if got := w.Header().Get("X-Robots-Tag"); w.Code != http.StatusNoContent || got != want {
			t.Errorf("%d with X-Robots-Tag %q, want %q of the target's answer", w.Code, got, want)
		}
		routes.MarkClaimed(testHex)
	}
	if old := routes.Remove(testHex); len(old) != 1 || old[0] != web {
		t.Errorf("%v, want web", old)
	}
}

// A caller may have read the stack before it was claimed.
func TestRoutes_AStackThatIsClaimedStaysSo(t *testing.T) {
	var routes proxy.Routes
	web := proxy.NewHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	entry := proxy.Entry{Status: stack.Live, Hosts: hosts(map[string]*proxy.Target{"web": web}), Unclaimed: true}
	routes.Set(testHex, entry)
	routes.MarkClaimed(testHex)
	routes.Set(testHex, entry)
	w := httptest.NewRecorder()
	routes.Serve(w, httptest.NewRequest(http.MethodGet, "/", nil), testHost)
	if got := w.Header().Get("X-Robots-Tag"); w.Code != http.StatusNoContent || got != "" {
		t.Errorf("%d with X-Robots-Tag %q, want none", w.Code, got)
	}
}

func TestRoutes_ReturnsWhatIsNoLongerUsed(t *testing.T) {
	var routes proxy.Routes
	web, api := proxy.NewHandler(nil), proxy.NewHandler(nil)
	if old := routes.Set(testHex, proxy.Entry{Hosts: hosts(map[string]*proxy.Target{"web": web, "api": api, "db": nil})}); old != nil {
		t.Errorf("%v from nothing", old)
	}
	if old := routes.Set(testHex, proxy.Entry{Hosts: hosts(map[string]*proxy.Target{"site": web})}); len(old) != 1 || old[0] != api {
		t.Errorf("%v, want api alone", old)
	}
	if old := routes.Remove(testHex); len(old) != 1 || old[0] != web {
		t.Errorf("%v, want web alone", old)
	}
	if old := routes.Remove(testHex); old != nil {
		t.Errorf("%v from nothing", old)
	}
}

func TestRoutes_HasServicesAndNoOtherNames(t *testing.T) {
	var routes proxy.Routes
	routes.Set(testHex, proxy.Entry{Status: stack.Building, Hosts: hosts(map[string]*proxy.Target{"web": nil}), Wildcard: "*-" + testHex + ".apps.test"})
	for host, has := range map[string]bool{
		testHost: true, "other-" + testHex + ".apps.test": false, "-" + testHex + ".apps.test": false, testHex + ".apps.test": false,
		"*-" + testHex + ".apps.test": false, "web-ba9876543210.apps.test": false, "a." + testHost: false, "web-" + testHex: false, "": false,
	} {
		if got := routes.Has(host); got != has {
			t.Errorf("%q: %t", host, got)
		}
	}
	routes.Remove(testHex)
	if routes.Has(testHost) {
		t.Error("it has a stack that is gone")
	}
}
