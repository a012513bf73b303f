package edge

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// startPlain serves a plain listener on loopback.
func startPlain(t *testing.T, cfg PlainConfig) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Log = quiet
	srv := NewPlainServer(cfg)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		srv.Close()
		if err := <-served; err != http.ErrServerClosed {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func TestPlain_SendsNamesWithACertificateToHTTPS(t *testing.T) {
	standings := map[string]Standing{"www.example.com": Certain, "new.example.com": Uncertain}
	cfg := PlainConfig{
		Standing: func(_ context.Context, host string) Standing { return standings[host] },
		Challenge: func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/.well-known/acme-challenge/token" {
				return false
			}
			io.WriteString(w, "proof of "+r.Host)
			return true
		},
	}
	addr := startPlain(t, cfg)
	cfg.Port = "8443"
	other := startPlain(t, cfg)
	for _, tt := range []struct{ addr, head, want, location string }{
		{addr, "GET / HTTP/1.1\r\nHost: www.example.com", "308", "https://www.example.com/"},
		{addr, "GET /a%2fb?c=d%20e HTTP/1.1\r\nHost: WWW.Example.com.:80", "308", "https://www.example.com/a%2fb?c=d%20e"},
		{addr, "GET //evil.example HTTP/1.1\r\nHost: www.example.com", "308", "https://www.example.com//evil.example"},
		{addr, "POST /form HTTP/1.1\r\nHost: www.example.com\r\nContent-Length: 0", "308", "https://www.example.com/form"},
		{addr, "GET http://www.example.com/x HTTP/1.1\r\nHost: www.example.com", "308", "https://www.example.com/x"},
		{addr, "OPTIONS * HTTP/1.1\r\nHost: www.example.com", "308", "https://www.example.com/"},
		{other, "GET /x HTTP/1.1\r\nHost: www.example.com", "308", "https://www.example.com:8443/x"},
		{addr, "GET / HTTP/1.1\r\nHost: new.example.com", "503", ""},
		{addr, "GET / HTTP/1.1\r\nHost: other.example.com", "421", ""},
		{addr, "GET / HTTP/1.1\r\nHost: 127.0.0.1", "421", ""},
		{addr, "GET / HTTP/1.1\r\nHost: www..example.com", "400", ""},
		{addr, "GET / HTTP/1.1\r\nHost: ", "400", ""},
		{addr, "GET /.well-known/acme-challenge/token HTTP/1.1\r\nHost: new.example.com", "200", ""},
		{addr, "GET /.well-known/acme-challenge/other HTTP/1.1\r\nHost: other.example.com", "421", ""},
	} {
		answer := raw(t, tt.addr, tt.head+"\r\nConnection: close\r\n\r\n")
		if !strings.HasPrefix(answer, "HTTP/1.1 "+tt.want) || tt.location != "" && !strings.Contains(answer, "\r\nLocation: "+tt.location+"\r\n") {
			t.Errorf("%q gets\n%s", tt.head, answer)
		}
		if tt.want[0] == '4' && !strings.Contains(answer, `{"detail":`) || !strings.Contains(answer, "X-Request-Id: ") {
			t.Errorf("%q gets\n%s", tt.head, answer)
		}
	}
}

func TestEdge_GivesEveryPathOfADomainToItsService(t *testing.T) {
	cfg := testConfig(who("api"))
	cfg.Routes.SetDomains(map[string]string{"www.example.com": testService})
	addr, _ := start(t, cfg)
	for _, path := range []string{"/", "/v0/stacks", "/dashboard", "/healthz", "/mcp", "/.well-known/berth/x", "/openapi.json"} {
		answer := raw(t, addr, "GET "+path+" HTTP/1.1\r\nHost: WWW.example.com.:8080\r\nSec-Fetch-Site: cross-site\r\nConnection: close\r\n\r\n")
		if !strings.HasPrefix(answer, "HTTP/1.1 200") || !strings.Contains(answer, "web ") {
			t.Errorf("%s gets\n%s", path, answer)
		}
	}
	if answer := raw(t, addr, "GET / HTTP/1.1\r\nHost: a.www.example.com\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(answer, "HTTP/1.1 404") {
		t.Errorf("a name below a domain gets\n%s", answer)
	}
}
