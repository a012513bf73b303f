package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/berth-host/berth/internal/account"
	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/metrics"
	"github.com/berth-host/berth/internal/stack"
)

// CreateAccount creates an account for an email and returns its API key, which is
// stored as a hash only. The password is "" for an account that cannot sign in. It
// works while a server runs on the same data directory, and before the first one did:
// then it creates the database and logs its path.
func CreateAccount(ctx context.Context, cfg Config, email, password string, log *slog.Logger) (key string, err error) {
	missing := func(dir, database string) error {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("BERTH_DATA_DIR: %w", err)
		}
		log.Warn("there is no database yet; creating one for a server that starts with the same BERTH_DATA_DIR", "database", database)
		return nil
	}
	err = withAccounts(ctx, cfg, log, missing, func(accounts *account.Accounts) error {
		key, err = accounts.Add(ctx, email, password)
		return err
	})
	return key, err
}

// SetPassword replaces the password of an account, and ends all its sessions. It works
// while a server runs, and only if there is a database.
func SetPassword(ctx context.Context, cfg Config, email, password string, log *slog.Logger) error {
	return withAccounts(ctx, cfg, log, noDatabase, func(accounts *account.Accounts) error {
		return accounts.SetPassword(ctx, email, password)
	})
}

// DeleteAccount deletes an account with all its stacks, and returns how many there
// were. It first calls confirm with the account's address and a line for each stack,
// and deletes nothing if confirm fails. It works while a server runs, like SetPassword:
// that server, or the next one, removes the stacks' containers, data and files.
func DeleteAccount(ctx context.Context, cfg Config, email string, confirm func(address string, stacks []string) error, log *slog.Logger) (stacks int, err error) {
	err = withAccounts(ctx, cfg, log, noDatabase, func(accounts *account.Accounts) error {
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

// noDatabase refuses to look for an account if there is no database.
func noDatabase(_, database string) error {
	return fmt.Errorf("there is no database %s; set BERTH_DATA_DIR to the data directory of the server", database)
}

// withAccounts opens the accounts of an installation and calls do. If the database is
// missing, it first calls missing with the data directory and the database's path, and
// creates the database unless missing returns an error.
func withAccounts(ctx context.Context, cfg Config, log *slog.Logger, missing func(dir, database string) error, do func(*account.Accounts) error) (err error) {
	s := &Server{cfg: cfg, log: log, metrics: metrics.New()}
	if err := s.locate(); err != nil {
		return err
	}
	if there, database := s.installed(); !there {
		if err := missing(s.cfg.DataDir, database); err != nil {
			return err
		}
	}
	if _, err := s.openStore(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.store.Close()) }()
	return do(account.New(account.Config{Store: s.store, Passwords: auth.NewPasswords(1), Heirs: s.heirsForCommand()}))
}

// installed reports whether a server or a command has used the data directory with the
// configured database, which it names.
func (s *Server) installed() (there bool, database string) {
	if s.databaseFile != "" {
		return exists(s.databaseFile), s.databaseFile
	}
	database = s.storeOptions().Name()
	return exists(s.keyFile()), database + " of an installation in " + s.cfg.DataDir
}
