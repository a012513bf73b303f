package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/berth-host/berth/internal/account"
	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
)

// CreateAccount makes an account for an email and returns its API key, which is
// stored as a hash only. The password is "" for an account that cannot sign in.
// It works beside a server that runs on the same data directory, and before the
// first one did.
func CreateAccount(ctx context.Context, cfg Config, email, password string, log *slog.Logger) (key string, err error) {
	err = withAccounts(ctx, cfg, log, func(accounts *account.Accounts) error {
		key, err = accounts.Add(ctx, email, password)
		return err
	})
	return key, err
}

// SetPassword gives an account another password, and ends all its sessions. It
// works beside a running server, as CreateAccount does.
func SetPassword(ctx context.Context, cfg Config, email, password string, log *slog.Logger) error {
	return withAccounts(ctx, cfg, log, func(accounts *account.Accounts) error {
		return accounts.SetPassword(ctx, email, password)
	})
}

// DeleteAccount deletes an account with all its stacks, and returns how many they
// were. Confirm is given the account's address and a line for each stack before;
// its error deletes nothing. It works beside a running server, as CreateAccount
// does: the server that runs, or the next one, removes the stacks' containers,
// data and files.
func DeleteAccount(ctx context.Context, cfg Config, email string, confirm func(address string, stacks []string) error, log *slog.Logger) (stacks int, err error) {
	err = withAccounts(ctx, cfg, log, func(accounts *account.Accounts) error {
		stacks, err = accounts.Remove(ctx, email, func(address string, owned []*stack.Stack) error {
			var lines []string
			for _, s := range owned {
				lines = append(lines, fmt.Sprintf("%s (%s)", s.Name, s.ID))
			}
			return confirm(address, lines)
		})
		return err
	})
	return stacks, err
}

// withAccounts opens the accounts of an installation for do.
func withAccounts(ctx context.Context, cfg Config, log *slog.Logger, do func(*account.Accounts) error) (err error) {
	s := &Server{cfg: cfg, log: log}
	if s.cfg.DataDir, err = filepath.Abs(cfg.DataDir); err != nil {
		return fmt.Errorf("BERTH_DATA_DIR: %w", err)
	}
	if err := os.MkdirAll(s.cfg.DataDir, 0o700); err != nil {
		return fmt.Errorf("BERTH_DATA_DIR: %w", err)
	}
	key, err := s.loadKey()
	if err != nil {
		return err
	}
	if err := s.openStore(ctx, key); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.store.Close()) }()
	return do(account.New(account.Config{Store: s.store, Passwords: auth.NewPasswords(1)}))
}
