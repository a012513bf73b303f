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

	"modernc.org/sqlite" // the driver named sqlite
	sqlitelib "modernc.org/sqlite/lib"
)

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
	s.read, err = connect(s.path, "_query_only=1", readConnections)
	return s.fault("open for reading", err)
}

// touch creates an empty database that only its owner may read, if there is none;
// SQLite gives its other files the same mode.
func touch(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// damage looks for faults in the file itself, and returns nil if it finds none.
func damage(ctx context.Context, db *sql.DB) error {
	var found string
	if err := db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&found); err != nil {
		return err
	}
	if found == "ok" {
		return nil
	}
	return fmt.Errorf("the file is malformed; restore a copy of it: %s", found)
}

// connect opens a pool of connections that wait 10 s for another process's
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

// isFull reports whether err means that the disk is full.
func isFull(err error) bool {
	failure, ok := errors.AsType[*sqlite.Error](err)
	return ok && failure.Code()&0xff == sqlitelib.SQLITE_FULL
}

// dataVersion returns a number that changes when a connection other than db's only one
// commits.
func dataVersion(ctx context.Context, db *sql.DB) (version int64, err error) {
	err = db.QueryRowContext(ctx, "PRAGMA data_version").Scan(&version)
	return version, err
}

// Reserve makes stacks created from now on get a Seq above last.
func (s *Store) Reserve(ctx context.Context, last int64) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		err := s.exec(ctx, tx, "reserve numbers of stacks", `INSERT INTO sqlite_sequence (name, seq)
			SELECT 'stacks', 0 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'stacks')`)
		if err != nil {
			return err
		}
		return s.exec(ctx, tx, "reserve numbers of stacks", "UPDATE sqlite_sequence SET seq = ? WHERE name = 'stacks' AND seq < ?", last, last)
	})
}
