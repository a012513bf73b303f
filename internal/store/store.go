// Package store is the database, and the only writer of accounts, stacks and events. A
// change of a stack and its events form one transaction; watchers are woken after the
// commit and read again. Callers pass a change as a function, which may refuse it; code
// in this package touches only the database.
//
// The database is one file of SQLite in WAL mode, or a database of PostgreSQL, which other
// servers may have open too. Commits wait until they are on disk, so a token is never
// handed out for a row that a power cut takes back. All writes of a store go through one
// connection and all reads through a separate pool, so neither waits for the other. Writes
// of several transactions never overlap, over all stores of a database: a reader that
// follows the events by their ids misses none.
//
// Statements are written as both understand them, with ? for each parameter in turn. Only
// what implements dialect depends on one of them: sqlite.go, postgres.go and the
// migrations of each. Copy takes all rows from one kind to the other.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/stack"
)

// Options tell Open where the database is and what it needs.
type Options struct {
	Path     string // of the SQLite file; created if it is missing, unlike its folder
	Postgres string // address of a database of PostgreSQL, to use instead of the file
	Sealer   Sealer
	Log      *slog.Logger

	Recorded func(stack.EventType) // called after the commit of each event; may be nil
	Mails    bool                  // record the mails about events, since somebody sends them
	Newer    bool                  // accept the tables of a newer program, which fit the one before it
}

// Sealer keeps secrets in the file unreadable. A value opens only with the row and
// column that it was sealed for.
type Sealer interface {
	Seal(plain []byte, row, column string) []byte
	Open(sealed []byte, row, column string) ([]byte, error)
}

// Store is an open database. Its methods may be called by several goroutines at once.
// Errors other than *stack.Error name the database.
type Store struct {
	dialect dialect
	sealer  Sealer
	write   *sql.DB // one connection
	read    *sql.DB
	beside  *sql.DB // for the leases of nodes, which must not wait for a transaction
	watch   watchers

	recorded func(stack.EventType)
	mails    bool
	patient  bool // calls take as long as they need
}

// Open opens the database and brings its tables up to date. The caller must ensure that
// no other server has the file of SQLite open.
func Open(ctx context.Context, opts Options) (*Store, error) {
	dialect, err := opts.dialect()
	if err != nil {
		return nil, err
	}
	s := &Store{dialect: dialect, sealer: opts.Sealer, recorded: opts.Recorded, mails: opts.Mails, watch: watchers{by: map[string][]chan struct{}{}}}
	if s.recorded == nil {
		s.recorded = func(stack.EventType) {}
	}
	if s.write, s.read, err = dialect.open(ctx, opts.Log); err != nil {
		return nil, errors.Join(s.fault("open", err), s.Close())
	}
	s.beside = dialect.beside()
	return s, nil
}

func (o Options) dialect() (dialect, error) {
	if o.Postgres != "" {
		return newPostgres(o.Postgres, o.Newer)
	}
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, fmt.Errorf("database %s: %w", o.Path, err)
	}
	return &sqliteFile{path: path, newer: o.Newer}, nil
}

// Name returns the database for errors: the path of its file, or its address without a
// password. It is "" for options that Open refuses.
func (o Options) Name() string {
	dialect, err := o.dialect()
	if err != nil {
		return ""
	}
	return dialect.name()
}

// Name returns the path of the database's file, or its address without a password.
func (s *Store) Name() string { return s.dialect.name() }

// Used reports whether there has been an account or a stack.
func (s *Store) Used(ctx context.Context) (bool, error) {
	_, used, err := readOne(ctx, s, s.read, "look for accounts and stacks", onlyPlace[int],
		"SELECT 1 WHERE EXISTS (SELECT 1 FROM accounts) OR EXISTS (SELECT 1 FROM stacks)")
	return used, err
}

// Close waits for the calls under way and closes the database.
func (s *Store) Close() error {
	var errs []error
	for _, db := range []*sql.DB{s.beside, s.read, s.write} {
		if db != nil {
			errs = append(errs, s.fault("close", db.Close()))
		}
	}
	return errors.Join(errs...)
}

// transact runs do in a transaction of the write connection. If do fails, it rolls back
// and returns the error as it is.
func (s *Store) transact(ctx context.Context, do func(*sql.Tx) error) error {
	if err := failpoint.Error("store-begin"); err != nil {
		return s.fault("begin", err)
	}
	limited, cancel := s.limit(ctx)
	defer cancel()
	tx, err := s.write.BeginTx(limited, nil)
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
	return s.fault("commit", tx.Commit())
}

// querier is a pool or a transaction.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// exec runs a statement; the error says what was being done.
func (s *Store) exec(ctx context.Context, q querier, doing, query string, args ...any) error {
	ctx, cancel := s.limit(ctx)
	defer cancel()
	_, err := q.ExecContext(ctx, query, args...)
	return s.fault(doing, err)
}

// readAll returns the rows that a query finds, each read into the places of a new value.
// Unless it fails, the slice is not nil; the error says what was being done.
func readAll[T any](ctx context.Context, s *Store, q querier, doing string, places func(*T) []any, query string, args ...any) ([]T, error) {
	ctx, cancel := s.limit(ctx)
	defer cancel()
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, s.fault(doing, err)
	}
	defer rows.Close()
	all := []T{}
	for rows.Next() {
		var one T
		if err := rows.Scan(places(&one)...); err != nil {
			return nil, s.fault(doing, err)
		}
		all = append(all, one)
	}
	return all, s.fault(doing, rows.Err())
}

// readOne is readAll for a query that finds one row at most; ok is false if it finds
// none.
func readOne[T any](ctx context.Context, s *Store, q querier, doing string, places func(*T) []any, query string, args ...any) (one T, ok bool, err error) {
	all, err := readAll(ctx, s, q, doing, places, query, args...)
	if err != nil || len(all) == 0 {
		return one, false, err
	}
	return all[0], true, nil
}

// onlyPlace is the place of a row of one column.
func onlyPlace[T any](value *T) []any { return []any{value} }

// limit returns a context that ends with ctx, and when a call has taken too long.
func (s *Store) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if limit := s.dialect.patience(); limit > 0 && !s.patient {
		return context.WithTimeout(ctx, limit)
	}
	return ctx, func() {}
}

// fault wraps an error of the database with what was being done and which database it is,
// in one line. A full disk is syscall.ENOSPC; nil stays nil.
func (s *Store) fault(doing string, err error) error {
	if err == nil {
		return nil
	}
	text := strings.Join(strings.Fields(err.Error()), " ")
	return &fault{
		text:  fmt.Sprintf("database %s: %s: %s", s.dialect.name(), doing, text),
		err:   err,
		cause: s.dialect.cause(err),
	}
}

// fault is an error of the database and what it means, nil for nothing known.
type fault struct {
	text       string
	err, cause error
}

func (f *fault) Error() string { return f.text }

func (f *fault) Unwrap() []error {
	if f.cause == nil {
		return []error{f.err}
	}
	return []error{f.err, f.cause}
}

// Reserve makes stacks created from now on get a Seq above last.
func (s *Store) Reserve(ctx context.Context, last int64) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		return s.fault("reserve numbers of stacks", s.dialect.reserve(ctx, tx, "stacks", "seq", last))
	})
}
