package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
)

// ACMEOptions configure an ACME.
type ACMEOptions struct {
	Directory string // URL of the authority's directory
	Email     string // where the authority writes about problems; "" for nowhere
	Dir       string // folder that keeps the account, certificates and keys; "" if Share says what does
	Listen    string // address of the public listener, which answers the challenges
	// HTTPListen is the address of a plain listener that answers challenges by
	// HandleChallenge; "" if there is none.
	HTTPListen string
	// Allowed reports whether a name belongs to this server. Without this check anybody
	// could have certificates ordered for any name. It is not asked before Share.
	Allowed func(ctx context.Context, name string) bool
	// BeginOrder admits each order for a name, a renewal too, and returns a function that is
	// told how it ended; nil admits all.
	BeginOrder func(ctx context.Context, name string) (ended func(error), err error)
	Roots      *x509.CertPool // trusted when speaking to the authority; nil for the system's
	Log        *slog.Logger
}

// ACME gets a certificate for each name when it is first asked for, and renews it in
// time. The authority connects to the public listener on port 443 to check that a name
// is ours (TLS-ALPN-01), so no other listener and no DNS record is needed. If there is a
// plain listener on port 80, it may do so there (HTTP-01).
type ACME struct {
	opts   ACMEOptions
	shelf  *shelf // nil with a folder
	cache  *certmagic.Cache
	magic  *certmagic.Config
	issuer *certmagic.ACMEIssuer

	mu     sync.Mutex
	orders map[string]func(error) // that are under way, by name
}

// NewACME returns an ACME that has not requested any certificate yet.
func NewACME(opts ACMEOptions) (*ACME, error) {
	host, port, err := splitAddress(opts.Listen)
	if err != nil {
		return nil, fmt.Errorf("address of the public listener: %w", err)
	}
	plainPort := 0
	if opts.HTTPListen != "" {
		if _, plainPort, err = splitAddress(opts.HTTPListen); err != nil {
			return nil, fmt.Errorf("address of the plain listener: %w", err)
		}
	}
	a := &ACME{opts: opts, orders: map[string]func(error){}}
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
	a.issuer = certmagic.NewACMEIssuer(a.magic, certmagic.ACMEIssuer{
		CA:                   opts.Directory,
		Email:                opts.Email,
		Agreed:               true,
		DisableHTTPChallenge: opts.HTTPListen == "",
		ListenHost:           host,
		AltHTTPPort:          plainPort,
		AltTLSALPNPort:       port,
		TrustedRoots:         opts.Roots,
		Logger:               zap.NewNop(),
	})
	a.magic.Issuers = []certmagic.Issuer{a.issuer}
	return a, nil
}

// splitAddress splits the address of a listener into its host and port.
func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	port, err = strconv.Atoi(text)
	return host, port, err
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

// note admits orders, and logs the events that an operator wants to know about.
func (a *ACME) note(ctx context.Context, event string, data map[string]any) error {
	name, _ := data["identifier"].(string)
	switch event {
	case "cert_obtaining":
		return a.begin(ctx, name)
	case "cert_obtained":
		a.end(name, nil)
		a.opts.Log.Info("certificate issued", "name", name, "renewal", data["renewal"])
	case "cert_failed":
		err, _ := data["error"].(error)
		a.end(name, err)
		a.opts.Log.Error("certificate not issued; the next request for the name tries again", "name", name, "error", err)
	}
	return nil
}

// begin asks for an order. One that is refused is not tried again until somebody asks for
// the name once more.
func (a *ACME) begin(ctx context.Context, name string) error {
	if a.opts.BeginOrder == nil {
		return nil
	}
	ended, err := a.opts.BeginOrder(ctx, name)
	if err != nil {
		return certmagic.ErrNoRetry{Err: err}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.orders[name] = ended
	return nil
}

// end tells whoever has admitted an order how it ended.
func (a *ACME) end(name string, err error) {
	a.mu.Lock()
	ended := a.orders[name]
	delete(a.orders, name)
	a.mu.Unlock()
	if ended != nil {
		ended(err)
	}
}
