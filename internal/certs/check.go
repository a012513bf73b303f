package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// CheckFiles returns the end of a certificate in files. The error says why the pair cannot
// serve the names.
func CheckFiles(cert, key string, names []string) (end time.Time, err error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return end, fmt.Errorf("certificate %s with key %s: %w", cert, key, err)
	}
	for _, name := range names {
		if err := pair.Leaf.VerifyHostname(name); err != nil {
			return end, fmt.Errorf("certificate %s: %w", cert, err)
		}
	}
	return pair.Leaf.NotAfter, nil
}

// Kept returns the ends of the certificates in the folder of an ACME, by their names.
func Kept(dir string) (map[string]time.Time, error) {
	ends := map[string]time.Time{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && (d.IsDir() || filepath.Ext(path) != ".crt") {
			return nil
		}
		if err != nil {
			return err
		}
		leaf, err := readLeaf(path)
		if err != nil {
			return fmt.Errorf("certificate %s: %w", path, err)
		}
		ends[strings.TrimSuffix(filepath.Base(path), ".crt")] = leaf.NotAfter
		return nil
	})
	return ends, err
}

// readLeaf reads the first certificate of a chain.
func readLeaf(path string) (*x509.Certificate, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("it is not PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}

// Presented returns the end of the certificate that a server presents for a name. It does
// not check the certificate otherwise.
func Presented(ctx context.Context, address, name string) (time.Time, error) {
	dialer := tls.Dialer{Config: &tls.Config{ServerName: name, InsecureSkipVerify: true}} // nothing is sent
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return time.Time{}, err
	}
	defer conn.Close()
	found := conn.(*tls.Conn).ConnectionState().PeerCertificates
	if len(found) == 0 {
		return time.Time{}, fmt.Errorf("%s presents no certificate for %s", address, name)
	}
	return found[0].NotAfter, nil
}
