package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Certificates are the certificate of this node and the authority of all, from files that
// are read again when they change.
type Certificates struct {
	files [3]string // certificate, key, authority

	mu    sync.Mutex
	seen  [3]stamp
	cert  *tls.Certificate
	roots *x509.CertPool
}

// stamp is what changes when a file does.
type stamp struct {
	modified time.Time
	size     int64
}

// OpenCertificates reads the certificate of the node with the given id.
func OpenCertificates(cert, key, authority, node string) (*Certificates, error) {
	c := &Certificates{files: [3]string{cert, key, authority}}
	if err := c.refresh(); err != nil {
		return nil, err
	}
	if name := c.cert.Leaf.Subject.CommonName; name != node {
		return nil, fmt.Errorf("%s is the certificate of %q; its common name must be the id of this node, %s", cert, name, node)
	}
	return c, nil
}

// Certificate returns the node's certificate with its key.
func (c *Certificates) Certificate() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.refresh()
	return c.cert, err
}

// Roots returns the authority that signs the nodes' certificates.
func (c *Certificates) Roots() (*x509.CertPool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.refresh()
	return c.roots, err
}

// SwarmOf returns the id of the swarm whose certificate for a node is in a file; "" if it cannot
// be read or is another node's. Only managers tell the id otherwise.
func SwarmOf(file, node string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return ""
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil || cert.Subject.CommonName != node || len(cert.Subject.Organization) == 0 {
		return ""
	}
	return cert.Subject.Organization[0]
}

// refresh reads the files if they have changed. While they cannot be read, what was read
// before stays.
func (c *Certificates) refresh() error {
	var now [3]stamp
	for i, path := range c.files {
		info, err := os.Stat(path)
		if err != nil {
			return c.unlessRead(err)
		}
		now[i] = stamp{info.ModTime(), info.Size()}
	}
	if now == c.seen {
		return nil
	}
	cert, roots, err := readCertificates(c.files)
	if err != nil {
		return c.unlessRead(err)
	}
	c.cert, c.roots, c.seen = cert, roots, now
	return nil
}

// unlessRead returns err unless the files have been read before.
func (c *Certificates) unlessRead(err error) error {
	if c.cert != nil {
		return nil
	}
	return err
}

func readCertificates(files [3]string) (*tls.Certificate, *x509.CertPool, error) {
	cert, err := tls.LoadX509KeyPair(files[0], files[1])
	if err != nil {
		return nil, nil, fmt.Errorf("%s and %s: %w", files[0], files[1], err)
	}
	bundle, err := os.ReadFile(files[2])
	if err != nil {
		return nil, nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return nil, nil, errors.New(files[2] + " has no PEM certificate")
	}
	return &cert, roots, nil
}
