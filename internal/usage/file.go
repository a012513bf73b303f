package usage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"sync"
	"time"

	"modernc.org/sqlite" // the driver named sqlite
	sqlitelib "modernc.org/sqlite/lib"

	"github.com/berth-host/berth/internal/stack"
)

// version is that of the tables. A file of another one is begun anew.
const version = 1

// tables has a row for each point. A size of a step is in seconds, and times of processors
// are in microseconds.
const tables = `CREATE TABLE points (
	stack TEXT NOT NULL, service TEXT NOT NULL, step INTEGER NOT NULL, at INTEGER NOT NULL,
	traffic BLOB NOT NULL, cpu INTEGER NOT NULL, measured INTEGER NOT NULL, memory INTEGER, data INTEGER,
	PRIMARY KEY (stack, service, step, at)
) WITHOUT ROWID`

// file is the database. When it fails, it is closed and opened again with the next step.
type file struct {
	path string
	log  *slog.Logger

	mu   sync.RWMutex
	db   *sql.DB // nil if it is not open
	told bool    // the log says that it is not
}

// ErrClosed means that the database cannot be read at the moment.
var ErrClosed error = &stack.Error{
	Kind: stack.Unavailable, RetryAfter: Finest.Length,
	Detail: "the metrics cannot be read at the moment; everything else goes on, so try again in a moment",
}

// open opens the database, and makes it anew if it is damaged or of another version.
func (f *file) open() {
	db, err := openDB(f.path)
	if isDamaged(err) {
		f.log.Warn("the metrics' database is damaged and begins anew; what was measured is lost", "file", f.path, "error", err)
		if err = removeDB(f.path); err == nil {
			db, err = openDB(f.path)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.complain(err)
		return
	}
	f.db, f.told = db, false
}

// complain logs that nothing is recorded, once. The caller holds mu.
func (f *file) complain(err error) {
	if !f.told {
		f.log.Warn("metrics are not recorded at the moment; trying again", "file", f.path, "error", err)
	}
	f.told = true
}

func (f *file) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.db == nil {
		return
	}
	if err := f.db.Close(); err != nil {
		f.log.Warn("metrics' database not closed", "file", f.path, "error", err)
	}
	f.db = nil
}

// fail closes a database that does not work, so that it is opened again.
func (f *file) fail(err error) {
	f.mu.Lock()
	f.complain(err)
	f.mu.Unlock()
	f.close()
	if isDamaged(err) {
		if err := removeDB(f.path); err != nil {
			f.log.Warn("damaged metrics' database not removed", "file", f.path, "error", err)
		}
	}
}

// write does something with the database in one transaction. A database whose file somebody
// removed is another one by then.
func (f *file) write(do func(ctx context.Context, tx *sql.Tx) error) {
	if _, err := os.Stat(f.path); errors.Is(err, fs.ErrNotExist) {
		f.close()
	}
	f.mu.RLock()
	db := f.db
	f.mu.RUnlock()
	if db == nil {
		f.open()
	}
	if err := f.use(func(db *sql.DB) error { return inTx(db, do) }); err != nil && !errors.Is(err, ErrClosed) {
		f.fail(err)
	}
}

// use does something with the database while it is open.
func (f *file) use(do func(db *sql.DB) error) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.db == nil {
		return ErrClosed
	}
	return do(f.db)
}

// writeWait is how long a transaction may take.
const writeWait = 10 * time.Second

func inTx(db *sql.DB, do func(ctx context.Context, tx *sql.Tx) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), writeWait)
	defer cancel()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(ctx, tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// connections is how many connections there are; one of them writes.
const connections = 3

func openDB(path string) (*sql.DB, error) {
	made, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := made.Close(); err != nil {
		return nil, err
	}
	dsn := url.URL{Scheme: "file", Path: path, RawQuery: "_busy_timeout=5000&_journal_mode=WAL&_synchronous=NORMAL"}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	if err := prepare(db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// errVersion means that another version made the file.
var errVersion = errors.New("its tables are of another version")

// prepare makes the tables of a new file, and checks the version of another one.
func prepare(db *sql.DB) error {
	return inTx(db, func(ctx context.Context, tx *sql.Tx) error {
		var found int
		if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&found); err != nil || found == version {
			return err
		}
		if found != 0 {
			return errVersion
		}
		if _, err := tx.ExecContext(ctx, tables); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", version))
		return err
	})
}

// isDamaged reports whether an error is about the file itself.
func isDamaged(err error) bool {
	if errors.Is(err, errVersion) || errors.Is(err, errTraffic) {
		return true
	}
	failure, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return false
	}
	code := failure.Code() & 0xff
	return code == sqlitelib.SQLITE_CORRUPT || code == sqlitelib.SQLITE_NOTADB || code == sqlitelib.SQLITE_ERROR
}

// removeDB removes the database's files.
func removeDB(path string) error {
	for _, name := range []string{path + "-wal", path + "-shm", path} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
