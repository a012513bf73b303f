// Package store is the database, and the only writer of accounts, stacks and
// events. A change of a stack and the events that tell of it are one
// transaction; whoever watches is woken after the commit and reads again.
//
// The database is one SQLite file in WAL mode. Commits wait until they are on
// disk, so a token is never handed out for a row that a power cut takes back.
// All writes go through one connection and reads through a pool of their own,
// so that neither waits for the other.
package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"syscall"

	"modernc.org/sqlite" // the driver named sqlite
	sqlitelib "modernc.org/sqlite/lib"

	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/stack"
)

// Options say where the database is and what it needs.
type Options struct {
	Path   string // of the SQLite file; made when it is missing, its folder is not
	Sealer Sealer
	Log    *slog.Logger

	Recorded func(stack.EventType) // called after the commit of each event; nil for nobody
}

// Sealer keeps what is secret unreadable in the file. A value opens only with
// the row and column that it was sealed for.
type Sealer interface {
	Seal(plain []byte, row, column string) []byte
	Open(sealed []byte, row, column string) ([]byte, error)
}

// Store is an open database. Its methods may be called from several goroutines.
// Errors other than *stack.Error name the file.
type Store struct {
	path   string
	sealer Sealer
	write  *sql.DB // one connection
	read   *sql.DB
	watch  watchers

	version int64 // of the data, as the write connection had it when it was opened

	recorded func(stack.EventType)
}

const readConnections = 4

// Open opens the database and brings its tables up to date. That no second
// server has it open is the caller's business.
func Open(ctx context.Context, opts Options) (*Store, error) {
	path, err := filepath.Abs(opts.Path)
	if err != nil {
		return nil, fmt.Errorf("database %s: %w", opts.Path, err)
	}
	s := &Store{path: path, sealer: opts.Sealer, recorded: opts.Recorded}
	if s.recorded == nil {
		s.recorded = func(stack.EventType) {}
	}
	if err := s.open(ctx, opts.Log); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close waits for what is under way and closes the file.
func (s *Store) Close() error {
	var errs []error
	for _, db := range []*sql.DB{s.read, s.write} {
		if db == nil {
			continue
		}
		if err := db.Close(); err != nil {
			errs = append(errs, s.fault("close", err))
		}
	}
	return errors.Join(errs...)
}

func (s *Store) open(ctx context.Context, log *slog.Logger) error {
	if err := touch(s.path); err != nil {
		return s.fault("create", err)
	}
	var err error
	if s.write, err = connect(s.path, "_journal_mode=WAL&_synchronous=FULL&_foreign_keys=1&_txlock=immediate", 1); err != nil {
		return s.fault("open", err)
	}
	if err := migrate(ctx, s.write, log); err != nil {
		return s.fault("migrate", cmp.Or(damage(ctx, s.write), err))
	}
	if s.version, err = dataVersion(ctx, s.write); err != nil {
		return s.fault("open", err)
	}
	if s.read, err = connect(s.path, "_query_only=1", readConnections); err != nil {
		return s.fault("open for reading", err)
	}
	return nil
}

// transact runs do in a transaction of the write connection. An error of do
// rolls back and is returned as it is.
func (s *Store) transact(ctx context.Context, do func(*sql.Tx) error) error {
	if err := failpoint.Error("store-begin"); err != nil {
		return s.fault("begin", err)
	}
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return s.fault("begin", err)
	}
	defer tx.Rollback() // does nothing after a commit; a connection that cannot roll back is dropped
	if err := do(tx); err != nil {
		return err
	}
	if err := failpoint.Error("store-commit"); err != nil {
		return s.fault("commit", err)
	}
	if err := tx.Commit(); err != nil {
		return s.fault("commit", err)
	}
	return nil
}

// fault wraps an error of the database with what was being done and the file. A
// full disk is syscall.ENOSPC.
func (s *Store) fault(doing string, err error) error {
	var failure *sqlite.Error
	if errors.As(err, &failure) && failure.Code()&0xff == sqlitelib.SQLITE_FULL {
		err = fmt.Errorf("%w (%w)", err, syscall.ENOSPC)
	}
	return fmt.Errorf("database %s: %s: %w", s.path, doing, err)
}

// touch makes an empty database that only its owner may read; SQLite gives its
// other files the same mode.
func touch(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// damage is what is wrong with the file itself, nil when nothing is found.
func damage(ctx context.Context, db *sql.DB) error {
	var found string
	if err := db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&found); err != nil {
		return err
	}
	if found == "ok" {
		return nil
	}
	return fmt.Errorf("the file is malformed, put back a copy of it: %s", found)
}

// connect makes a pool of connections that wait 10 s for another process's
// lock, for example of a shell that looks into the file.
func connect(path, params string, connections int) (*sql.DB, error) {
	dsn := url.URL{Scheme: "file", Path: path, RawQuery: "_busy_timeout=10000&" + params}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}
