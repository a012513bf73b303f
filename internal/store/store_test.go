package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// open opens a new database in a folder of the test.
func open(t testing.TB) (*store.Store, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "berth.db")
	return reopen(t, path), path
}

func reopen(t testing.TB, path string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), options(path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func options(path string) store.Options {
	return store.Options{Path: path, Sealer: auth.NewSealer(auth.Key{1}), Log: slog.New(slog.DiscardHandler)}
}

// create stores a small stack of one network.
func create(t testing.TB, s *store.Store, events ...stack.Event) *stack.Stack {
	t.Helper()
	k := stack.New("guestbook", []stack.Spec{{Name: "web"}}, stack.Now())
	k.Network = "192.0.2.1"
	if err := s.Create(t.Context(), k, 0, events...); err != nil {
		t.Fatal(err)
	}
	return k
}

func get(t testing.TB, s *store.Store, id string) *stack.Stack {
	t.Helper()
	k, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// raw opens the file beside the store, as a shell would.
func raw(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// fill gives every field below v a value of its own, so that a field that the
// store forgets is missed.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("it's \x00 <%d> ü", *n))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8:
		v.SetUint(uint64(*n % 256))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, n)
		fill(value, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.UnixMicro(1_800_000_000_123_456 + int64(*n)).UTC()))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	default:
		panic("fill cannot make a " + v.Type().String())
	}
}

func fullStack(t *testing.T, s *store.Store) *stack.Stack {
	t.Helper()
	account, err := s.CreateAccount(t.Context(), "ana@example.com", "", store.Key{Hash: []byte("hash")})
	if err != nil {
		t.Fatal(err)
	}
	k := &stack.Stack{}
	fill(reflect.ValueOf(k).Elem(), new(int))
	k.Owner = account.ID
	return k
}

func TestStore_KeepsEveryFieldOfAStack(t *testing.T) {
	s, path := open(t)
	full := fullStack(t, s)
	for name, k := range map[string]*stack.Stack{
		"zero":  {ID: "stk_0"},
		"new":   stack.New("new", []stack.Spec{{Name: "web", Env: map[string]stack.Env{}}, {Name: "api"}}, stack.Now()),
		"large": {ID: "stk_1", Error: strings.Repeat("x", 1<<20), Secrets: map[string]string{"web/KEY": strings.Repeat("y", 1<<20)}},
		"full":  full,
	} {
		if err := s.Create(t.Context(), k, 0); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(k, get(t, s, k.ID)); diff != "" {
			t.Errorf("%s, read back (-stored +read):\n%s", name, diff)
		}
		if diff := cmp.Diff(k, get(t, reopen(t, path), k.ID)); diff != "" {
			t.Errorf("%s, read after opening again (-stored +read):\n%s", name, diff)
		}
	}
}

func TestStore_KeepsEveryFieldOfAnUpdate(t *testing.T) {
	s, _ := open(t)
	full := fullStack(t, s)
	k := create(t, s)
	for name, want := range map[string]stack.Stack{"full": *full, "zero": {}} {
		want.ID, want.Seq = k.ID, k.Seq
		got, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
			*k = want
			k.ID, k.Seq = "stk_other", 77
			return nil, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("%s, returned (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(&want, get(t, s, k.ID)); diff != "" {
			t.Errorf("%s, read back (-want +got):\n%s", name, diff)
		}
	}
}

func TestStore_WritesNoSecretIntoItsFiles(t *testing.T) {
	s, path := open(t)
	token, code, webhook := auth.NewManageToken(), auth.NewClaimCode(), auth.NewWebhookSecret()
	k := stack.New("guestbook", []stack.Spec{{Name: "web", Env: map[string]stack.Env{"API_TOKEN": {Value: "hunter2-in-env"}}}}, stack.Now())
	k.ManageTokenHash, k.ClaimCodeHash = auth.Hash(token), auth.Key{1}.HashClaimCode(code)
	k.WebhookSecret = webhook
	k.Secrets["web/SESSION_KEY"] = "generated-for-session"
	if err := s.Create(t.Context(), k, 0, k.Created()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
		k.Secrets["web/SECOND"] = "generated-second"
		return nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	if got := get(t, s, k.ID); got.WebhookSecret != webhook || got.Secrets["web/SECOND"] != "generated-second" {
		t.Errorf("the secrets read back are %q and %v", got.WebhookSecret, got.Secrets)
	}
	files := read(t, filepath.Dir(path))
	if !strings.Contains(files, k.ID) {
		t.Fatal("the files do not even hold the stack's id")
	}
	for _, secret := range []string{token, code, webhook, "hunter2-in-env", "API_TOKEN", "generated-for-session", "SESSION_KEY", "generated-second"} {
		if strings.Contains(files, secret) {
			t.Errorf("the database's files hold %q", secret)
		}
	}
}

// read is all bytes of all files in a folder.
func read(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, entry := range entries {
		b, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	return all.String()
}

func TestStore_ForgetsTheSecretsOfADeletedStack(t *testing.T) {
	s, path := open(t)
	k := fullStack(t, s)
	k.Status = stack.Live
	if err := s.Create(t.Context(), k, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) { return k.Delete(stack.Now()) }); err != nil {
		t.Fatal(err)
	}
	if err := s.ForgetWebhook(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	var left int
	err := raw(t, path).QueryRow(`SELECT count(*) FROM stacks WHERE coalesce(
		manage_token_hash, claim_code_hash, webhook_secret_sealed, secrets_sealed, env_sealed) IS NOT NULL`).Scan(&left)
	if err != nil || left != 0 {
		t.Errorf("%d deleted stacks hold something secret, %v", left, err)
	}
}

func TestOpen_MakesFilesThatOnlyTheOwnerReads(t *testing.T) {
	s, path := open(t)
	create(t, s)
	for _, suffix := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(path + suffix)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v, want mode 0600", path+suffix, info, err)
		}
	}
}

func TestOpen_TakesAnyFileName(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b?c=%41#d&e")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := reopen(t, filepath.Join(dir, "berth;.db"))
	get(t, s, create(t, s).ID)
	if _, err := os.Stat(filepath.Join(dir, "berth;.db-wal")); err != nil {
		t.Error(err)
	}
}

func TestOpen_UsesAWriteAheadLog(t *testing.T) {
	_, path := open(t)
	var mode string
	if err := raw(t, path).QueryRow("PRAGMA journal_mode").Scan(&mode); err != nil || mode != "wal" {
		t.Errorf("journal mode %q, %v, want wal", mode, err)
	}
}

// logged opens a database and returns it with what Open logged.
func logged(t *testing.T, path string) (*store.Store, string) {
	t.Helper()
	var log strings.Builder
	opts := options(path)
	opts.Log = slog.New(slog.NewTextHandler(&log, nil))
	s, err := store.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, log.String()
}

func TestOpen_LogsNothingOfANewDatabase(t *testing.T) {
	if _, log := logged(t, filepath.Join(t.TempDir(), "berth.db")); log != "" {
		t.Errorf("it logged:\n%s", log)
	}
}

func TestOpen_BringsADatabaseOfTheFirstVersionUpToDate(t *testing.T) {
	s, path := open(t)
	k := create(t, s, stack.Event{Type: stack.EventCreated}, stack.Event{Type: stack.EventBuilding})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := raw(t, path).Exec(`ALTER TABLE stacks DROP COLUMN noticed;
		ALTER TABLE stacks DROP COLUMN attempted;
		ALTER TABLE stacks DROP COLUMN revoked_token_hash;
		DROP TABLE deliveries;
		DROP TABLE sessions;
		DROP TABLE receipts;
		DROP TABLE webhook_mark;
		ALTER TABLE accounts DROP COLUMN password_hash;
		ALTER TABLE accounts DROP COLUMN key_hint;
		ALTER TABLE accounts DROP COLUMN key_made_at;
		DELETE FROM goose_db_version WHERE version_id > 1`); err != nil {
		t.Fatal(err)
	}
	s, log := logged(t, path)
	if !strings.Contains(log, "migrated the database") {
		t.Errorf("the migration is not logged:\n%s", log)
	}
	if diff := cmp.Diff(k, get(t, s, k.ID)); diff != "" {
		t.Errorf("the stack read back differs:\n%s", diff)
	}
	if _, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
		k.Noticed = true
		return nil, nil
	}); err != nil || !get(t, s, k.ID).Noticed {
		t.Errorf("noticed is not kept, %v", err)
	}
	if mark, err := s.WebhookMark(t.Context()); err != nil || mark != 2 {
		t.Errorf("the mark of the webhooks is %d, %v, want the newest event, 2", mark, err)
	}
}

func TestMigrations_AreNumberedWithoutAHole(t *testing.T) {
	files, err := filepath.Glob("migrations/*.sql")
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
	s, path := open(t)
	kept, deleted := create(t, s), fullStack(t, s)
	deleted.Status = stack.Live
	if err := s.Create(t.Context(), deleted, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := raw(t, path).Exec(`UPDATE stacks SET status = 'deleted' WHERE id = ?; DELETE FROM goose_db_version WHERE version_id = 5`, deleted.ID); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, path)
	checkCleared(t, path, deleted)
	if diff := cmp.Diff(kept, get(t, s, kept.ID)); diff != "" {
		t.Errorf("a stack that is not deleted differs:\n%s", diff)
	}
}

func TestUpdate_ADeletionClearsWhatIsNotNeededAfterIt(t *testing.T) {
	s, path := open(t)
	k := fullStack(t, s)
	k.Status = stack.Live
	if err := s.Create(t.Context(), k, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) { return k.Delete(stack.Now()) }); err != nil {
		t.Fatal(err)
	}
	checkCleared(t, path, k)
}

// checkCleared looks into the row of a deleted stack, which had something in
// every field.
func checkCleared(t *testing.T, path string, was *stack.Stack) {
	t.Helper()
	var services, row string
	err := raw(t, path).QueryRow(`SELECT services, claim_email || network || error || deploy_error ||
		coalesce(secrets_sealed, '') || coalesce(env_sealed, '') FROM stacks WHERE id = ? AND status = 'deleted'`, was.ID).Scan(&services, &row)
	if err != nil || strings.Contains(services, "start") || len(services) > len("null") || row != "" {
		t.Errorf("services %s and %q are kept, %v", services, row, err)
	}
}

func TestOpen_RefusesADatabaseOfANewerProgram(t *testing.T) {
	s, path := open(t)
	create(t, s)
	if _, err := raw(t, path).Exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)"); err != nil {
		t.Fatal(err)
	}
	_, err := store.Open(t.Context(), options(path))
	if err == nil || !strings.Contains(err.Error(), "version 9999") || !strings.Contains(err.Error(), path) {
		t.Errorf("Open = %v, want an error with the file and its version", err)
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
