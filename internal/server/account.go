package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/mail"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/berth-host/berth/internal/auth"
)

// CreateAccount makes an account for an email and returns its API key, which is
// stored as a hash only. It works beside a server that runs on the same data
// directory, and before the first one did.
func CreateAccount(ctx context.Context, cfg Config, email string, log *slog.Logger) (key string, err error) {
	if !validEmail(email) {
		return "", fmt.Errorf("%q is not an email address; write it as in ana@example.com", email)
	}
	s := &Server{cfg: cfg, log: log}
	if s.cfg.DataDir, err = filepath.Abs(cfg.DataDir); err != nil {
		return "", fmt.Errorf("BERTH_DATA_DIR: %w", err)
	}
	if err := os.MkdirAll(s.cfg.DataDir, 0o700); err != nil {
		return "", fmt.Errorf("BERTH_DATA_DIR: %w", err)
	}
	installation, err := s.loadKey()
	if err != nil {
		return "", err
	}
	if err := s.openStore(ctx, installation); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.store.Close()) }()
	key = auth.NewAPIKey()
	if _, err := s.store.CreateAccount(ctx, email, auth.Hash(key)); err != nil {
		return "", err
	}
	return key, nil
}

// validEmail tells whether s is one bare address.
func validEmail(s string) bool {
	address, err := mail.ParseAddress(s)
	return err == nil && address.Address == s && len(s) <= 254 && !strings.ContainsFunc(s, unicode.IsSpace)
}
