package integration

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// certificate is one for names, signed by itself.
type certificate struct{ cert, key []byte } // PEM

func newCertificate(t *testing.T, names ...string) certificate {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "berth test"}, DNSNames: names, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	key, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return certificate{
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	}
}

func (c certificate) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(c.cert)
	return pool
}

// overTLS has the clients of a server trust a certificate, and go to an address.
func (h *Host) overTLS(c certificate, address string) {
	transport := h.client.Transport.(*witness).transport
	transport.TLSClientConfig = &tls.Config{RootCAs: c.pool()}
	transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, network, address)
	}
}

// signsIn checks that a person can sign in over https, and what the cookie is.
func (h *Host) signsIn(t *testing.T) {
	t.Helper()
	h.accountCreate(t, "ana@example.com")
	h.setPassword(t, "ana@example.com", personsPassword)
	p := h.visitor(t)
	p.client.Transport = h.client.Transport
	r := p.signIn(t, "ana@example.com", personsPassword)
	require.Equal(t, http.StatusSeeOther, r.status, r.body)
	var session *http.Cookie
	for _, c := range (&http.Response{Header: r.header}).Cookies() {
		if c.Name == "__Host-berth_session" {
			session = c
		}
	}
	require.NotNil(t, session, r.header)
	require.True(t, session.Secure && session.HttpOnly && session.Path == "/" && session.Domain == "", session.String())
	require.Equal(t, http.StatusOK, p.open(t, "/dashboard").status)
}

func TestTLS_CertificatesFromFiles(t *testing.T) {
	t.Parallel()
	c := newCertificate(t, "berth.test", "*.apps.test")
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(cert, c.cert, 0o600))
	require.NoError(t, os.WriteFile(key, c.key, 0o600))
	h := install(t, with("BERTH_TLS", "files"), with("BERTH_TLS_CERT", cert), with("BERTH_TLS_KEY", key), with("BERTH_APPS_DOMAIN", "apps.test"))
	h.env["BERTH_BASE_URL"] = "https://berth.test:" + strconv.Itoa(h.port)
	h.overTLS(c, h.addr())
	h.run(t)
	st := h.live(t, program(t), manifest(programManifest))
	require.Equal(t, "https://web-"+st.hex()+".apps.test:"+strconv.Itoa(h.port), st.URLs["web"])
	require.Equal(t, "hello from web", h.get(t, st.url("web", "/")).body)
	seen := h.get(t, st.url("web", "/request")).json(t)["headers"].(map[string]any)
	require.Equal(t, "https", seen["x-forwarded-proto"])
	h.signsIn(t)
}

// A proxy in front speaks TLS, and passes the Host on; see the README.
func TestTLS_BehindAProxy(t *testing.T) {
	t.Parallel()
	c := newCertificate(t, "berth.test", "*.apps.test")
	pair, err := tls.X509KeyPair(c.cert, c.key)
	require.NoError(t, err)
	behind := &url.URL{Scheme: "http"}
	front := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(behind)
			r.Out.Host = r.In.Host
			r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
			r.SetXForwarded()
		},
		ErrorLog: log.New(io.Discard, "", 0),
	})
	front.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	front.StartTLS()
	t.Cleanup(front.Close)
	h := install(t, with("BERTH_BASE_URL", "https://berth.test"), with("BERTH_APPS_DOMAIN", "apps.test"),
		with("BERTH_TRUSTED_PROXIES", "127.0.0.1"), with("BERTH_CREATES_PER_HOUR", "1"))
	behind.Host = h.addr()
	h.overTLS(c, front.Listener.Addr().String())
	h.run(t)
	eventually(t, "the server answers behind the proxy", func() error {
		if r := h.get(t, "/healthz"); r.status != http.StatusOK {
			return fmt.Errorf("it is %d", r.status)
		}
		return nil
	})
	st := h.live(t, program(t), manifest(programManifest))
	require.Equal(t, "https://web-"+st.hex()+".apps.test", st.URLs["web"])
	seen := h.get(t, st.url("web", "/request")).json(t)["headers"].(map[string]any)
	require.Equal(t, "https", seen["x-forwarded-proto"])
	// Clients behind the proxy are distinguished and counted separately.
	source := archive(t, page("x"))
	for _, client := range []string{"203.0.113.7", "203.0.113.8"} {
		require.Equal(t, http.StatusCreated, h.post(t, source, nil, "", "X-Forwarded-For", client).status, client)
		h.post(t, source, nil, "", "X-Forwarded-For", client).refused(t, http.StatusTooManyRequests)
	}
	h.signsIn(t)
}
