package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/datadir"
	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// databaseRetry is the time after which a database that was not available is tried again.
const databaseRetry = time.Second

// awaitDatabase does a step of the start that uses the database. If the installation has used
// this database of PostgreSQL before and it is not available, it waits and does the step again.
// Meanwhile requests are answered with 503.
func (s *Server) awaitDatabase(ctx context.Context, step func(context.Context) error) error {
	for told := false; ; told = true {
		err := step(ctx)
		if !errors.Is(err, store.ErrUnavailable) || !s.knowsPostgres() {
			return err
		}
		if !told {
			s.log.Warn("the database is not available, and the server waits for it", "error", err)
			defer s.answerStarting("its database")()
			defer s.watchCutOff(ctx)()
		}
		if !pause.For(ctx, databaseRetry) {
			return ctx.Err()
		}
	}
}

// knowsPostgres reports whether the installation has used its database of PostgreSQL.
func (s *Server) knowsPostgres() bool {
	text, err := os.ReadFile(s.dir().Postgres())
	return err == nil && s.databaseFile == "" && strings.TrimSpace(string(text)) == s.storeOptions().Name()
}

// awaitStore is openStore once the database is available.
func (s *Server) awaitStore(ctx context.Context) (key auth.Key, err error) {
	err = s.awaitDatabase(ctx, func(ctx context.Context) (err error) {
		key, err = s.openStore(ctx)
		return err
	})
	return key, err
}

// openStore opens the database, and returns the key that seals its secret values.
func (s *Server) openStore(ctx context.Context) (auth.Key, error) {
	key, err := s.loadKey(ctx)
	if err != nil {
		return auth.Key{}, err
	}
	opts := s.storeOptions()
	opts.Sealer = auth.NewSealer(key)
	if s.store, err = store.Open(ctx, opts); err != nil {
		return auth.Key{}, err
	}
	return key, s.rememberPostgres()
}

func (s *Server) storeOptions() store.Options {
	opts := store.Options{
		Path:     s.databaseFile,
		Log:      s.log,
		Recorded: func(kind stack.EventType) { s.metrics.Event(string(kind)) },
		Mails:    s.cfg.mails(),
		Newer:    s.place != nil && s.place.back,
	}
	if s.databaseFile == "" {
		opts.Postgres = s.cfg.DatabaseURL
	}
	return opts
}

// rememberPostgres records which database of PostgreSQL the installation uses.
func (s *Server) rememberPostgres() error {
	if s.databaseFile != "" || s.knowsPostgres() {
		return nil
	}
	if err := os.WriteFile(s.dir().Postgres(), []byte(s.store.Name()+"\n"), 0o600); err != nil {
		return fmt.Errorf("BERTH_DATA_DIR: %w", err)
	}
	return nil
}

// loadKey reads the installation's key. If it is missing beside a database that is in use,
// it is not created again: nothing sealed with the old one could be read.
func (s *Server) loadKey(ctx context.Context) (auth.Key, error) {
	if s.cfg.KeyFile != "" {
		key, err := auth.ReadKey(s.cfg.KeyFile)
		if err != nil {
			return auth.Key{}, fmt.Errorf("BERTH_KEY_FILE: %w", err)
		}
		return key, nil
	}
	path := s.dir().Key()
	if exists(path) {
		return auth.LoadKey(path)
	}
	used, err := s.databaseIsUsed(ctx)
	if err != nil {
		return auth.Key{}, err
	}
	if used {
		return auth.Key{}, fmt.Errorf("%s is missing, but %s was written with it; restore the key from a backup", path, s.storeOptions().Name())
	}
	return auth.LoadKey(path)
}

// keyFile returns the path of the key.
func (s *Server) keyFile() string { return s.cfg.KeyPath() }

// KeyPath returns the path of the installation's key.
func (c *Config) KeyPath() string { return cmp.Or(c.KeyFile, datadir.Dir(c.DataDir).Key()) }

// databaseIsUsed reports whether there is a file of SQLite, or there are accounts or stacks
// in a database of PostgreSQL.
func (s *Server) databaseIsUsed(ctx context.Context) (bool, error) {
	if s.databaseFile != "" {
		return exists(s.databaseFile), nil
	}
	opened, err := store.Open(ctx, s.storeOptions())
	if err != nil {
		return false, err
	}
	used, err := opened.Used(ctx)
	return used, errors.Join(err, opened.Close())
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
