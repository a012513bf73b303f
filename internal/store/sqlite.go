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
	"syscall"
	"time"

	"github.com/pressly/goose/v3"
	"modernc.org/sqlite" // the driver named sqlite
	sqlitelib "modernc.org/sqlite/lib"
)

// sqliteFile is a database of SQLite. Other processes that open it are an operator's
// commands; no other server does.
type sqliteFile struct {
	path    string
	newer   bool    // see Options
	write   *sql.DB // one connection
	version int64   // of the data, as the write connection had it when it was opened
}

const readConnections = 4

func (f *sqliteFile) name() string { return f.path }

// patience is 0: the connections themselves end their wait for a lock.
func (f *sqliteFile) patience() time.Duration { return 0 }

// email is the column, which ignores the case of ASCII letters.
func (f *sqliteFile) email() string { return "email" }

func (f *sqliteFile) clock() string {
	return "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000"
}

// beside is the pool of all writes: no other store waits for one.
func (f *sqliteFile) beside() *sql.DB { return f.write }

func (f *sqliteFile) open(ctx context.Context, log *slog.Logger) (write, read *sql.DB, err error) {
	if err := touch(f.path); err != nil {
		return nil, nil, fmt.Errorf("create: %w", err)
	}
	f.write, err = connect(f.path, "_journal_mode=WAL&_synchronous=FULL&_foreign_keys=1&_txlock=immediate", 1)
	if err != nil {
		return nil, nil, err
	}
	if err := f.makeTables(ctx, f.write, log); err != nil {
		return f.write, nil, fmt.Errorf("migrate: %w", cmp.Or(damage(ctx, f.write), err))
	}
	if f.version, err = dataVersion(ctx, f.write); err != nil {
		return f.write, nil, err
	}
	read, err = connect(f.path, "_query_only=1", readConnections)
	return f.write, read, err
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

func (f *sqliteFile) cause(err error) error {
	failure, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return nil
	}
	switch failure.Code() & 0xff {
	case sqlitelib.SQLITE_FULL:
		return syscall.ENOSPC
	case sqlitelib.SQLITE_BUSY:
		return ErrUnavailable
	}
	return nil
}

// dataVersion returns a number that changes when a connection other than db's only one
// commits.
func dataVersion(ctx context.Context, db *sql.DB) (version int64, err error) {
	err = db.QueryRowContext(ctx, "PRAGMA data_version").Scan(&version)
	return version, err
}

// otherEvery is how often follow looks.
const otherEvery = time.Second

func (f *sqliteFile) follow(ctx context.Context, changed func(stackID string)) {
	tick := time.NewTicker(otherEvery)
	defer tick.Stop()
	for version := f.version; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now, err := dataVersion(ctx, f.write)
		if err != nil || now == version {
			continue // what cannot be read now is read at the next look
		}
		version = now
		changed("")
	}
}

func (f *sqliteFile) reserve(ctx context.Context, tx *sql.Tx, table, _ string, last int64) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO sqlite_sequence (name, seq)
		SELECT ?, 0 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = ?)`, table, table)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "UPDATE sqlite_sequence SET seq = ? WHERE name = ? AND seq < ?", last, table, last)
	return err
}

func (f *sqliteFile) counter(table, _ string) string {
	return "coalesce((SELECT seq FROM sqlite_sequence WHERE name = '" + table + "'), 0)"
}

// quietPatience is how long quiet waits for a command that is about to end.
const quietPatience = "_pragma=busy_timeout(1000)"

// quiet takes the file's exclusive lock: in that mode SQLite keeps it from the first read on,
// and gets it only if nobody else has the file open.
func (f *sqliteFile) quiet(ctx context.Context) (*sql.DB, error) {
	db, err := connect(f.path, "_foreign_keys=1&_synchronous=FULL&_pragma=locking_mode(EXCLUSIVE)&"+quietPatience, 1)
	if err != nil {
		return nil, err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err == nil {
		_, err = tx.ExecContext(ctx, "SELECT count(*) FROM sqlite_schema")
		err = errors.Join(err, tx.Rollback())
	}
	if err == nil {
		return db, nil
	}
	if errors.Is(f.cause(err), ErrUnavailable) {
		err = errInUse
	} else {
		err = cmp.Or(damage(ctx, db), err)
	}
	return nil, errors.Join(err, db.Close())
}

func (f *sqliteFile) makeTables(ctx context.Context, quiet *sql.DB, log *slog.Logger) error {
	return migrate(ctx, quiet, goose.DialectSQLite3, f.folder(), f.newer, log)
}

func (f *sqliteFile) folder() string { return "sqlite" }

func (f *sqliteFile) schema() string {
	return `SELECT m.name, c.name, false FROM sqlite_schema m JOIN pragma_table_info(m.name) c
		WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite~_%' ESCAPE '~' AND m.name <> 'goose_db_version' ORDER BY m.name, c.cid`
}
