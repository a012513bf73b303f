package server

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/certs"
	"github.com/berth-host/berth/internal/datadir"
	"github.com/berth-host/berth/internal/doctor"
)

// pathIdentity begins the paths at which a server proves that it has the key of its
// installation, so that berthd doctor knows that the public URL leads to it.
const pathIdentity = "/.well-known/berth/"

var nonce = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// asksIdentity reports whether a path asks for the proof.
func asksIdentity(path string) bool {
	text, ok := strings.CutPrefix(path, pathIdentity)
	return ok && nonce.MatchString(text)
}

// proveIdentity answers a path that asks for the proof.
func proveIdentity(w http.ResponseWriter, path string, key auth.Key) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	fmt.Fprintln(w, key.Identity(strings.TrimPrefix(path, pathIdentity)))
}

// publicURL returns an error unless the public URL leads to the server of this
// configuration. If none runs, it answers at the server's address itself for the moment.
func (c *Config) publicURL(ctx context.Context) error {
	if datadir.Dir(c.DataDir).IsLocked() {
		key, err := auth.ReadKey(c.KeyPath())
		if err != nil {
			return err
		}
		return c.askIdentity(ctx, key)
	}
	var key auth.Key
	rand.Read(key[:]) // never fails, see crypto/rand
	stop, err := c.standIn(key)
	if err != nil {
		return err
	}
	defer stop()
	return c.askIdentity(ctx, key)
}

// standIn proves the identity of key at the server's address until stop.
func (c *Config) standIn(key auth.Key) (stop func(), err error) {
	var secure *tls.Config
	switch c.TLS {
	case tlsACME:
		return nil, doctor.Skipped("no server runs, and only a server has certificates with BERTH_TLS=acme; start it, and run doctor again")
	case tlsFiles:
		if secure, err = certs.FromFiles(c.TLSCert, c.TLSKey, slog.New(slog.DiscardHandler)); err != nil {
			return nil, err
		}
	}
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("no server runs on the data directory %s, and another program may have its address: %w", c.DataDir, err)
	}
	if secure != nil {
		listener = tls.NewListener(listener, secure)
	}
	srv := &http.Server{
		ReadHeaderTimeout: identityTime,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !asksIdentity(r.URL.Path) {
				starting("its operator").ServeHTTP(w, r)
				return
			}
			proveIdentity(w, r.URL.Path, key)
		}),
	}
	go func() { _ = srv.Serve(listener) }() // until stop
	return func() { _ = srv.Close() }, nil  // only connections are lost
}

// identityTime is how long the public URL may take to answer.
const identityTime = 10 * time.Second

// askIdentity asks at the public URL for the proof of a key.
func (c *Config) askIdentity(ctx context.Context, key auth.Key) error {
	ctx, cancel := context.WithTimeout(ctx, identityTime)
	defer cancel()
	asked := rand.Text()
	url := strings.TrimSuffix(c.BaseURL.String(), "/") + pathIdentity + asked
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("%s does not answer: %w", c.BaseURL, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	if err != nil {
		return fmt.Errorf("%s does not answer: %w", c.BaseURL, err)
	}
	if !hmac.Equal([]byte(strings.TrimSpace(string(body))), []byte(key.Identity(asked))) {
		return errors.New(c.BaseURL.String() + " leads to something other than this server: it answered " + res.Status)
	}
	return nil
}
