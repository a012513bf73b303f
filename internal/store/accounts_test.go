package store_test

import (
	"regexp"
	"sync"
	"testing"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

func TestAccountByKey_FindsTheAccountOfTheKey(t *testing.T) {
	s, path := open(t)
	ana, err := s.CreateAccount(t.Context(), "Ana@Example.com", "", store.Key{Hash: []byte("ana's")})
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^acc_[0-9a-f]{12}$`).MatchString(ana.ID) || ana.Email != "Ana@Example.com" {
		t.Errorf("account %+v", ana)
	}
	if _, err := s.CreateAccount(t.Context(), "bo@example.com", "", store.Key{Hash: []byte("bo's")}); err != nil {
		t.Fatal(err)
	}
	if got, ok, err := reopen(t, path).AccountByKey(t.Context(), []byte("ana's")); got != ana || !ok || err != nil {
		t.Errorf("AccountByKey = %+v, %v, %v, want %+v", got, ok, err, ana)
	}
	for _, hash := range [][]byte{nil, {}, []byte("nobody's")} {
		if got, ok, err := s.AccountByKey(t.Context(), hash); got != (store.Account{}) || ok || err != nil {
			t.Errorf("AccountByKey(%q) = %+v, %v, %v, want none", hash, got, ok, err)
		}
	}
}

func TestCreateAccount_TakesAnEmailOnceInAnyCase(t *testing.T) {
	s, _ := open(t)
	errs := make([]error, 2)
	var both sync.WaitGroup
	for i, email := range []string{"ana@example.com", "ANA@Example.com"} {
		both.Go(func() { _, errs[i] = s.CreateAccount(t.Context(), email, "", store.Key{Hash: []byte(email)}) })
	}
	both.Wait()
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Fatalf("errors %v, want exactly one", errs)
	}
	for _, err := range errs {
		if err != nil {
			wantKind(t, err, stack.Conflict)
		}
	}
}

func TestCreate_NeedsAnOwnerThatExists(t *testing.T) {
	s, _ := open(t)
	k := newStack("192.0.2.1")
	k.Owner = "acc_none"
	if err := s.Create(t.Context(), k, 0); err == nil {
		t.Error("a stack belongs to an account that does not exist")
	}
}
