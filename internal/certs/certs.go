// Package certs provides the certificates for a public listener that speaks TLS itself:
// from files that somebody else renews, or from an ACME authority. It reads these files,
// keeps certificates in its own folder or where all nodes of a cluster find them,
// orders them from the authority and answers its challenges on the listener. It knows no
// stack.
package certs

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// checkEvery is how often the files are checked for a new certificate.
const checkEvery = 10 * time.Second

// files is a certificate and its key on disk.
type files struct {
	cert, key string
	log       *slog.Logger

	mu      sync.Mutex
	current *tls.Certificate
	stamp   stamp
	checked time.Time
}

// stamp identifies a state of the two files.
type stamp struct{ cert, key time.Time }

// FromFiles returns a TLS configuration with a certificate chain and a key in PEM. It
// reads a changed file again within seconds; while the new pair cannot be read or does
// not match, it keeps the old one.
func FromFiles(cert, key string, log *slog.Logger) (*tls.Config, error) {
	f := &files{cert: cert, key: key, log: log}
	if _, err := f.read(); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: f.certificate}, nil
}

func (f *files) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.checked) < checkEvery {
		return f.current, nil
	}
	changed, err := f.read()
	switch {
	case err != nil:
		f.log.Warn("new certificate not loaded; the previous one stays in use", "error", err)
	case changed:
		f.log.Info("certificate reloaded", "file", f.cert, "until", f.current.Leaf.NotAfter)
	}
	return f.current, nil
}

// read reads both files if they are not those that it read last, and reports whether
// it did.
func (f *files) read() (changed bool, err error) {
	f.checked = time.Now()
	now, err := f.look()
	if err != nil || now == f.stamp {
		return false, err
	}
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return false, fmt.Errorf("certificate %s with key %s: %w", f.cert, f.key, err)
	}
	f.current, f.stamp = &pair, now
	return true, nil
}

func (f *files) look() (stamp, error) {
	var now stamp
	for path, at := range map[string]*time.Time{f.cert: &now.cert, f.key: &now.key} {
		info, err := os.Stat(path)
		if err != nil {
			return stamp{}, err
		}
		*at = info.ModTime()
	}
	return now, nil
}
