package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/domain"
	"github.com/berth-host/berth/internal/edge"
	"github.com/berth-host/berth/internal/stack"
)

// domains returns the settings of owners' domains, and of the plain listener.
func (c *Config) domains() []Setting {
	return []Setting{
		{"BERTH_DNS", "", "DNS server, as host:port, that is asked about the domains of stacks and the base URL's host; when empty, the system's", into(&c.DNS, optional(parseDNS))},
		{"BERTH_HTTP_LISTEN", "", "address of a plain HTTP listener that answers the challenges of certificate authorities and redirects to https; none when empty", into(&c.HTTPListen, parseText)},
		{"BERTH_DOMAIN_PENDING_EVERY", "1m", "interval between two checks of a pending domain", into(&c.DomainTimes.PendingEvery, parseDuration)},
		{"BERTH_DOMAIN_PENDING", "7d", "how long a pending domain is checked; after that on request only", into(&c.DomainTimes.Pending, parseDuration)},
		{"BERTH_DOMAIN_EVERY", "24h", "interval between two checks of an active or lost domain", into(&c.DomainTimes.Every, parseDuration)},
		{"BERTH_DOMAIN_GRACE", "72h", "how long the record of an active domain may be missing before the domain is lost", into(&c.DomainTimes.Grace, parseDuration)},
	}
}

// parseDNS returns the address of a DNS server as it is.
func parseDNS(value string) (string, error) {
	if _, err := parseHostPort(value); err != nil {
		return "", errors.New("not a host and a port; write them like 192.0.2.53:53")
	}
	return value, nil
}

// checkPlain refuses a plain listener that goes with nothing.
func (c *Config) checkPlain() error {
	switch {
	case c.HTTPListen == "":
		return nil
	case c.TLS == tlsOff:
		return errors.New("BERTH_HTTP_LISTEN needs BERTH_TLS=files or BERTH_TLS=acme; with off, BERTH_LISTEN is plain HTTP itself")
	case c.HTTPListen == c.Listen:
		return errors.New("BERTH_HTTP_LISTEN and BERTH_LISTEN are the same address; choose two")
	}
	return nil
}

// bindPlain binds the address of the plain listener, if there is one.
func (s *Server) bindPlain() (err error) {
	if s.cfg.HTTPListen == "" {
		return nil
	}
	if s.plainListener, err = s.listen(filePlain, s.cfg.HTTPListen); err != nil {
		return fmt.Errorf("BERTH_HTTP_LISTEN: %w", err)
	}
	return nil
}

// domainChecksPerMinute is how many checks of domains an account may ask for in a minute.
const domainChecksPerMinute = 60

// openDomains creates the domains of stacks and routes those that are active.
func (s *Server) openDomains(ctx context.Context, key auth.Key) error {
	cfg := domain.Config{
		Store:    s.store,
		Resolver: domain.NewResolver(s.cfg.DNS),
		Key:      key,
		URLs:     s.urls(),
		Times:    s.cfg.DomainTimes,
		Route:    s.routes.SetDomains,
		Orders:   s.redis.Window("orders", domain.OrdersPerHour, time.Hour),
		Checks:   s.redis.Window("domain checks", domainChecksPerMinute, time.Minute),
		Log:      s.log,
	}
	if s.acme != nil {
		cfg.Certificates = s.acme
	}
	s.domains = domain.New(cfg)
	return s.awaitDatabase(ctx, s.domains.Load)
}

// startDomains begins to check domains, now that the listeners are served.
func (s *Server) startDomains() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.domains.Run(ctx) })
	s.endDomains = func() { cancel(); running.Wait() }
}

// beginOrder admits an order of a certificate. Names of this server's own have no limit.
func (s *Server) beginOrder(ctx context.Context, name string) (ended func(error), err error) {
	if name == s.cfg.BaseURL.Hostname() || strings.HasSuffix(name, "."+s.cfg.AppsDomain) {
		return func(error) {}, nil
	}
	return s.domains.BeginOrder(ctx, name)
}

// openPlain creates the server of the plain listener, if there is one.
func (s *Server) openPlain() {
	if s.plainListener == nil {
		return
	}
	cfg := edge.PlainConfig{
		Port: s.cfg.BaseURL.Port(), Standing: s.standing, Banned: s.governing.bans.Banned, TrustedProxies: s.cfg.TrustedProxies,
		Conns: s.conns, Log: s.log,
	}
	if s.acme != nil {
		cfg.Challenge = s.acme.HandleChallenge
	}
	s.plain = edge.NewPlainServer(cfg)
}

// standing returns what is known of a host. The names of this server get their certificates
// when they are first asked for.
func (s *Server) standing(ctx context.Context, host string) edge.Standing {
	switch {
	case s.routes.HasDomain(host) && !s.hasCertificate(ctx, host):
		return edge.Uncertain
	case s.hasName(ctx, host):
		return edge.Certain
	}
	return edge.Unknown
}

// hasCertificate reports whether there is a certificate for a domain.
func (s *Server) hasCertificate(ctx context.Context, host string) bool {
	if s.acme != nil {
		until, has := s.acme.Until(ctx, host)
		return has && until.After(stack.Now())
	}
	cert, err := s.certificates.GetCertificate(&tls.ClientHelloInfo{ServerName: host})
	return err == nil && cert.Leaf.VerifyHostname(host) == nil
}
