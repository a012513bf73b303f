package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
)

const apiHost = "api-" + testHex + ".apps.test"

// pathRoutes returns routes of a stack whose web has paths, and the address of their front. Each
// service, a process or a site, answers with its name, the target of the request that it got and
// the prefix that was removed from it.
func pathRoutes(t *testing.T, sites bool, paths ...proxy.Path) (addr string, routes *proxy.Routes, e proxy.Entry) {
	services := map[string]*proxy.Target{}
	for _, name := range []string{"web", "api", "docs"} {
		answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, name, " ", r.RequestURI, " ", r.Header.Get("X-Forwarded-Prefix"))
		})
		if services[name] = proxy.NewHandler(answer); !sites {
			services[name] = proxy.NewUpstream(serve(t, answer), proxy.Options{Log: quiet})
		}
	}
	e = proxy.Entry{Status: stack.Live, Name: "shop", Hosts: hosts(services)}
	web := e.Hosts[testHost]
	web.Paths = paths
	e.Hosts[testHost] = web
	routes = &proxy.Routes{}
	routes.Set(testHex, e)
	routes.SetDomains(map[string]string{"www.example.com": testHost})
	t.Cleanup(func() { _ = routes.Drain(context.Background()) })
	return serveRoutes(t, routes), routes, e
}

func TestPaths_LeadToOtherServices(t *testing.T) {
	for name, sites := range map[string]bool{"processes": false, "sites": true} {
		t.Run(name, func(t *testing.T) { pathsLead(t, sites) })
	}
}

func pathsLead(t *testing.T, sites bool) {
	docs := "docs-" + testHex + ".apps.test"
	addr, _, _ := pathRoutes(t, sites,
		proxy.Path{Prefix: "/api", Host: apiHost},
		proxy.Path{Prefix: "/api/v2/docs", Host: docs, Strip: true},
		proxy.Path{Prefix: "/é/x y", Host: docs, Strip: true},
	)
	for target, want := range map[string]string{
		"/":              "web / ",
		"/apis":          "web /apis ",
		"/x/api":         "web /x/api ",
		"/API":           "web /API ",
		"/api":           "api /api ",
		"/api?a=/../b":   "api /api?a=/../b ",
		"/api/":          "api /api/ ",
		"/api/v2/doc":    "api /api/v2/doc ",
		"/api/v2//docs":  "api /api/v2//docs ",
		"/api/v2/docs":   "docs  /api/v2/docs", // a site leads on to the path with a slash; a process sees that path
		"/api/v2/docs?x": "docs ?x /api/v2/docs",
		"/api/v2/docs/":  "docs / /api/v2/docs",

		// Escapes of the caller pass as they are, and an escaped slash separates nothing.
		"/%61pi/%7ea%2F?b=%20":      "api /%61pi/%7ea%2F?b=%20 ",
		"/api/v2%2Fdocs":            "api /api/v2%2Fdocs ",
		"/api%2Fv2":                 "web /api%2Fv2 ",
		"/api%3F":                   "web /api%3F ",
		"/api/v2/%64ocs/a%2Fb/%63?": "docs /a%2Fb/%63? /api/v2/docs",
		"/%C3%A9/x%20y/z":           "docs /z /%C3%A9/x%20y",

		// Dots count before the comparison: nothing enters or leaves a prefix with them.
		"/api/../x":               "web /api/../x ",
		"/api/%2e%2E/x":           "web /api/%2e%2E/x ",
		"/x/../api":               "api /x/../api ",
		"/./api/.":                "api /./api/. ",
		"/../../api":              "api /../../api ",
		"/api/v2/docs/../a":       "api /api/v2/docs/../a ",
		"/api/v2/./docs/a/../b/.": "docs /b/ /api/v2/docs",
		"/api/v2/docs/..%2f..":    "docs /..%2f.. /api/v2/docs",

		// What is left of a path names no other host.
		"//api":                      "web //api ",
		"/api/v2/docs//evil.example": "docs /evil.example /api/v2/docs",
		"/api/v2/docs///":            "docs / /api/v2/docs",

		"*":                                     "web * ",
		"http://" + testHost + "/api/v2/docs/a": "docs /a /api/v2/docs",
	} {
		method := http.MethodGet
		if target == "*" {
			method = http.MethodOptions
		}
		if path, bare := strings.CutPrefix(want, "docs  "); bare && !sites {
			want = "docs / " + path
		} else if query, bare := strings.CutPrefix(want, "docs ?"); bare && !sites {
			want = "docs /?" + query
		}
		if _, got := ask(t, addr, testHost, method, target); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
		if strings.HasPrefix(target, "http:") {
			continue
		}
		if _, got := ask(t, addr, "www.example.com", method, target); got != want {
			t.Errorf("%s at another host: %q, want %q", target, got, want)
		}
	}
	if _, got := ask(t, addr, apiHost, "GET", "/api/v2/docs/a"); got != "api /api/v2/docs/a " {
		t.Errorf("the other service's own URL answers %q", got)
	}
}

func TestPaths_AnswerForTheServiceThatTheyLeadTo(t *testing.T) {
	addr, routes, e := pathRoutes(t, false, proxy.Path{Prefix: "/api", Host: apiHost}, proxy.Path{Prefix: "/gone", Host: "gone-" + testHex + ".apps.test"})
	if res, _ := ask(t, addr, testHost, "GET", "/gone"); res.StatusCode != http.StatusNotFound {
		t.Errorf("a service that is not there answers %d", res.StatusCode)
	}
	if !routes.Withdraw(testHex, e.Hosts[apiHost].Target) {
		t.Fatal("the target of api led nowhere")
	}
	if res, body := ask(t, addr, testHost, "GET", "/api"); res.StatusCode != http.StatusBadGateway || !strings.Contains(body, "service api") {
		t.Errorf("a service that is down answers %d %s", res.StatusCode, body)
	}
	if _, got := ask(t, addr, testHost, "GET", "/"); got != "web / " {
		t.Errorf("beside it: %q", got)
	}
	if !routes.Withdraw(testHex, e.Hosts[testHost].Target) {
		t.Fatal("the target of web led nowhere")
	}
	routes.Set(testHex, e)
	if _, got := ask(t, addr, testHost, "GET", "/api"); got != "api /api " {
		t.Errorf("back again: %q", got)
	}
}

// A service that is withdrawn keeps its paths.
func TestPaths_StayWhileTheirServiceIsDown(t *testing.T) {
	addr, routes, e := pathRoutes(t, false, proxy.Path{Prefix: "/api", Host: apiHost})
	routes.Withdraw(testHex, e.Hosts[testHost].Target)
	if _, got := ask(t, addr, testHost, "GET", "/api/x"); got != "api /api/x " {
		t.Errorf("%q", got)
	}
}

// The paths of a generation and its targets come in one step.
func TestPaths_SwitchWithTheirTargets(t *testing.T) {
	var routes proxy.Routes
	set := func(generation int) {
		answer := func(service string) *proxy.Target {
			return proxy.NewHandler(readyPage(fmt.Sprint(service, generation)))
		}
		e := proxy.Entry{Status: stack.Live, Hosts: hosts(map[string]*proxy.Target{"web": answer("web"), "api": answer("api")})}
		web := e.Hosts[testHost]
		if generation%2 == 1 {
			web.Paths = []proxy.Path{{Prefix: "/api", Host: apiHost}}
		}
		e.Hosts[testHost] = web
		routes.Set(testHex, e)
	}
	set(0)
	addr := serveRoutes(t, &routes)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for generation := 1; generation < 500; generation++ {
			set(generation)
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		_, body := ask(t, addr, testHost, "GET", "/api")
		var generation int
		if _, err := fmt.Sscanf(body[3:], "%d", &generation); err != nil || strings.HasPrefix(body, "api") != (generation%2 == 1) {
			t.Fatalf("/api was answered by %q", body)
		}
	}
}

func TestPaths_ReachProcesses(t *testing.T) {
	backend := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %q %s %s", r.Method, r.RequestURI, r.Header["X-Forwarded-Prefix"], r.Header.Get("X-Forwarded-Host"), body)
	}))
	f := newFront(t, backend, proxy.Options{})
	e := proxy.Entry{Status: stack.Live, Name: "shop", Hosts: hosts(map[string]*proxy.Target{"api": f.target})}
	e.Hosts[testHost] = proxy.Service{Name: "web", Target: proxy.NewHandler(http.NotFoundHandler()), Paths: []proxy.Path{
		{Prefix: "/api", Host: apiHost, Strip: true}, {Prefix: "/whole", Host: apiHost},
	}}
	f.routes.Set(testHex, e)
	for path, want := range map[string]string{
		"/api/entries?a=b%20c": `POST /entries?a=b%20c ["/api"] ` + testHost + " hello",
		"/whole/x":             `POST /whole/x [] ` + testHost + " hello",
	} {
		r, err := http.NewRequest(http.MethodPost, "http://"+f.addr+path, strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = testHost
		r.Header.Set("X-Forwarded-Prefix", "/evil")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if string(body) != want {
			t.Errorf("%s: %q, want %q", path, body, want)
		}
	}
}
