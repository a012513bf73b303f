package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"strconv"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
)

// ACMEOptions configure an ACME.
type ACMEOptions struct {
	Directory string // URL of the authority's directory
	Email     string // where the authority writes about problems; "" for nowhere
	Dir       string // folder that keeps the account, certificates and keys; "" if Share says what does
	Listen    string // address of the public listener, which answers the challenges
	// Allowed reports whether a name belongs to this server. Without this check anybody
	// could have certificates ordered for any name. It is not asked before Share.
	Allowed func(ctx context.Context, name string) bool
	Roots   *x509.CertPool // trusted when speaking to the authority; nil for the system's
	Log     *slog.Logger
}

// ACME gets a certificate for each name when it is first asked for, and renews it in
// time. The authority connects to the public listener on port 443 to check that a name
// is ours (TLS-ALPN-01), so no other listener and no DNS record is needed.
type ACME struct {
	opts  ACMEOptions
	shelf *shelf // nil with a folder
	cache *certmagic.Cache
	magic *certmagic.Config
}

// NewACME returns an ACME that has not requested any certificate yet.
func NewACME(opts ACMEOptions) (*ACME, error) {
	host, portText, err := net.SplitHostPort(opts.Listen)
	if err != nil {
		return nil, fmt.Errorf("address of the public listener: %w", err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return nil, fmt.Errorf("port of the public listener: %w", err)
	}
	a := &ACME{opts: opts}
	var storage certmagic.Storage = &certmagic.FileStorage{Path: opts.Dir}
	if opts.Dir == "" {
		a.shelf = newShelf()
		storage = a.shelf
	}
	a.cache = certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return a.magic, nil },
		Logger:           zap.NewNop(),
	})
	a.magic = certmagic.New(a.cache, certmagic.Config{
		Storage:  storage,
		OnDemand: &certmagic.OnDemandConfig{DecisionFunc: a.decide},
		OnEvent:  a.note,
		Logger:   zap.NewNop(), // what matters comes as an event
	})
	a.magic.Issuers = []certmagic.Issuer{certmagic.NewACMEIssuer(a.magic, certmagic.ACMEIssuer{
		CA:                   opts.Directory,
		Email:                opts.Email,
		Agreed:               true,
		DisableHTTPChallenge: true,
		ListenHost:           host,
		AltTLSALPNPort:       port,
		TrustedRoots:         opts.Roots,
		Logger:               zap.NewNop(),
	})}
	return a, nil
}

// Share makes an ACME without a folder keep everything in what all nodes of a cluster have in
// common. Before that it has no certificates.
func (a *ACME) Share(shared Shared) { a.shelf.shared.Store(&shared) }

// TLS returns the configuration of the public listener.
func (a *ACME) TLS() *tls.Config {
	cfg := a.magic.TLSConfig()
	cfg.MinVersion = tls.VersionTLS12
	cfg.NextProtos = append([]string{"h2", "http/1.1"}, cfg.NextProtos...)
	return cfg
}

// Close stops the renewals.
func (a *ACME) Close() { a.cache.Stop() }

func (a *ACME) decide(ctx context.Context, name string) error {
	if a.shelf != nil {
		if _, err := a.shelf.to(); err != nil {
			return err
		}
	}
	if !a.opts.Allowed(ctx, name) {
		return fmt.Errorf("%q is not a name of this server", name)
	}
	return nil
}

// note logs the events that an operator wants to know about.
func (a *ACME) note(_ context.Context, event string, data map[string]any) error {
	switch event {
	case "cert_obtained":
		a.opts.Log.Info("certificate issued", "name", data["identifier"], "renewal", data["renewal"])
	case "cert_failed":
		a.opts.Log.Error("certificate not issued; the next request for the name tries again", "name", data["identifier"], "error", data["error"])
	}
	return nil
}
