package store

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
)

// openInside opens a store whose connections the test may set up for a fault.
func openInside(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.Context(), Options{
		Path:   filepath.Join(t.TempDir(), "berth.db"),
		Sealer: auth.NewSealer(auth.Key{1}),
		Log:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func createBig(t *testing.T, s *Store) (*stack.Stack, error) {
	t.Helper()
	k := stack.New("guestbook", nil, stack.Now())
	k.Error = strings.Repeat("x", 1<<16)
	k.Secrets["web/KEY"] = "secret"
	return k, s.Create(t.Context(), k, nil)
}

func wantFault(t *testing.T, s *Store, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), s.dialect.name()) || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v, want one with %q that names %s", err, text, s.dialect.name())
	}
}

func TestStore_NamesTheFileWhenTheDiskIsFull(t *testing.T) {
	s := openInside(t)
	if _, err := s.write.Exec("PRAGMA max_page_count = 40"); err != nil {
		t.Fatal(err)
	}
	var stored []*stack.Stack
	for {
		k, err := createBig(t, s)
		if err != nil {
			wantFault(t, s, err, "full")
			if !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("error %v is not known for a full disk", err)
			}
			break
		}
		stored = append(stored, k)
	}
	for _, k := range stored {
		if _, err := s.Get(t.Context(), k.ID); err != nil {
			t.Errorf("what was stored before: %v", err)
		}
	}
}

func TestStore_NamesTheFileWhenItIsLocked(t *testing.T) {
	s := openInside(t)
	if _, err := s.write.Exec("PRAGMA busy_timeout = 1"); err != nil {
		t.Fatal(err)
	}
	other, err := connect(s.dialect.name(), "_txlock=immediate", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	tx, err := other.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = createBig(t, s)
	wantFault(t, s, err, "locked")
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if _, err := createBig(t, s); err != nil {
		t.Errorf("after the lock was released: %v", err)
	}
}

func TestStore_NamesTheFileWhenItIsDamaged(t *testing.T) {
	s := openInside(t)
	k, err := createBig(t, s)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(s.dialect.name())
	if err != nil {
		t.Fatal(err)
	}
	for i := 4096; i < len(file); i++ { // all but the first page
		file[i] = 0xa5
	}
	if err := os.WriteFile(s.dialect.name(), file, 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := Open(t.Context(), Options{Path: s.dialect.name(), Sealer: s.sealer, Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		defer again.Close()
		_, err = again.Get(t.Context(), k.ID)
	}
	wantFault(t, s, err, "malformed")
}

func TestStore_NamesTheFileAndColumnThatDoNotOpen(t *testing.T) {
	s := openInside(t)
	k, err := createBig(t, s)
	if err != nil {
		t.Fatal(err)
	}
	other := bytes.Repeat([]byte{1}, 60)
	if _, err := s.write.Exec("UPDATE stacks SET secrets_sealed = ?", other); err != nil {
		t.Fatal(err)
	}
	_, err = s.Get(t.Context(), k.ID)
	wantFault(t, s, err, "sealed secrets of "+k.ID)
	_, err = s.All(t.Context())
	wantFault(t, s, err, "sealed secrets of "+k.ID)
}

func TestStore_RefusesSealedValuesThatWereSwapped(t *testing.T) {
	s := openInside(t)
	a, err := createBig(t, s)
	if err != nil {
		t.Fatal(err)
	}
	b, err := createBig(t, s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.write.Exec(`UPDATE stacks SET secrets_sealed = (SELECT secrets_sealed FROM stacks WHERE id = ?)
		WHERE id = ?`, a.ID, b.ID); err != nil {
		t.Fatal(err)
	}
	_, err = s.Get(t.Context(), b.ID)
	wantFault(t, s, err, "sealed secrets of "+b.ID)
}

func TestStore_WritesSafelyAndReadsWithoutWriting(t *testing.T) {
	s := openInside(t)
	for pragma, want := range map[string]int{"synchronous": 2, "foreign_keys": 1, "busy_timeout": 10_000} {
		var got int
		if err := s.write.QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
			t.Errorf("%s = %d, %v, want %d", pragma, got, err, want)
		}
	}
	if _, err := s.read.Exec("DELETE FROM stacks"); err == nil {
		t.Error("a connection for reading writes")
	}
}

func TestStore_FailsWithItsContext(t *testing.T) {
	s := openInside(t)
	k, err := createBig(t, s)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, errs := s.Get(ctx, k.ID)
	_, list := s.All(ctx)
	_, events := s.Events(ctx, k.ID, 0, 1)
	_, _, token := s.FindManageToken(ctx, []byte("x"))
	_, _, account := s.AccountByKey(ctx, []byte("x"))
	_, create := s.CreateAccount(ctx, "ana@example.com", "", Key{Hash: []byte("x")})
	for _, err := range []error{errs, list, events, token, account, create} {
		wantFault(t, s, err, context.Canceled.Error())
	}
}
