package cluster_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/cluster"
)

// writeCertificate writes a certificate that signs itself, its key and itself as the
// authority.
func writeCertificate(t *testing.T, dir, node string) (cert, key, authority string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: node, Organization: []string{"swarm-1"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("node.crt", "CERTIFICATE", der), write("node.key", "PRIVATE KEY", pkcs8), write("ca.crt", "CERTIFICATE", der)
}

func TestSwarmOf_IsTheOrganizationInTheNodesOwnCertificate(t *testing.T) {
	cert, key, _ := writeCertificate(t, t.TempDir(), "n1")
	for _, tt := range []struct{ file, node, want string }{
		{cert, "n1", "swarm-1"},
		{cert, "n2", ""},
		{key, "n1", ""},
		{filepath.Join(t.TempDir(), "missing"), "n1", ""},
	} {
		if got := cluster.SwarmOf(tt.file, tt.node); got != tt.want {
			t.Errorf("%s says that %s is in the swarm %q, want %q", tt.file, tt.node, got, tt.want)
		}
	}
}

func TestCertificates_AreReadAgainWhenTheyChange(t *testing.T) {
	dir := t.TempDir()
	cert, key, authority := writeCertificate(t, dir, "n1")
	c, err := cluster.OpenCertificates(cert, key, authority, "n1")
	if err != nil {
		t.Fatal(err)
	}
	serial := func() string {
		got, err := c.Certificate()
		if err != nil {
			t.Fatal(err)
		}
		return got.Leaf.SerialNumber.String()
	}
	first := serial()
	if serial() != first {
		t.Error("it changed although the files did not")
	}
	if err := os.Remove(key); err != nil || serial() != first {
		t.Errorf("it is lost with its file, %v", err)
	}
	writeCertificate(t, dir, "n1")
	if serial() == first {
		t.Error("the new one is not read")
	}
	if roots, err := c.Roots(); err != nil || roots == nil {
		t.Errorf("roots %v, %v", roots, err)
	}
}

func TestOpenCertificates_RefusesWhatIsNotTheNodes(t *testing.T) {
	cert, key, authority := writeCertificate(t, t.TempDir(), "n2")
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, files := range map[string][3]string{
		`"n2"; its common name must be the id of this node, n1`: {cert, key, authority},
		"no such file":           {cert, key, cert + ".missing"},
		"has no PEM certificate": {cert, key, empty},
		empty:                    {empty, key, authority},
	} {
		if _, err := cluster.OpenCertificates(files[0], files[1], files[2], "n1"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
