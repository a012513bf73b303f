// Package authority is a certificate authority for tests, which gives certificates by ACME
// to those who prove that names lead to them. Code in this package opens a port, and asks
// whoever the names lead to.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"github.com/stretchr/testify/require"
)

// Authority is an authority in the process of the test.
type Authority struct {
	Directory string
	Trust     []byte         // certificate of its own server, as PEM
	Issues    *x509.CertPool // what verifies the certificates that it gives
}

// Config says where an authority is and whom it asks.
type Config struct {
	Address         string // of this machine, an IP
	Resolver        string // DNS server, as host:port
	PlainPort, Port int    // of HTTP and of TLS, at the addresses of the names
}

// Start starts an authority, which runs until the test ends. The test must not be parallel.
func Start(t *testing.T, c Config) Authority {
	t.Helper()
	t.Setenv("PEBBLE_VA_NOSLEEP", "1")
	quiet := log.New(io.Discard, "", 0)
	store := db.NewMemoryStore()
	signer := ca.New(quiet, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {Description: "the one"}})
	front := wfe.New(quiet, store, va.New(quiet, c.PlainPort, c.Port, false, c.Resolver, store), signer, []string{"authority.test"}, false, false, 1, 1)
	server := httptest.NewUnstartedServer(front.Handler())
	require.NoError(t, server.Listener.Close())
	var err error
	server.Listener, err = net.Listen("tcp", net.JoinHostPort(c.Address, "0"))
	require.NoError(t, err)
	own, trust := selfSigned(t, net.ParseIP(c.Address))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{own}}
	server.StartTLS()
	t.Cleanup(server.Close)
	issues := x509.NewCertPool()
	issues.AddCert(signer.GetRootCert(0).Cert)
	return Authority{server.URL + wfe.DirectoryPath, trust, issues}
}

// selfSigned returns a certificate for an address.
func selfSigned(t *testing.T, address net.IP) (own tls.Certificate, trust []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{address},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
