package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-host/berth/internal/exchange"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/wire"
)

const wildcard = "*-" + testHex + ".apps.test"

// forwarded asks for the test host as a node does that has forwarded a request so often, or as a
// test whose clock is not the kernel's. Nodes have a listener of their own, which has one lane.
func forwarded(routes *proxy.Routes, hops int) (*httptest.ResponseRecorder, string) {
	r := httptest.NewRequest("GET", "http://"+testHost+"/", nil)
	r = r.WithContext(proxy.WithCaller(r.Context(), exchange.Caller{IP: "192.0.2.1", Proto: "http", Hops: hops}))
	w := httptest.NewRecorder()
	routes.Serve(w, r, testHost)
	return w, w.Body.String()
}

// get asks for the test host at the front of routes.
func get(t *testing.T, addr string) (*http.Response, string) {
	t.Helper()
	return ask(t, addr, testHost, "GET", "/")
}

func here(text string) proxy.Entry {
	return proxy.Entry{Status: stack.Live, Name: "shop", Wildcard: wildcard, Hosts: hosts(map[string]*proxy.Target{"web": proxy.NewHandler(readyPage(text))})}
}

func peerAt(addr string, lost bool) *proxy.Peer {
	return proxy.NewPeer(proxy.PeerOptions{
		Node: "n2", Name: func() string { return "two" }, Lost: func() bool { return lost }, Protocol: func() int { return 1 },
		Dial: func(context.Context) (net.Conn, error) {
			if addr == "" {
				return nil, errors.New("no way")
			}
			return net.Dial("tcp", addr)
		},
		Limits: proxy.Options{Log: quiet},
	})
}

func TestRoutes_ServeNothingHereWhileAnotherNodeMayServeIt(t *testing.T) {
	var may atomic.Bool
	routes := &proxy.Routes{MayServe: may.Load}
	routes.Set("s", here("here"))
	addr := serveRoutes(t, routes)
	if res, body := get(t, addr); res.StatusCode != 503 || res.Header.Get("Retry-After") == "" || !strings.Contains(body, "was cut off") {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	may.Store(true)
	if res, body := get(t, addr); res.StatusCode != 200 || body != "here" {
		t.Errorf("%d %s", res.StatusCode, body)
	}
}

func TestRoutes_LeadToTheNodeOfTheStack(t *testing.T) {
	owner := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Host, " ", r.Header.Get(wire.HeaderCallerIP), " ", r.Header.Get(wire.HeaderCallerProto), " ",
			r.Header.Get(wire.HeaderHops), " ", r.Header.Get(wire.HeaderProtocol), r.Header["X-Forwarded-For"])
	}))
	routes := &proxy.Routes{}
	peer := peerAt(owner, false)
	defer peer.Drain(t.Context())
	routes.Lead("s", wildcard, peer)
	addr := serveRoutes(t, routes)
	if res, body := get(t, addr); res.StatusCode != 200 || body != testHost+" 127.0.0.1 http 1 1[]" {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	if w, body := forwarded(routes, proxy.MaxHops-1); w.Code != 200 || body != testHost+" 192.0.2.1 http 2 1[]" {
		t.Errorf("a request that was forwarded once: %d %s", w.Code, body)
	}
	if w, body := forwarded(routes, proxy.MaxHops); w.Code != 502 || w.Header().Get("Retry-After") == "" || !strings.Contains(body, "do not agree") {
		t.Errorf("a request that was forwarded twice: %d %s", w.Code, body)
	}
	routes.Forget("s")
	if res, _ := get(t, addr); res.StatusCode != 404 {
		t.Errorf("after the stack is deleted: %d", res.StatusCode)
	}
}

func TestRoutes_SayWhyTheNodeOfAStackDoesNotServe(t *testing.T) {
	for _, tt := range []struct {
		lost   bool
		status int
	}{{false, 502}, {true, 503}} {
		routes := &proxy.Routes{}
		routes.Lead("s", wildcard, peerAt("", tt.lost))
		res, body := get(t, serveRoutes(t, routes))
		if res.StatusCode != tt.status || res.Header.Get("Retry-After") == "" || !strings.Contains(body, "node two") {
			t.Errorf("lost %v: %d %s", tt.lost, res.StatusCode, body)
		}
	}
}

func TestRoutes_OfAnotherNodesStackAreNotThisNodes(t *testing.T) {
	routes := &proxy.Routes{}
	routes.Lead("s", wildcard, peerAt("", false))
	routes.Set("s", here("old"))
	addr := serveRoutes(t, routes)
	if res, _ := get(t, addr); res.StatusCode != 502 {
		t.Errorf("the entry of a stack that another node has is served: %d", res.StatusCode)
	}
	routes.Remove("s")
	if res, _ := get(t, addr); res.StatusCode != 502 {
		t.Errorf("this node removed another's entry: %d", res.StatusCode)
	}
	routes.Set("s", here("mine"))
	routes.Keep("s", wildcard)
	if _, body := get(t, addr); body != "mine" {
		t.Errorf("%s", body)
	}
}

func TestRoutes_HoldRequestsWhileAStackMoves(t *testing.T) {
	for name, next := range map[string]func(*proxy.Routes){
		"comes back":    func(routes *proxy.Routes) { routes.Set("s", here("next")) },
		"was not taken": func(routes *proxy.Routes) { routes.Keep("s", wildcard); routes.Set("s", here("next")) },
	} {
		synctest.Test(t, func(t *testing.T) {
			routes := &proxy.Routes{}
			routes.Set("s", here("first"))
			routes.Hold("s")
			answered := make(chan string)
			go func() { _, body := forwarded(routes, 0); answered <- body }()
			synctest.Wait()
			routes.MarkClaimed("s")
			time.Sleep(9 * time.Second)
			next(routes)
			if got := <-answered; got != "next" {
				t.Errorf("%s: %s", name, got)
			}
		})
	}
}

func TestRoutes_HoldNoRequestForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		routes := &proxy.Routes{}
		routes.Keep("s", wildcard) // and nothing here serves it
		began := time.Now()
		w, body := forwarded(routes, 0)
		if w.Code != 503 || w.Header().Get("Retry-After") == "" || time.Since(began) != 10*time.Second {
			t.Errorf("%d after %s: %s", w.Code, time.Since(began), body)
		}
	})
}

func TestRoutes_HoldAgainAfterTheStackCameBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		routes := &proxy.Routes{}
		routes.Set("s", here("first"))
		routes.Hold("s")
		routes.Lead("s", wildcard, peerAt("", false))
		routes.Keep("s", wildcard)
		if w, _ := forwarded(routes, 0); w.Code != 503 {
			t.Errorf("%d", w.Code)
		}
	})
}

func TestRoutes_AreReadAgainWhereTheyMayBeOld(t *testing.T) {
	var asked atomic.Int64
	routes := &proxy.Routes{}
	routes.Refresh = func(_ context.Context, host string) bool {
		asked.Add(1)
		if host == testHost {
			routes.Set("s", here("new"))
			routes.Keep("s", wildcard)
		}
		return true
	}
	addr := serveRoutes(t, routes)
	if _, body := get(t, addr); body != "new" || asked.Load() != 1 {
		t.Errorf("an unknown host: %s, asked %d times", body, asked.Load())
	}
	routes.Lead("s", wildcard, peerAt("", false))
	if _, body := forwarded(routes, 1); body != "new" || asked.Load() != 2 {
		t.Errorf("a host that another node believes to be here: %s, asked %d times", body, asked.Load())
	}
	if _, body := get(t, addr); body != "new" || asked.Load() != 2 {
		t.Errorf("a host that leads here: %s, asked %d times", body, asked.Load())
	}
}

// A node that cannot read the database does not know that there is no such stack.
func TestRoutes_DoNotSayThatAStackIsUnknownWithoutALook(t *testing.T) {
	for fresh, want := range map[bool]int{true: 404, false: 503} {
		routes := &proxy.Routes{Refresh: func(context.Context, string) bool { return fresh }}
		res, body := get(t, serveRoutes(t, routes))
		if res.StatusCode != want || (res.Header.Get("Retry-After") != "") == fresh {
			t.Errorf("%d %v: %s", res.StatusCode, res.Header, body)
		}
	}
}

func TestInternal_KnowsEverySpelling(t *testing.T) {
	for key, want := range map[string]bool{
		"Berth-Client-Ip": true, "berth_client_ip": true, "BERTH-CLIENT_PROTO": true, "Berth-Peer": true, "berth_peer": true,
		"Berth-Peer-Hops": true, "Berth-Peer_Anything": true, "Berth-Peers": false, "Berth": false, "X-Berth-Peer": false, "X-Request-Id": false,
	} {
		if got := wire.Internal(key); got != want {
			t.Errorf("%s: %v", key, got)
		}
	}
}

func BenchmarkRoutes_Load10000(b *testing.B) {
	p := peerAt("", false)
	for b.Loop() {
		routes := &proxy.Routes{}
		for i := range 10_000 {
			hex := fmt.Sprintf("%012x", i)
			routes.Lead("stk_"+hex, "*-"+hex+".apps.test", p)
		}
	}
}
