package edge

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/berth-host/berth/internal/wire"
)

func TestEdge_SpeaksTLSWithTheCertificatesItIsGiven(t *testing.T) {
	borrowed := httptest.NewTLSServer(nil)
	defer borrowed.Close()
	cfg := testConfig(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/early" {
			http.Error(w, "too much", http.StatusRequestEntityTooLarge)
			return
		}
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprintln(w, r.Proto, newEdge(Config{}).identify(r, nil).Proto, r.Header.Get(wire.HeaderCallerIP), n, err)
	}))
	cfg.BaseHost = "example.com" // the one that the certificate is for
	cfg.TLS = &tls.Config{Certificates: borrowed.TLS.Certificates}
	addr, _ := start(t, cfg)
	roots := x509.NewCertPool()
	roots.AddCert(borrowed.Certificate())
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		client := &http.Client{Transport: &http.Transport{
			DialContext:       func(context.Context, string, string) (net.Conn, error) { return net.Dial("tcp", addr) },
			TLSClientConfig:   &tls.Config{RootCAs: roots},
			ForceAttemptHTTP2: protocol == "HTTP/2.0",
		}}
		defer client.CloseIdleConnections()
		send := func(path string, size int) (int, string) {
			t.Helper()
			res, err := client.Post("https://example.com"+path, "text/plain", strings.NewReader(strings.Repeat("x", size)))
			if err != nil {
				t.Fatal(protocol, err)
			}
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(protocol, err)
			}
			return res.StatusCode, string(body)
		}
		for range 2 {
			if _, body := send("/", 1<<20); body != protocol+" https 127.0.0.1 1048576 <nil>\n" {
				t.Errorf("%s: %q", protocol, body)
			}
		}
		if status, body := send("/early", 8<<20); status != http.StatusRequestEntityTooLarge || body != "too much\n" {
			t.Errorf("%s: an early answer to an upload: %d %q", protocol, status, body)
		}
	}
	if _, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: roots, ServerName: "other.test"}); err == nil {
		t.Error("the certificate is for any name")
	}
}
