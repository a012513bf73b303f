package certs_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"github.com/miekg/dns"

	"github.com/berth-host/berth/internal/certs"
)

// authority is a test authority in this process. It resolves every name to this
// machine, in its own DNS, and connects to the given ports.
type authority struct {
	directory string
	trust     *x509.CertPool // to speak to it
	server    *x509.Certificate
	issues    *x509.CertPool // what it issues is signed by these
}

func newAuthority(t *testing.T, plainPort, port int) authority {
	t.Helper()
	t.Setenv("PEBBLE_VA_NOSLEEP", "1")
	quiet := log.New(io.Discard, "", 0)
	store := db.NewMemoryStore()
	signer := ca.New(quiet, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {Description: "the one"}})
	validator := va.New(quiet, plainPort, port, false, everythingIsHere(t), store)
	front := wfe.New(quiet, store, validator, signer, []string{"authority.test"}, false, false, 1, 1)
	server := httptest.NewTLSServer(front.Handler())
	t.Cleanup(server.Close)
	trust, issues := x509.NewCertPool(), x509.NewCertPool()
	trust.AddCert(server.Certificate())
	issues.AddCert(signer.GetRootCert(0).Cert)
	return authority{server.URL + wfe.DirectoryPath, trust, server.Certificate(), issues}
}

// everythingIsHere is the address of a DNS server for which every name is
// 127.0.0.1.
func everythingIsHere(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0") // the authority asks over TCP
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{Listener: ln, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		answer := new(dns.Msg).SetReply(r)
		if r.Question[0].Qtype == dns.TypeA {
			answer.Answer = append(answer.Answer, &dns.A{
				Hdr: dns.RR_Header{Name: r.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.IPv4(127, 0, 0, 1),
			})
		}
		w.WriteMsg(answer)
	})}
	go server.ActivateAndServe()
	t.Cleanup(func() { server.Shutdown() })
	return ln.Addr().String()
}

// logBook keeps what is logged.
type logBook struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestACME_GetsACertificateForEachNameOfOursWhenItIsFirstAskedFor(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	authority := newAuthority(t, 1, ln.Addr().(*net.TCPAddr).Port)
	logged := &logBook{}
	dir := t.TempDir()
	a, err := certs.NewACME(certs.ACMEOptions{
		Directory: authority.directory, Roots: authority.trust, Dir: dir, Listen: ln.Addr().String(), Email: "ops@example.com",
		Allowed: func(_ context.Context, name string) bool { return strings.HasSuffix(name, ".ours.test") },
		Log:     slog.New(slog.NewTextHandler(logged, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	server := &http.Server{
		Handler:   http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Host+" "+r.Proto) }),
		TLSConfig: a.TLS(), ErrorLog: log.New(io.Discard, "", 0),
	}
	go server.ServeTLS(ln, "", "")
	defer server.Close()
	visit := func(name string) (string, error) {
		client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				return net.Dial("tcp", ln.Addr().String())
			},
			TLSClientConfig:   &tls.Config{RootCAs: authority.issues},
			ForceAttemptHTTP2: true,
		}}
		defer client.CloseIdleConnections()
		res, err := client.Get("https://" + name + "/")
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		return string(body), err
	}
	for _, name := range []string{"base.ours.test", "web-0123456789ab.ours.test", "base.ours.test"} {
		if body, err := visit(name); err != nil || body != name+" HTTP/2.0" {
			t.Fatalf("%s: %q, %v\n%s", name, body, err, logged)
		}
	}
	if n := strings.Count(logged.String(), "certificate issued"); n != 2 {
		t.Errorf("%d certificates were got, want one for each name:\n%s", n, logged)
	}
	if _, err := visit("theirs.test"); err == nil {
		t.Error("there is a certificate for a name that is not ours")
	}
	kept := 0
	filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if content, _ := os.ReadFile(path); err == nil && strings.HasSuffix(path, ".crt") {
			if block, _ := pem.Decode(content); block != nil {
				kept++
			}
		}
		return nil
	})
	if kept != 2 {
		t.Errorf("%d certificates are kept for the next start, want 2", kept)
	}
}

func TestNewACME_NeedsAnAddressWithAPort(t *testing.T) {
	for _, listen := range []string{"", "localhost", "localhost:https"} {
		if _, err := certs.NewACME(certs.ACMEOptions{Listen: listen}); err == nil {
			t.Errorf("%q: no error", listen)
		}
	}
}
