package edge

import (
	"bufio"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/berth-host/berth/internal/edge/lanetest"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/wire"
)

const (
	testHex     = "0123456789ab"
	testService = "web-" + testHex + ".apps.test"
)

var quiet = slog.New(slog.DiscardHandler)

// who answers with the name of the part that a request reached, and its headers.
func who(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, strings.Join([]string{name, r.Header.Get(wire.HeaderCallerIP), r.Header.Get("X-Request-Id")}, " "))
	})
}

func testConfig(api http.Handler) Config {
	routes := &proxy.Routes{}
	routes.Set(testHex, proxy.Entry{Status: stack.Live, Name: "shop", Hosts: hosts(proxy.NewHandler(who("web")))})
	return Config{BaseHost: "Berth.Test", AppsDomain: "Apps.Test", Routes: routes, API: api, Log: quiet}
}

// hosts has the one service of the test's stack.
func hosts(web *proxy.Target) map[string]proxy.Service {
	return map[string]proxy.Service{testService: {Name: "web", Target: web}}
}

// start serves cfg on loopback.
func start(t *testing.T, cfg Config) (addr string, srv *Server) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.FastLane = cfg.FastLane || lanetest.Fast()
	srv = NewServer(cfg)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		srv.Close()
		if err := <-served; err != http.ErrServerClosed {
			t.Error(err)
		}
	})
	return l.Addr().String(), srv
}

// raw sends text over one connection and reads to its end.
func raw(t *testing.T, addr, text string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	if err != nil {
		t.Errorf("the answer to %.40q ended with %v", text, err)
	}
	return string(b)
}

func TestEdge_SplitsByHost(t *testing.T) {
	cfg := testConfig(who("api"))
	for host, want := range map[string]string{
		"berth.test": "api", "BERTH.test": "api", "berth.test:8080": "api", "berth.test.": "api", "berth.test.:80": "api",
		"localhost": "api", "localhost:8080": "api", "127.0.0.1": "api", "127.0.0.1:8080": "api", "10.0.0.7": "api",
		"[::1]": "api", "[::1]:8080": "api", "[fe80::1]:80": "api", "": "api",
		"web-0123456789ab.apps.test": "web", "WEB-0123456789AB.Apps.Test": "web", "web-0123456789ab.apps.test:8080": "web", "web-0123456789ab.apps.test.": "web",
		"web-ffffffffffff.apps.test": "404 no stack", "nonsense.apps.test": "404 no stack", "a.web-0123456789ab.apps.test": "404 no stack",
		"apps.test": "404 this server does not serve this host", "other.test": "404 this server does not serve this host", "xberth.test": "404 this server does not serve this host", "web-0123456789ab.berth.test": "404 this server does not serve this host",
		"web-0123456789abapps.test": "404 this server does not serve this host", "1.2.3": "404 this server does not serve this host",
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = host
		w := httptest.NewRecorder()
		newEdge(cfg).ServeHTTP(w, r)
		got, _, _ := strings.Cut(w.Body.String(), " ")
		if w.Code == 404 {
			var e struct{ Detail string }
			if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Detail == "" {
				t.Errorf("%s: not an error: %s", host, w.Body)
			}
			got = "404 " + e.Detail
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("host %q: %s, want %s", host, got, want)
		}
	}
}

func TestEdge_SplitsBelowTheBaseHost(t *testing.T) {
	cfg := testConfig(who("api"))
	cfg.BaseHost, cfg.AppsDomain = "localhost", "localhost"
	cfg.Routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: map[string]proxy.Service{
		"web-" + testHex + ".localhost": {Name: "web", Target: proxy.NewHandler(who("web"))},
	}})
	for host, want := range map[string]string{"localhost:8080": "api", "web-0123456789ab.localhost:8080": "web"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = host
		w := httptest.NewRecorder()
		newEdge(cfg).ServeHTTP(w, r)
		if !strings.HasPrefix(w.Body.String(), want) {
			t.Errorf("%s: %s", host, w.Body)
		}
	}
}

func TestEdge_FindsTheCaller(t *testing.T) {
	cfg := testConfig(who("api"))
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "web "+r.Header.Get("X-Forwarded-For"))
	}))
	defer backend.Close()
	cfg.Routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: hosts(proxy.NewUpstream(backend.Listener.Addr().String(), proxy.Options{}))})
	cfg.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("192.168.1.1/32")}
	const trusted, stranger = "10.0.0.1:999", "198.51.100.9:999"
	for _, c := range []struct {
		name, peer string
		xff        []string
		want       string
	}{
		{"no header", trusted, nil, "10.0.0.1"},
		{"a stranger's claim", stranger, []string{"1.2.3.4"}, "198.51.100.9"},
		{"a stranger's claim of trust", stranger, []string{"10.0.0.1"}, "198.51.100.9"},
		{"one address", trusted, []string{"1.2.3.4"}, "1.2.3.4"},
		{"forged on the left", trusted, []string{"6.6.6.6, 1.2.3.4"}, "1.2.3.4"},
		{"forged in a line of its own", trusted, []string{"6.6.6.6", "1.2.3.4"}, "1.2.3.4"},
		{"two proxies", trusted, []string{"1.2.3.4, 10.9.9.9"}, "1.2.3.4"},
		{"forged, then two proxies in lines", trusted, []string{"6.6.6.6, 1.2.3.4", "10.9.9.9, 192.168.1.1"}, "1.2.3.4"},
		{"not trusted in the middle", trusted, []string{"1.2.3.4, 192.168.1.2, 10.0.0.2"}, "192.168.1.2"},
		{"all trusted", trusted, []string{"10.1.1.1, 10.2.2.2"}, "10.0.0.1"},
		{"garbage on the left", trusted, []string{"<script>, 1.2.3.4"}, "1.2.3.4"},
		{"garbage on the right", trusted, []string{"1.2.3.4, unknown"}, "10.0.0.1"},
		{"garbage alone", trusted, []string{"garbage"}, "10.0.0.1"},
		{"empty", trusted, []string{""}, "10.0.0.1"},
		{"empty on the right", trusted, []string{"1.2.3.4,"}, "10.0.0.1"},
		{"only commas", trusted, []string{",,,"}, "10.0.0.1"},
		{"spaces", trusted, []string{" \t1.2.3.4  ,  10.0.0.5 "}, "1.2.3.4"},
		{"with a port", trusted, []string{"1.2.3.4:5678"}, "1.2.3.4"},
		{"with something else behind the colon", trusted, []string{"1.2.3.4:evil"}, "10.0.0.1"},
		{"IPv6", trusted, []string{"2001:db8::7"}, "2001:db8::7"},
		{"IPv6 in brackets with a port", trusted, []string{"[2001:db8::7]:443"}, "2001:db8::7"},
		{"IPv6 with a zone", trusted, []string{"fe80::1%eth0"}, "fe80::1"},
		{"mapped IPv4", trusted, []string{"::ffff:1.2.3.4"}, "1.2.3.4"},
		{"mapped trusted proxy", "[::ffff:10.0.0.1]:9", []string{"1.2.3.4, ::ffff:10.0.0.9"}, "1.2.3.4"},
		{"IPv6 proxy", "[fd00::1]:9", []string{"2001:db8::8, fd00::2"}, "2001:db8::8"},
		{"leading zeros", trusted, []string{"01.2.3.4"}, "10.0.0.1"},
		{"a number", trusted, []string{"16909060"}, "10.0.0.1"},
		{"quoted", trusted, []string{`"1.2.3.4"`}, "10.0.0.1"},
	} {
		for _, host := range []string{"berth.test", testService} {
			r := httptest.NewRequest("GET", "/", nil)
			r.Host, r.RemoteAddr = host, c.peer
			r.Header["X-Forwarded-For"] = c.xff
			r.Header.Set(wire.HeaderCallerIP, "6.6.6.6")
			w := httptest.NewRecorder()
			newEdge(cfg).ServeHTTP(w, r)
			if got := strings.Fields(w.Body.String())[1]; got != c.want {
				t.Errorf("%s: %s is told %s, want %s", c.name, host, got, c.want)
			}
		}
	}
}

func TestEdge_HidesTheInnerHeaderFromServices(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	r.Host = testService
	r.Header.Set(wire.HeaderCallerIP, "6.6.6.6")
	w := httptest.NewRecorder()
	newEdge(testConfig(who("api"))).ServeHTTP(w, r)
	if !strings.HasPrefix(w.Body.String(), "web  ") {
		t.Errorf("%q", w.Body)
	}
}

func TestEdge_GivesEveryRequestAnID(t *testing.T) {
	for in, kept := range map[string]bool{
		"": false, "abc-123_4.5:6": true, strings.Repeat("x", 128): true, strings.Repeat("x", 129): false,
		"with space": false, "new\tline": false, "é": false, `"><script>`: false,
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = "berth.test"
		r.Header.Set("X-Request-Id", in)
		w := httptest.NewRecorder()
		newEdge(testConfig(who("api"))).ServeHTTP(w, r)
		id := w.Header().Get("X-Request-Id")
		if (id == in) != kept || len(id) == 0 || !strings.HasSuffix(w.Body.String(), " "+id) {
			t.Errorf("%q became %q; inside: %s", in, id, w.Body)
		}
	}
}

func TestEdge_SaysEveryFaultInJSON(t *testing.T) {
	addr, _ := start(t, testConfig(who("api")))
	for name, c := range map[string]struct{ request, status, detail string }{
		"no request line":     {"nonsense\r\n\r\n", "400", "not valid HTTP"},
		"no Host":             {"GET / HTTP/1.1\r\n\r\n", "400", "Host"},
		"two Hosts":           {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400", ""},
		"bad Host":            {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "400", "Host"},
		"bad header name":     {"GET / HTTP/1.1\r\nHost: a\r\nBad Name: x\r\n\r\n", "400", ""},
		"two lengths":         {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "400", ""},
		"bad length":          {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", "400", ""},
		"unknown coding":      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", "501", "chunked"},
		"unknown version":     {"GET / HTTP/3.7\r\nHost: a\r\n\r\n", "505", "HTTP/1.1"},
		"unknown expectation": {"GET / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n", "417", "100-continue"},
		"large headers":       {"GET / HTTP/1.1\r\nHost: a\r\nX-A: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", "431", "too large"},
		"unknown host":        {"GET / HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n", "404", "berth.test"},
		"after a good one":    {"GET / HTTP/1.1\r\nHost: berth.test\r\n\r\nnonsense\r\n\r\n", "400", "not valid HTTP"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := raw(t, addr, c.request)
			if name == "after a good one" {
				_, rest, _ := strings.Cut(answer[1:], "HTTP/1.1 ")
				answer = "HTTP/1.1 " + rest
			}
			res, err := http.ReadResponse(bufio.NewReader(strings.NewReader(answer)), nil)
			if err != nil {
				t.Fatalf("%v in %q", err, answer)
			}
			body, _ := io.ReadAll(res.Body)
			var e map[string]string
			if err := json.Unmarshal(body, &e); err != nil || len(e) != 1 || !strings.Contains(e["detail"], c.detail) || res.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%q", answer)
			}
			if !strings.HasPrefix(res.Status, c.status) {
				t.Errorf("status %s, want %s", res.Status, c.status)
			}
		})
	}
}

func TestEdge_PassesOptionsForTheWholeServer(t *testing.T) {
	addr, _ := start(t, testConfig(who("api")))
	if got := raw(t, addr, "OPTIONS * HTTP/1.1\r\nHost: berth.test\r\nConnection: close\r\n\r\n"); !strings.Contains(got, "api 127.0.0.1") {
		t.Errorf("%q", got)
	}
}

func FuzzForwardedFor(f *testing.F) {
	for _, s := range []string{"", "1.2.3.4", "a, [::1]:80,10.0.0.1", ",,", "fe80::1%x,10.1.1.1"} {
		f.Add(s)
	}
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	f.Fuzz(func(t *testing.T, s string) {
		ip, ok := forwardedFor([]string{s}, trusted)
		if ok && (!ip.IsValid() || anyContains(trusted, ip) || ip.Zone() != "" || ip.Is4In6()) {
			t.Fatalf("%q gives %v", s, ip)
		}
	})
}

// FuzzHost checks that every valid host goes to one of the three places, that its
// spelling does not matter, and that no host but a name right below the apps
// domain is taken for a service's.
func FuzzHost(f *testing.F) {
	for _, s := range []string{
		"", "berth.test", "web-0123456789ab.apps.test:8080", "WEB-0123456789AB.Apps.Test.", "[::1]:80", "[::1", "127.0.0.1", "localhost:",
		"a:b:c", ".apps.test", "..apps.test", "x.apps.test@berth.test", "berth.test:80:80", "apps.test", "xn--bcher-kva.apps.test", "berth.test\x00.apps.test",
		"web-0123456789ab.apps.test/berth.test", "[fe80::1%25eth0]", "0x7f000001", "2130706433", "BERTH.TEST..", "\u212aelvin.apps.test",
	} {
		f.Add(s)
	}
	e := newEdge(Config{BaseHost: "berth.test", AppsDomain: "apps.test", Routes: &proxy.Routes{}})
	f.Fuzz(func(t *testing.T, host string) {
		name, valid := parseHost(host)
		if !valid {
			serveHost(t, host, "", refused)
			return
		}
		where := e.split(name)
		if len(name) > len(host)*utf8.UTFMax {
			t.Fatalf("%q became %d bytes", host, len(name))
		}
		if (where == toService) != strings.HasSuffix(name, ".apps.test") {
			t.Fatalf("%q (%q) goes to %d", host, name, where)
		}
		if again, _ := parseHost(name); !strings.ContainsAny(name, ":[") && !strings.HasSuffix(name, ".") && again != name {
			t.Fatalf("%q is %q, and that is %q", host, name, again)
		}
		serveHost(t, host, name, where)
	})
}

// serveHost asks the whole edge, which must lead to the same place.
func serveHost(t *testing.T, host, name string, where destination) {
	t.Helper()
	front := newEdge(testConfig(who("api")))
	r := httptest.NewRequest("GET", "/", nil)
	r.Host = host
	w := httptest.NewRecorder()
	front.ServeHTTP(w, r)
	service, _, _ := strings.Cut(w.Body.String(), " ")
	if (w.Code == http.StatusBadRequest) != (where == refused) || (service == "api") != (where == toAPI) || (service == "web") != (where == toService && name == testService) {
		t.Fatalf("%q (%q) goes to %d; answered %d %s", host, name, where, w.Code, w.Body)
	}
}
