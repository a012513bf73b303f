package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writePair writes a certificate for a name and its key.
func writePair(t *testing.T, cert, key, name string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func pairIn(dir string) (cert, key string) {
	return filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
}

func TestFiles_AreReadAgainWhenTheyChange(t *testing.T) {
	cert, key := pairIn(t.TempDir())
	writePair(t, cert, key, "first.test")
	f := &files{cert: cert, key: key, log: slog.New(slog.DiscardHandler)}
	if _, err := f.read(); err != nil {
		t.Fatal(err)
	}
	shown := func() string {
		f.checked = time.Time{} // as if checkEvery had passed
		c, err := f.certificate(&tls.ClientHelloInfo{})
		if err != nil {
			t.Fatal(err)
		}
		return c.Leaf.DNSNames[0]
	}
	later := func(paths ...string) {
		for _, path := range paths {
			at := time.Now().Add(time.Minute)
			if err := os.Chtimes(path, at, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	if name := shown(); name != "first.test" {
		t.Errorf("shown %s", name)
	}
	writePair(t, cert, filepath.Join(t.TempDir(), "other"), "second.test")
	later(cert)
	if name := shown(); name != "first.test" {
		t.Errorf("a certificate whose key is not there yet is shown: %s", name)
	}
	writePair(t, cert, key, "third.test")
	later(cert, key)
	if name := shown(); name != "third.test" {
		t.Errorf("shown %s, want the new one", name)
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if name := shown(); name != "third.test" {
		t.Errorf("shown %s without a key file", name)
	}
}

func TestFromFiles_NamesWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	cert, key := pairIn(dir)
	writePair(t, cert, key, "a.test")
	other, _ := pairIn(t.TempDir())
	writePair(t, other, filepath.Join(dir, "unused"), "b.test")
	for _, tt := range [][2]string{{filepath.Join(dir, "none"), key}, {cert, filepath.Join(dir, "none")}, {key, cert}, {other, key}} {
		if _, err := FromFiles(tt[0], tt[1], slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("%v: %v, want an error with the file", tt, err)
		}
	}
}
