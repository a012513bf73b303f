package store_test

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/store"
)

func (on suite) TestCertificates_AreKeptSealed(t *testing.T) {
	s, db := on.open(t)
	put := func(key, value string) {
		t.Helper()
		if err := s.PutCertificate(t.Context(), key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	put("certificates/a/a.key", "private")
	put("certificates/a/a.key", "private again")
	value, modified, ok, err := db.open(t).Certificate(t.Context(), "certificates/a/a.key")
	if string(value) != "private again" || !ok || err != nil || time.Since(modified).Abs() > time.Minute {
		t.Errorf("%q of %s, %v, %v", value, modified, ok, err)
	}
	var sealed []byte
	if err := db.row(t, "SELECT value_sealed FROM certificates").Scan(&sealed); err != nil || bytes.Contains(sealed, []byte("private")) {
		t.Errorf("stored is %q, %v", sealed, err)
	}
	put("certificates/b/b.key", "other")
	db.exec(t, "UPDATE certificates SET value_sealed = (SELECT value_sealed FROM certificates WHERE key = 'certificates/b/b.key')")
	if _, _, _, err := s.Certificate(t.Context(), "certificates/a/a.key"); err == nil {
		t.Error("the value of another key is returned")
	}
	if _, _, ok, err := s.Certificate(t.Context(), "certificates/c"); ok || err != nil {
		t.Errorf("an unknown key: %v, %v", ok, err)
	}
}

func (on suite) TestCertificateKeys_AreThoseOfAFolder(t *testing.T) {
	s, _ := on.open(t)
	for _, key := range []string{"a/b", "a/b.c", "a/B", "a/b/d", "ab", "a0", "a-b", "A/b", "a/ü", "a%/b"} {
		if err := s.PutCertificate(t.Context(), key, []byte(key)); err != nil {
			t.Fatal(err)
		}
	}
	keys := func(folder string) []string {
		t.Helper()
		all, err := s.CertificateKeys(t.Context(), folder)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if diff := cmp.Diff([]string{"a/B", "a/b", "a/b.c", "a/b/d", "a/ü"}, keys("a")); diff != "" {
		t.Error(diff)
	}
	if err := s.DeleteCertificates(t.Context(), "a/b"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a/B", "a/b.c", "a/ü"}, keys("a")); diff != "" {
		t.Error(diff)
	}
	if err := s.DeleteCertificates(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if left := slices.Concat(keys("a"), keys("A"), keys("a%")); len(left) != 2 {
		t.Errorf("left are %q", left)
	}
}

// lock reports whether a holder gets a lock.
func lock(t *testing.T, s *store.Store, name, holder string, lease time.Duration) bool {
	t.Helper()
	locked, err := s.LockCertificate(t.Context(), name, holder, lease)
	if err != nil {
		t.Fatal(err)
	}
	return locked
}

func (on suite) TestLockCertificate_IsForOneUntilItsLeaseIsOver(t *testing.T) {
	s, db := on.open(t)
	if !lock(t, s, "x", "a", time.Hour) || !lock(t, s, "y", "b", time.Hour) {
		t.Fatal("a free lock is refused")
	}
	other := db.open(t)
	if lock(t, other, "x", "b", time.Hour) {
		t.Error("a second holder has the lock")
	}
	if !lock(t, s, "x", "a", time.Millisecond) {
		t.Error("the holder cannot renew it")
	}
	time.Sleep(5 * time.Millisecond)
	if !lock(t, other, "x", "b", time.Hour) {
		t.Error("a lease that is over is not taken over")
	}
	if lock(t, s, "x", "a", time.Hour) {
		t.Error("the one that lost it has it again")
	}
	for _, holder := range []string{"a", "b"} {
		if err := s.UnlockCertificate(t.Context(), "x", holder); err != nil {
			t.Fatal(err)
		}
		if free := lock(t, s, "x", "c", time.Hour); free != (holder == "b") {
			t.Errorf("after %s gave it back, it is free: %v", holder, free)
		}
	}
}

func (on suite) TestLockCertificate_OfManyAtOnceGoesToOne(t *testing.T) {
	s, db := on.open(t)
	other := db.open(t)
	var got atomic.Int32
	var asking sync.WaitGroup
	for i := range 8 {
		asking.Go(func() {
			on := []*store.Store{s, other}[i%2]
			if locked, err := on.LockCertificate(t.Context(), "x", string(rune('a'+i)), time.Hour); err != nil {
				t.Error(err)
			} else if locked {
				got.Add(1)
			}
		})
	}
	asking.Wait()
	if got.Load() != 1 {
		t.Errorf("%d have the lock", got.Load())
	}
}
