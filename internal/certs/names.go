package certs

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"net/http"
	"path"
	"time"

	"github.com/caddyserver/certmagic"
)

// HandleChallenge answers a request of the authority that checks a name (HTTP-01), and
// reports whether it was one.
func (a *ACME) HandleChallenge(w http.ResponseWriter, r *http.Request) bool {
	return a.issuer.HandleHTTPChallenge(w, r)
}

// Obtain orders a certificate for a name unless there is one that lasts. It tries once.
func (a *ACME) Obtain(ctx context.Context, name string) error {
	return a.magic.RenewCertSync(ctx, name, false)
}

// Until returns the end of the certificate for a name; false if there is none.
func (a *ACME) Until(ctx context.Context, name string) (time.Time, bool) {
	text, err := a.magic.Storage.Load(ctx, certmagic.StorageKeys.SiteCert(a.issuer.IssuerKey(), name))
	if err != nil {
		return time.Time{}, false
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return time.Time{}, false
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, false
	}
	return leaf.NotAfter, true
}

// Names returns the names that have certificates.
func (a *ACME) Names(ctx context.Context) ([]string, error) {
	folders, err := a.magic.Storage.List(ctx, certmagic.StorageKeys.CertsPrefix(a.issuer.IssuerKey()), false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	names := make([]string, len(folders))
	for i, folder := range folders {
		names[i] = path.Base(folder)
	}
	return names, err
}

// Forget removes the certificate of a name and its key, if there are any.
func (a *ACME) Forget(ctx context.Context, name string) error {
	err := a.magic.Storage.Delete(ctx, certmagic.StorageKeys.CertsSitePrefix(a.issuer.IssuerKey(), name))
	a.cache.RemoveManaged([]certmagic.SubjectIssuer{{Subject: name}})
	return err
}
