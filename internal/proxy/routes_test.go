package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
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
	web := proxy.NewHandler(readyPage("web"))
	routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: hosts(map[string]*proxy.Target{"web": web}), Unclaimed: true})
	addr := serveRoutes(t, &routes)
	for _, want := range []string{"noindex", ""} {
		res, body := ask(t, addr, testHost, "GET", "/")
		if got := res.Header.Get("X-Robots-Tag"); body != "web" || got != want {
			t.Errorf("%s with X-Robots-Tag %q, want %q of the target's answer", body, got, want)
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
	web := proxy.NewHandler(readyPage("web"))
	entry := proxy.Entry{Status: stack.Live, Hosts: hosts(map[string]*proxy.Target{"web": web}), Unclaimed: true}
	routes.Set(testHex, entry)
	routes.MarkClaimed(testHex)
	routes.Set(testHex, entry)
	res, body := ask(t, serveRoutes(t, &routes), testHost, "GET", "/")
	if got := res.Header.Get("X-Robots-Tag"); body != "web" || got != "" {
		t.Errorf("%s with X-Robots-Tag %q, want none", body, got)
	}
}

func TestRoutes_ADomainLeadsWhereItsServiceDoes(t *testing.T) {
	var routes proxy.Routes
	web := proxy.NewUpstream(serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Host+r.URL.Path) })), proxy.Options{Log: quiet})
	defer web.Drain(t.Context())
	routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: hosts(map[string]*proxy.Target{"web": web, "api": nil}), Unclaimed: true})
	routes.SetDomains(map[string]string{"www.example.com": testHost, "api.example.com": "api-" + testHex + ".apps.test", "old.example.com": "web-ba9876543210.apps.test"})
	addr := serveRoutes(t, &routes)
	for host, want := range map[string]int{"www.example.com": 200, "api.example.com": 502, "old.example.com": 404, "example.com": 404} {
		if has := routes.HasDomain(host); has != (host != "example.com") {
			t.Errorf("%s: %t", host, has)
		}
		res, body := ask(t, addr, host, "GET", "/v0/stacks")
		if robots := res.Header.Get("X-Robots-Tag"); res.StatusCode != want || robots != "" && host != "example.com" {
			t.Errorf("%s: %d with X-Robots-Tag %q", host, res.StatusCode, robots)
		}
		if want == 200 && body != "www.example.com/v0/stacks" {
			t.Errorf("the service gets %s", body)
		}
	}
	if routes.Has("www.example.com") {
		t.Error("a domain is taken for a service's own host")
	}
	routes.SetDomains(nil)
	if res, _ := ask(t, addr, "www.example.com", "GET", "/"); res.StatusCode != 404 {
		t.Errorf("a removed domain answers %d", res.StatusCode)
	}
}

// The service's own headers pass; ours do not come.
func TestRoutes_ADomainHasTheServicesHeaders(t *testing.T) {
	addr := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Robots-Tag", "nofollow")
		w.Header().Add("Set-Cookie", "a=1; Domain=www.example.com")
		w.Header().Add("Set-Cookie", "b=1; Domain=example.com")
		io.WriteString(w, r.Header.Get("X-Forwarded-Host"))
	}))
	f := newFront(t, addr, proxy.Options{})
	f.routes.SetDomains(map[string]string{"www.example.com": testHost})
	res, body := ask(t, f.addr, "www.example.com", "GET", "/")
	if cookies := res.Header["Set-Cookie"]; body != "www.example.com" || len(cookies) != 1 || res.Header.Get("X-Robots-Tag") != "nofollow" {
		t.Errorf("%s with %v", body, res.Header)
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

// After a request has reached one service of a generation, no request reaches another
// service of an earlier one, whether that service is new, existed before, or is gone.
func TestRoutes_SwitchAllServicesInOneStep(t *testing.T) {
	var routes proxy.Routes
	const wildcard = "*-" + testHex + ".apps.test"
	set := func(generation int) {
		target := proxy.NewHandler(readyPage(strconv.Itoa(generation)))
		services := map[string]*proxy.Target{"web": target, "api": target, fmt.Sprint("new", generation): target}
		routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: hosts(services), Wildcard: wildcard})
	}
	addr := serveRoutes(t, &routes)
	answer := func(name string) (status, generation int) {
		res, body := ask(t, addr, strings.Replace(wildcard, "*", name, 1), "GET", "/")
		generation, _ = strconv.Atoi(body)
		return res.StatusCode, generation
	}
	const last = 2000
	set(1)
	go func() {
		for generation := range last {
			set(generation + 1)
		}
	}()
	for served := 0; served < last; {
		_, served = answer("web")
		if status, generation := answer("api"); status != http.StatusOK || generation < served {
			t.Fatalf("web is of generation %d, then api answers %d from %d", served, status, generation)
		}
		status, generation := answer(fmt.Sprint("new", served))
		if _, now := answer("web"); status == http.StatusOK && generation != served || status != http.StatusOK && now == served {
			t.Fatalf("web is of generation %d, its new service answers %d from %d, and web is of %d", served, status, generation, now)
		}
		if status, _ := answer(fmt.Sprint("new", served-1)); status != http.StatusNotFound {
			t.Fatalf("web is of generation %d, then a service of the one before answers %d", served, status)
		}
	}
}

func TestRoutes_AHostThatMovedStaysWithItsNewStack(t *testing.T) {
	var routes proxy.Routes
	web := proxy.NewHandler(readyPage("web"))
	routes.Set("old", proxy.Entry{Status: stack.Live, Hosts: hosts(map[string]*proxy.Target{"web": nil})})
	routes.Set("new", proxy.Entry{Status: stack.Live, Hosts: hosts(map[string]*proxy.Target{"web": web})})
	routes.Remove("old")
	if res, body := ask(t, serveRoutes(t, &routes), testHost, "GET", "/"); body != "web" {
		t.Errorf("%s %s after the stack that had the host before was removed", res.Status, body)
	}
}

// BenchmarkRoutes measures a lookup and a change of one stack's routes in tables of one
// stack and of many, with four services each.
func BenchmarkRoutes(b *testing.B) {
	for _, stacks := range []int{1, 10_000} {
		var routes proxy.Routes
		entry := func(n int) proxy.Entry {
			e := proxy.Entry{Status: stack.Live, Hosts: map[string]proxy.Service{}, Wildcard: fmt.Sprintf("*-%012x.apps.test", n)}
			for _, name := range []string{"web", "api", "worker", "admin"} {
				host := strings.Replace(e.Wildcard, "*", name, 1)
				e.Hosts[host] = proxy.Service{Name: name, Target: proxy.NewHandler(http.NotFoundHandler())}
			}
			return e
		}
		for n := range stacks {
			routes.Set(strconv.Itoa(n), entry(n))
		}
		last := stacks - 1
		host := fmt.Sprintf("web-%012x.apps.test", last)
		b.Run(fmt.Sprintf("stacks=%d/lookup", stacks), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !routes.Has(host) {
					b.Fatal("no such host")
				}
			}
		})
		b.Run(fmt.Sprintf("stacks=%d/change", stacks), func(b *testing.B) {
			b.ReportAllocs()
			e := entry(last)
			for b.Loop() {
				routes.Set(strconv.Itoa(last), e)
			}
		})
		b.Run(fmt.Sprintf("stacks=%d/new", stacks), func(b *testing.B) {
			b.ReportAllocs()
			e := entry(stacks)
			for b.Loop() {
				routes.Set("new", e)
				routes.Remove("new")
			}
		})
	}
}

// One that is withdrawn elsewhere in its stack stays closed.
func TestRoutes_AClosedServiceSaysWhy(t *testing.T) {
	var routes proxy.Routes
	web := proxy.NewHandler(nil)
	routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: map[string]proxy.Service{
		testHost: {Name: "db", Closed: "db is a database"}, "web.localhost": {Name: "web", Target: web},
	}})
	if !routes.Withdraw(testHex, web) {
		t.Error("web had no routes")
	}
	res, body := ask(t, serveRoutes(t, &routes), testHost, "GET", "/")
	if res.StatusCode != http.StatusNotFound || !strings.Contains(body, "db is a database") {
		t.Errorf("%d %s", res.StatusCode, body)
	}
}
