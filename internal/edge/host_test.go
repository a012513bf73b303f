package edge

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
)

const (
	service = testService
	evil    = "evil.example"
)

// asks lists requests for targets and hosts with what the service gets: the target of
// the request line and the Host, or nothing if the edge answers with the status.
var asks = []struct {
	method, target, host string
	status               string
	reaches              string
}{
	{"GET", "/a?b=c", service, "200", "/a?b=c " + service},
	{"GET", "//" + evil + "/a", service, "200", "//" + evil + "/a " + service},
	{"GET", "/http://" + evil + "/a", service, "200", "/http://" + evil + "/a " + service},
	{"GET", "/a", service + ":8080", "200", "/a " + service + ":8080"},
	{"GET", "/a", service + ":", "200", "/a " + service + ":"},
	{"GET", "/a", strings.ToUpper(service) + ".", "200", "/a " + strings.ToUpper(service) + "."},
	{"GET", "http://" + service + "/a?b=c", service, "200", "/a?b=c " + service},
	{"GET", "HTTP://" + service + ":8080/a", evil, "200", "/a " + service + ":8080"},
	{"GET", "https://" + service, service, "200", "/ " + service},
	{"GET", "http://" + service + "?b", service, "200", "/?b " + service},
	{"OPTIONS", "*", service, "200", "* " + service},

	{"GET", "x:http://" + evil + "/a", service, "400", ""},
	{"GET", service + ":8080/a", service, "400", ""},
	{"GET", "*", service, "400", ""},
	{"POST", "*", service, "400", ""},
	{"GET", "x:a", service, "400", ""},
	{"OPTIONS", "x:a", service, "400", ""},
	{"GET", "http:/a", service, "400", ""},
	{"GET", "http:///a", service, "400", ""},
	{"GET", "http:a", service, "400", ""},
	{"GET", "http://:80/a", service, "400", ""},
	{"GET", "ftp://" + service + "/a", service, "400", ""},
	{"GET", "http://user@" + service + "/a", service, "400", ""},
	{"GET", "http://" + service + ":x/a", service, "400", ""},
	{"GET", "http://[" + service + "]/a", service, "400", ""},
	{"GET", "http://" + evil + "/a", service, "400", ""},
	{"GET", "a", service, "400", ""},
	{"CONNECT", service + ":443", service, "400", ""},
	{"CONNECT", evil + ":443", service, "400", ""},
	{"PRI", "*", service, "400", ""},

	{"GET", "/a", service + ":80." + evil, "400", ""},
	{"GET", "/a", "[" + service + "]", "400", ""},
	{"GET", "/a", service + ":x", "400", ""},
	{"GET", "/a", service + ":-1", "400", ""},
	{"GET", "/a", service + ":+80", "400", ""},
	{"GET", "/a", service + ":65536", "400", ""},
	{"GET", "/a", service + ":80:80", "400", ""},
	{"GET", "/a", service + "@" + evil, "400", ""},
	{"GET", "/a", evil + "," + service, "400", ""},
	{"GET", "/a", "*.apps.test", "400", ""},
	{"GET", "/a", "%77eb-" + testHex + ".apps.test", "400", ""},
	{"GET", "/a", ":8080", "400", ""},
	{"GET", "/a", ".", "400", ""},
	{"GET", "/a", ".:80", "400", ""},
	{"GET", "/a", "." + service, "400", ""},
	{"GET", "/a", service + "..", "400", ""},
	{"GET", "/a", strings.Replace(service, ".", "..", 1), "400", ""},
	{"GET", "/a", "::1", "400", ""},
	{"GET", "/a", "[::1", "400", ""},
	{"GET", "/a", "[::1]80", "400", ""},
	{"GET", "/a", "[::1]." + service, "400", ""},
	{"GET", "/a", "[127.0.0.1]", "400", ""},
	{"GET", "/a", "[fe80::1%25eth0]", "400", ""},
	{"GET", "/a", evil, "404", ""},
}

// witnessed serves a service that answers with the target and the Host that it got.
func witnessed(t *testing.T) Config {
	backend := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.RequestURI+" "+r.Host)
	}))
	backend.Config.DisableGeneralOptionsHandler = true
	backend.Start()
	t.Cleanup(backend.Close)
	cfg := testConfig(who("api"))
	cfg.Routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: hosts(
		proxy.NewUpstream(strings.TrimPrefix(backend.URL, "http://"), proxy.Options{Log: quiet}),
	)})
	return cfg
}

func TestEdge_PassesOnOnlyTheHostThatItFound(t *testing.T) {
	addr, _ := start(t, witnessed(t))
	for _, ask := range asks {
		text := raw(t, addr, ask.method+" "+ask.target+" HTTP/1.1\r\nHost: "+ask.host+"\r\nConnection: close\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), nil)
		if err != nil {
			t.Fatalf("%s %s of %s: %v in %q", ask.method, ask.target, ask.host, err, text)
		}
		body, _ := io.ReadAll(res.Body)
		var fault struct{ Detail string }
		switch json.Unmarshal(body, &fault); {
		case res.Status[:3] != ask.status:
			t.Errorf("%s %s of %s: %s %s, want %s", ask.method, ask.target, ask.host, res.Status, body, ask.status)
		case ask.status == "200" && string(body) != ask.reaches:
			t.Errorf("%s %s of %s: the service got %q, want %q", ask.method, ask.target, ask.host, body, ask.reaches)
		case ask.status != "200" && (fault.Detail == "" || res.Header.Get("Content-Type") != "application/json"):
			t.Errorf("%s %s of %s: %q", ask.method, ask.target, ask.host, text)
		}
	}
}

// HTTP/2 sends the host in :authority, apart from the target.
func TestEdge_PassesOnOnlyTheHostThatItFoundInHTTP2(t *testing.T) {
	borrowed := httptest.NewTLSServer(nil)
	defer borrowed.Close()
	cfg := witnessed(t)
	cfg.TLS = &tls.Config{Certificates: borrowed.TLS.Certificates}
	addr, _ := start(t, cfg)
	client := borrowed.Client()
	client.Transport.(*http.Transport).ForceAttemptHTTP2 = true
	client.Transport.(*http.Transport).TLSClientConfig.ServerName = "example.com"
	defer client.CloseIdleConnections()
	for _, ask := range asks {
		if ask.target != "/a" || strings.Contains(ask.host, "@") { // the client itself refuses to send that
			continue
		}
		r, _ := http.NewRequest(ask.method, "https://"+addr+ask.target, nil)
		r.Host = ask.host
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(ask.host, err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.ProtoMajor != 2 || res.Status[:3] != ask.status || ask.status == "200" && string(body) != ask.reaches {
			t.Errorf("%s of %s over %s: %s %s, want %s", ask.target, ask.host, res.Proto, res.Status, body, ask.status)
		}
	}
	for _, target := range []string{"x:http://" + evil + "/a", "http://" + evil + "/a", "x:a", "*"} {
		u, err := url.ParseRequestURI(target) // net/http reads :path so
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		newEdge(cfg).ServeHTTP(w, &http.Request{Method: "GET", RequestURI: target, URL: u, Host: service, ProtoMajor: 2, Header: http.Header{}})
		if w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
}

func TestEdge_TakesAddressesInBracketsForHosts(t *testing.T) {
	for host, valid := range map[string]bool{
		"": true, "localhost": true, "127.0.0.1:80": true, "[::1]": true, "[::1]:8080": true, "[2001:DB8::1]:": true, "[::ffff:1.2.3.4]": true, "a_b.test": true, "a.": true, "a.:80": true,
		"[]": false, "[::1]:x": false, "[::1]x": false, "[v1.a]": false, "a b": false, "a/b": false, "a?b": false, "é": false, "a:": true, ":": false,
		".": false, ".:80": false, "..": false, ".a": false, "a..": false, "a..b": false, "a.b..:80": false,
	} {
		if _, got := parseHost(host); got != valid {
			t.Errorf("%q: %v", host, got)
		}
	}
}
