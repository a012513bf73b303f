package certs

import (
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/store"
)

// twoShelves are those of two nodes with one database.
func twoShelves(t *testing.T, lease time.Duration) (a, b *shelf, db *store.Store) {
	t.Helper()
	db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "berth.db"), Sealer: auth.NewSealer(auth.Key{1}), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	for _, s := range []**shelf{&a, &b} {
		*s = newShelf()
		(*s).lease, (*s).retry = lease, 5*time.Millisecond
		var shared Shared = db
		(*s).shared.Store(&shared)
	}
	return a, b, db
}

func TestShelf_IsAFolderOfAllNodes(t *testing.T) {
	a, b, _ := twoShelves(t, time.Minute)
	for _, key := range []string{"certificates/x/x.crt", "certificates/x/x.key", "certificates/y/y.crt", "acme/users/ops"} {
		if err := a.Store(t.Context(), key, []byte(key)); err != nil {
			t.Fatal(err)
		}
	}
	if value, err := b.Load(t.Context(), "certificates/x/x.key"); string(value) != "certificates/x/x.key" || err != nil {
		t.Errorf("%q, %v", value, err)
	}
	list := func(folder string, recursive bool, want ...string) {
		t.Helper()
		got, err := b.List(t.Context(), folder, recursive)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v\n%s", err, diff)
		}
	}
	list("certificates", false, "certificates/x", "certificates/y")
	list("certificates/x", false, "certificates/x/x.crt", "certificates/x/x.key")
	list("certificates", true, "certificates/x/x.crt", "certificates/x/x.key", "certificates/y/y.crt")
	if info, err := b.Stat(t.Context(), "certificates/x/x.key"); err != nil || !info.IsTerminal || info.Size != 20 || time.Since(info.Modified) > time.Minute {
		t.Errorf("%+v, %v", info, err)
	}
	if info, err := b.Stat(t.Context(), "certificates/x"); err != nil || info.IsTerminal {
		t.Errorf("%+v, %v", info, err)
	}
	if err := b.Delete(t.Context(), "certificates/x"); err != nil {
		t.Fatal(err)
	}
	_, err := a.Load(t.Context(), "certificates/x/x.key")
	_, listErr := a.List(t.Context(), "certificates/x", true)
	if a.Exists(t.Context(), "certificates/x") || !a.Exists(t.Context(), "certificates/y/y.crt") || !errors.Is(err, fs.ErrNotExist) || !errors.Is(listErr, fs.ErrNotExist) {
		t.Errorf("after a delete: %v, %v", err, listErr)
	}
}

func TestShelf_HasNothingBeforeShare(t *testing.T) {
	s := newShelf()
	_, err := s.Load(t.Context(), "x")
	for _, err := range []error{err, s.Store(t.Context(), "x", nil), s.Delete(t.Context(), "x"), s.Lock(t.Context(), "x")} {
		if !errors.Is(err, errNotShared) {
			t.Error(err)
		}
	}
}

func TestShelf_LockIsKeptWhileItIsHeldAndTakenOverWhenItsLeaseIsOver(t *testing.T) {
	a, b, db := twoShelves(t, 3*time.Second)
	if err := a.Lock(t.Context(), "order"); err != nil {
		t.Fatal(err)
	}
	if again, err := a.TryLock(t.Context(), "order"); again || err != nil {
		t.Errorf("the same node has it twice: %v", err)
	}
	waited := make(chan error, 1)
	go func() { waited <- b.Lock(t.Context(), "order") }()
	time.Sleep(4 * time.Second)
	if len(waited) > 0 {
		t.Fatalf("another has a lock that is held, %v", <-waited)
	}
	if err := a.Unlock(t.Context(), "order"); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	if err := b.Unlock(t.Context(), "order"); err != nil {
		t.Fatal(err)
	}
	// A node that died, which renews nothing.
	if locked, err := db.LockCertificate(t.Context(), "order", "dead", 3*time.Second); !locked || err != nil {
		t.Fatal(locked, err)
	}
	if locked, err := a.TryLock(t.Context(), "order"); locked || err != nil {
		t.Fatalf("a lease that holds is taken over: %v", err)
	}
	if err := a.Lock(t.Context(), "order"); err != nil {
		t.Error(err)
	}
}
