package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

func TestSQLite(t *testing.T) { suite{newSQLite}.run(t) }

// sqliteFile is the path of a database of SQLite.
type sqliteFile string

// newSQLite returns a copy of one file, which has the tables: to make them takes far longer.
func newSQLite(t testing.TB) database {
	t.Helper()
	empty, err := emptySQLite()
	if err != nil {
		t.Fatal(err)
	}
	path := newFile(t)
	if err := os.WriteFile(string(path), empty, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// emptySQLite returns the bytes of a database that a store has opened once.
var emptySQLite = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "storetest")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "berth.db")
	if err := openAndClose(options(path)); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

func newFile(t testing.TB) sqliteFile {
	t.Helper()
	return sqliteFile(filepath.Join(t.TempDir(), "berth.db"))
}

func (path sqliteFile) open(t testing.TB) *store.Store { return openStore(t, options(string(path))) }

func (path sqliteFile) exec(t testing.TB, query string, args ...any) {
	t.Helper()
	db := path.raw(t)
	_, err := db.Exec(query, args...)
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

func (path sqliteFile) row(t testing.TB, query string, args ...any) *sql.Row {
	return path.raw(t).QueryRow(query, args...)
}

func (path sqliteFile) raw(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", string(path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func (path sqliteFile) dump(t testing.TB) string {
	t.Helper()
	files, err := filepath.Glob(string(path) + "*")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	return all.String()
}

func (path sqliteFile) name() string { return string(path) }

func options(path string) store.Options {
	return store.Options{Path: path, Sealer: auth.NewSealer(auth.Key{1}), Log: slog.New(slog.DiscardHandler), Mails: true}
}

// Errors that quote programs may hold one.
func TestSQLite_KeepsTheByteZeroInText(t *testing.T) {
	s := newFile(t).open(t)
	k := newStack("192.0.2.1")
	k.Error = "a\x00b"
	if err := s.Create(t.Context(), k, nil); err != nil {
		t.Fatal(err)
	}
	if got := get(t, s, k.ID); got.Error != k.Error {
		t.Errorf("%q is kept as %q", k.Error, got.Error)
	}
}

func TestOpen_MakesFilesThatOnlyTheOwnerReads(t *testing.T) {
	path := newFile(t)
	s := path.open(t)
	create(t, s)
	for _, suffix := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(string(path) + suffix)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s%s: %v, %v, want mode 0600", path, suffix, info, err)
		}
	}
}

func TestOpen_TakesAnyFileName(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b?c=%41#d&e")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := sqliteFile(filepath.Join(dir, "berth;.db")).open(t)
	get(t, s, create(t, s).ID)
	if _, err := os.Stat(filepath.Join(dir, "berth;.db-wal")); err != nil {
		t.Error(err)
	}
}

func TestOpen_UsesAWriteAheadLog(t *testing.T) {
	path := newFile(t)
	path.open(t)
	var mode string
	if err := path.raw(t).QueryRow("PRAGMA journal_mode").Scan(&mode); err != nil || mode != "wal" {
		t.Errorf("journal mode %q, %v, want wal", mode, err)
	}
}

// logged opens a database and returns it with what Open logged.
func logged(t *testing.T, path sqliteFile) (*store.Store, string) {
	t.Helper()
	var log strings.Builder
	opts := options(string(path))
	opts.Log = slog.New(slog.NewTextHandler(&log, nil))
	s, err := store.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, log.String()
}

func TestOpen_LogsNothingOfANewDatabase(t *testing.T) {
	if _, log := logged(t, newFile(t)); log != "" {
		t.Errorf("it logged:\n%s", log)
	}
}

func TestOpen_BringsADatabaseOfTheFirstVersionUpToDate(t *testing.T) {
	path := newFile(t)
	s := path.open(t)
	k := create(t, s, stack.Event{Type: stack.EventCreated}, stack.Event{Type: stack.EventBuilding})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path.exec(t, `DROP TABLE remains;
		DROP TABLE webhook_owed;
		DROP TABLE nodes;
		DROP TABLE installation;
		DROP TABLE moves;
		DROP TABLE domains;
		ALTER TABLE stacks DROP COLUMN primary_hosts;
		ALTER TABLE stacks DROP COLUMN disk;
		DROP TABLE mails;
		DROP TABLE mail_tokens;
		DROP TABLE certificates;
		DROP TABLE certificate_locks;
		DROP INDEX stacks_of_node;
		DROP INDEX stacks_to_forget;
		ALTER TABLE stacks DROP COLUMN data_key_sealed;
		ALTER TABLE stacks DROP COLUMN pushed;
		ALTER TABLE stacks DROP COLUMN snapshot;
		ALTER TABLE stacks DROP COLUMN regained;
		ALTER TABLE stacks DROP COLUMN data_volumes;
		ALTER TABLE stacks DROP COLUMN node;
		ALTER TABLE stacks DROP COLUMN epoch;
		ALTER TABLE stacks DROP COLUMN noticed;
		ALTER TABLE stacks DROP COLUMN attempted;
		ALTER TABLE stacks DROP COLUMN attempt;
		ALTER TABLE stacks DROP COLUMN last_deploy;
		ALTER TABLE stacks DROP COLUMN generation_attempt;
		ALTER TABLE stacks DROP COLUMN source;
		ALTER TABLE stacks DROP COLUMN caches_dropped;
		ALTER TABLE stacks DROP COLUMN layers;
		ALTER TABLE stacks DROP COLUMN variables_sealed;
		ALTER TABLE stacks DROP COLUMN revoked_token_hash;
		DROP TABLE deliveries;
		DROP TABLE commands;
		DROP TABLE sessions;
		DROP TABLE receipts;
		DROP TABLE webhook_mark;
		DROP TABLE bans;
		DROP TABLE audit;
		ALTER TABLE accounts DROP COLUMN disabled_for;
		ALTER TABLE accounts DROP COLUMN confirmed_at;
		ALTER TABLE accounts DROP COLUMN mail_off;
		ALTER TABLE accounts DROP COLUMN password_hash;
		ALTER TABLE accounts DROP COLUMN key_hint;
		ALTER TABLE accounts DROP COLUMN key_made_at;
		DELETE FROM goose_db_version WHERE version_id > 1`)
	s, log := logged(t, path)
	if !strings.Contains(log, "migrated the database") {
		t.Errorf("the migration is not logged:\n%s", log)
	}
	k.LastDeploy = stack.Deploy{} // which was not kept
	if diff := cmp.Diff(k, get(t, s, k.ID)); diff != "" {
		t.Errorf("the stack read back differs:\n%s", diff)
	}
	if _, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
		k.Noticed = true
		return nil, nil
	}); err != nil || !get(t, s, k.ID).Noticed {
		t.Errorf("noticed is not kept, %v", err)
	}
	if mark, err := s.WebhookMark(t.Context(), ""); err != nil || mark != 2 {
		t.Errorf("the mark of the webhooks is %d, %v, want the newest event, 2", mark, err)
	}
}

func TestMigrations_AreNumberedWithoutAHole(t *testing.T) {
	files, err := filepath.Glob("migrations/sqlite/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d migrations, %v", len(files), err)
	}
	for i, file := range files {
		if want := fmt.Sprintf("%05d_", i+1); !strings.HasPrefix(filepath.Base(file), want) {
			t.Errorf("%s stands where one that begins with %s belongs", file, want)
		}
	}
}

// The fifth migration is younger than the seventh: databases have the others and
// lack it.
func TestOpen_ClearsWhatStacksLeftThatWereDeletedBefore(t *testing.T) {
	path := newFile(t)
	s := path.open(t)
	kept, deleted := create(t, s), fullStack(t, s)
	deleted.Status = stack.Live
	if err := s.Create(t.Context(), deleted, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path.exec(t, `UPDATE stacks SET status = 'deleted' WHERE id = ?; DELETE FROM goose_db_version WHERE version_id = 5`, deleted.ID)
	s = path.open(t)
	checkCleared(t, path, deleted)
	if diff := cmp.Diff(kept, get(t, s, kept.ID)); diff != "" {
		t.Errorf("a stack that is not deleted differs:\n%s", diff)
	}
}

func TestOpen_TakesADatabaseOfANewerProgramOnlyBackFromIt(t *testing.T) {
	file := newFile(t)
	address := newPostgres(t).(postgres)
	for _, c := range []struct {
		db   database
		opts store.Options
	}{{file, options(string(file))}, {address, address.options()}} {
		st := create(t, c.db.open(t))
		c.db.exec(t, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, ?)", true)
		if _, err := store.Open(t.Context(), c.opts); err == nil || !strings.Contains(err.Error(), "version 9999") || !strings.Contains(err.Error(), c.db.name()) {
			t.Errorf("Open = %v, want an error with the database and its version", err)
		}
		c.opts.Newer = true
		get(t, openStore(t, c.opts), st.ID)
	}
}

func TestOpen_NamesTheFileThatIsNoDatabase(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text.db")
	if err := os.WriteFile(text, []byte(strings.Repeat("no database at all\n", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{text, t.TempDir(), filepath.Join(t.TempDir(), "none", "berth.db")} {
		if _, err := store.Open(t.Context(), options(path)); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("Open(%s) = %v, want an error with the file", path, err)
		}
	}
}

func TestOpen_StopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := store.Open(ctx, options(filepath.Join(t.TempDir(), "berth.db"))); err == nil {
		t.Error("Open with a cancelled context worked")
	}
}
