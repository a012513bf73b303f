package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/certs"
	"github.com/berth-host/berth/internal/stackid"
)

// The values of BERTH_TLS.
const (
	tlsOff   = "off"
	tlsFiles = "files"
	tlsACME  = "acme"
)

func parseTLS(value string) (string, error) {
	switch value {
	case tlsOff, tlsFiles, tlsACME:
		return value, nil
	}
	return "", fmt.Errorf("write %s, %s or %s", tlsOff, tlsFiles, tlsACME)
}

// checkTLS refuses TLS settings that are right alone and wrong together.
func (c *Config) checkTLS() error {
	files := c.TLSCert != "" || c.TLSKey != ""
	switch {
	case c.TLS != tlsOff && c.BaseURL.Scheme != "https":
		return fmt.Errorf("BERTH_TLS=%s needs an address with https in BERTH_BASE_URL", c.TLS)
	case c.TLS == tlsFiles && (c.TLSCert == "" || c.TLSKey == ""):
		return errors.New("BERTH_TLS=files needs BERTH_TLS_CERT and BERTH_TLS_KEY")
	case c.TLS != tlsFiles && files:
		return fmt.Errorf("BERTH_TLS_CERT and BERTH_TLS_KEY need BERTH_TLS=files; it is %s", c.TLS)
	case c.TLS == tlsACME && net.ParseIP(c.BaseURL.Hostname()) != nil:
		return errors.New("BERTH_TLS=acme needs a name in BERTH_BASE_URL, not an IP address")
	}
	return nil
}

// openTLS returns the listener's certificates; nil for plain HTTP.
func (s *Server) openTLS() (*tls.Config, error) {
	switch s.cfg.TLS {
	case tlsFiles:
		cfg, err := certs.FromFiles(s.cfg.TLSCert, s.cfg.TLSKey, s.log)
		if err != nil {
			return nil, fmt.Errorf("BERTH_TLS_CERT, BERTH_TLS_KEY: %w", err)
		}
		return cfg, nil
	case tlsACME:
		dir := s.dir().Certificates()
		if s.cfg.InCluster() {
			dir = "" // but in the database, see openPeers
		}
		acme, err := certs.NewACME(certs.ACMEOptions{
			Directory:  s.cfg.ACMEDirectory,
			Email:      s.cfg.ACMEEmail,
			Dir:        dir,
			Listen:     s.cfg.Listen,
			HTTPListen: s.cfg.HTTPListen,
			Allowed:    s.hasName,
			BeginOrder: s.beginOrder,
			Log:        s.log,
		})
		if err != nil {
			return nil, fmt.Errorf("BERTH_LISTEN, BERTH_HTTP_LISTEN: %w", err)
		}
		s.acme = acme
		return acme.TLS(), nil
	}
	return nil, nil
}

// hasName reports whether a name is the base URL's, that of a service of a stack, or an
// active domain: every other name would cost an order at the authority.
func (s *Server) hasName(ctx context.Context, name string) bool {
	return name == s.cfg.BaseURL.Hostname() || s.routes.Has(name) || s.routes.HasDomain(name) || s.othersHaveName(ctx, name)
}

// nameLimit is how long a name waits for the database.
const nameLimit = 3 * time.Second

// othersHaveName reports whether a name belongs to a service of a stack that another node
// has.
func (s *Server) othersHaveName(ctx context.Context, name string) bool {
	label, _, _ := strings.Cut(name, ".")
	id := stackid.FromHex(label[strings.LastIndexByte(label, '-')+1:])
	if s.others == nil || !stackid.Valid(id) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, nameLimit)
	defer cancel()
	if node, err := s.others.table.Owner(ctx, id); err != nil || node == "" {
		return false
	}
	st, err := s.store.Get(ctx, id)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(st.ServiceNames(), func(service string) bool { return s.urls().Hostname(st, service) == name })
}
