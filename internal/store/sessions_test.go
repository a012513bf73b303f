package store_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

func newAccount(t *testing.T, s *store.Store, email string) store.Account {
	t.Helper()
	account, err := s.CreateAccount(t.Context(), email, "hash of "+email, store.Key{Hash: []byte(email), Hint: "wXyZ"})
	if err != nil {
		t.Fatal(err)
	}
	return account
}

// signIn makes a session of a token that is its own hash.
func signIn(t *testing.T, s *store.Store, account store.Account, token string, life time.Duration) store.Session {
	t.Helper()
	session, err := s.CreateSession(t.Context(), account, store.SignIn{TokenHash: []byte(token), ExpiresAt: stack.Now().Add(life), IP: "192.0.2.1", UserAgent: "a browser"})
	if err != nil {
		t.Fatal(err)
	}
	return session
}

func isSignedIn(t *testing.T, s *store.Store, token string) bool {
	t.Helper()
	session, ok, err := s.FindSession(t.Context(), []byte(token))
	if err != nil || ok != (session != store.Session{}) {
		t.Fatalf("FindSession(%s) = %+v, %v, %v", token, session, ok, err)
	}
	return ok
}

func (on suite) TestCreateSession_RefusesAnAccountThatWasDeletedMeanwhile(t *testing.T) {
	s, _ := on.open(t)
	ana := newAccount(t, s, "ana@example.com")
	if _, err := s.DeleteAccount(t.Context(), ana.ID, whatever); err != nil {
		t.Fatal(err)
	}
	_, err := s.CreateSession(t.Context(), ana, store.SignIn{TokenHash: []byte("a"), ExpiresAt: stack.Now().Add(time.Hour)})
	wantKind(t, err, stack.Unauthenticated)
	if isSignedIn(t, s, "a") {
		t.Error("the account that is gone is signed in")
	}
}

func (on suite) TestCreateSession_RefusesAPasswordThatWasChangedMeanwhile(t *testing.T) {
	s, _ := on.open(t)
	ana := newAccount(t, s, "ana@example.com")
	for hash, want := range map[string]stack.Kind{"hash of " + ana.Email: stack.Unauthenticated, "a new hash": 0, "": 0} {
		if err := s.SetPassword(t.Context(), ana.ID, "a new hash", 0); err != nil {
			t.Fatal(err)
		}
		_, err := s.CreateSession(t.Context(), ana, store.SignIn{TokenHash: []byte("a"), PasswordHash: hash, ExpiresAt: stack.Now().Add(time.Hour)})
		if stack.KindOf(err) != want || isSignedIn(t, s, "a") != (want == 0) {
			t.Errorf("checked against %q: %v", hash, err)
		}
	}
}

func (on suite) TestSession_IsFoundByItsHashWithItsAccount(t *testing.T) {
	s, db := on.open(t)
	ana := newAccount(t, s, "ana@example.com")
	want := signIn(t, s, ana, "a", time.Hour)
	signIn(t, s, newAccount(t, s, "bo@example.com"), "b", time.Hour)
	got, ok, err := db.open(t).FindSession(t.Context(), []byte("a"))
	if diff := cmp.Diff(want, got); diff != "" || !ok || err != nil {
		t.Errorf("FindSession: %v, %v\n%s", ok, err, diff)
	}
	if got.Account.Email != "ana@example.com" || got.Account.KeyHint != "wXyZ" || got.ID == 0 {
		t.Errorf("session %+v", got)
	}
	for _, token := range []string{"", "c", "A"} {
		if isSignedIn(t, s, token) {
			t.Errorf("%q is signed in", token)
		}
	}
}

func (on suite) TestSession_EndsAtItsTimeAndIsRemoved(t *testing.T) {
	s, db := on.open(t)
	ana := newAccount(t, s, "ana@example.com")
	signIn(t, s, ana, "old", -time.Second)
	if isSignedIn(t, s, "old") {
		t.Error("an expired session opens the account")
	}
	if list, err := s.Sessions(t.Context(), ana.ID); err != nil || len(list) != 0 {
		t.Errorf("sessions %v, %v", list, err)
	}
	signIn(t, s, ana, "new", time.Hour)
	var rows int
	if err := db.row(t, "SELECT count(*) FROM sessions").Scan(&rows); err != nil || rows != 1 {
		t.Errorf("%d rows, %v, want the expired one gone", rows, err)
	}
}

func (on suite) TestSession_NotesItsUseNowAndThen(t *testing.T) {
	s, db := on.open(t)
	made := signIn(t, s, newAccount(t, s, "ana@example.com"), "a", time.Hour)
	use := func() time.Time {
		session, ok, err := s.FindSession(t.Context(), []byte("a"))
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		return session.LastUsedAt
	}
	if at := use(); !at.Equal(made.LastUsedAt) {
		t.Errorf("a use right after the sign-in is written down: %s", at)
	}
	db.exec(t, "UPDATE sessions SET last_used_at = last_used_at - 3600000000")
	if at := use(); at.Before(made.LastUsedAt) {
		t.Errorf("a use after an hour is not noted: %s", at)
	}
	if at := use(); at.Before(made.LastUsedAt) {
		t.Errorf("a use after an hour is not stored: %s", at)
	}
}

func (on suite) TestSessions_ListsThoseOfTheAccountNewestFirst(t *testing.T) {
	s, _ := on.open(t)
	ana, bo := newAccount(t, s, "ana@example.com"), newAccount(t, s, "bo@example.com")
	first, second := signIn(t, s, ana, "1", time.Hour), signIn(t, s, ana, "2", time.Hour)
	signIn(t, s, bo, "3", time.Hour)
	got, err := s.Sessions(t.Context(), ana.ID)
	if err != nil || !slices.Equal(got, []store.Session{second, first}) {
		t.Errorf("sessions %+v, %v", got, err)
	}
}

func (on suite) TestEndSession_EndsWhatItIsAskedTo(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(s *store.Store, ana, bo store.Account, first store.Session) error
		left []string
	}{
		"by token": {func(s *store.Store, _, _ store.Account, _ store.Session) error {
			return s.EndSession(t.Context(), []byte("1"))
		}, []string{"2", "3"}},
		"by unknown token": {func(s *store.Store, _, _ store.Account, _ store.Session) error {
			return s.EndSession(t.Context(), []byte("9"))
		}, []string{"1", "2", "3"}},
		"by id": {func(s *store.Store, ana, _ store.Account, first store.Session) error {
			return s.EndSessionOf(t.Context(), ana.ID, first.ID)
		}, []string{"2", "3"}},
		"of somebody else": {func(s *store.Store, _, bo store.Account, first store.Session) error {
			return s.EndSessionOf(t.Context(), bo.ID, first.ID)
		}, []string{"1", "2", "3"}},
		"all others": {func(s *store.Store, ana, _ store.Account, first store.Session) error {
			return s.EndSessions(t.Context(), ana.ID, first.ID)
		}, []string{"1", "3"}},
		"all": {func(s *store.Store, ana, _ store.Account, _ store.Session) error {
			return s.EndSessions(t.Context(), ana.ID, 0)
		}, []string{"3"}},
		"a new password": {func(s *store.Store, ana, _ store.Account, first store.Session) error {
			return s.SetPassword(t.Context(), ana.ID, "new", first.ID)
		}, []string{"1", "3"}},
	} {
		s, _ := on.open(t)
		ana, bo := newAccount(t, s, "ana@example.com"), newAccount(t, s, "bo@example.com")
		first := signIn(t, s, ana, "1", time.Hour)
		signIn(t, s, ana, "2", time.Hour)
		signIn(t, s, bo, "3", time.Hour)
		if err := tt.end(s, ana, bo, first); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var left []string
		for _, token := range []string{"1", "2", "3"} {
			if isSignedIn(t, s, token) {
				left = append(left, token)
			}
		}
		if !slices.Equal(left, tt.left) {
			t.Errorf("%s: %v are left, want %v", name, left, tt.left)
		}
	}
}

func (on suite) TestAccountByEmail_GivesThePasswordHashInAnyCaseOfTheEmail(t *testing.T) {
	s, _ := on.open(t)
	ana := newAccount(t, s, "Ana@example.com")
	if _, err := s.CreateAccount(t.Context(), "shell@example.com", "", store.Key{Hash: []byte("k")}); err != nil {
		t.Fatal(err)
	}
	for email, want := range map[string]string{"ana@EXAMPLE.com": "hash of Ana@example.com", "shell@example.com": "", "none@example.com": ""} {
		account, hash, ok, err := s.AccountByEmail(t.Context(), email)
		if hash != want || err != nil || ok != (email != "none@example.com") || ok != (account != store.Account{}) {
			t.Errorf("%s: %+v, %q, %v, %v", email, account, hash, ok, err)
		}
		if want != "" && account != ana {
			t.Errorf("account %+v, want %+v", account, ana)
		}
	}
}

func (on suite) TestSetPassword_ReplacesTheHash(t *testing.T) {
	s, _ := on.open(t)
	ana := newAccount(t, s, "ana@example.com")
	if err := s.SetPassword(t.Context(), ana.ID, "another", 0); err != nil {
		t.Fatal(err)
	}
	if _, hash, _, err := s.AccountByEmail(t.Context(), "ana@example.com"); hash != "another" || err != nil {
		t.Errorf("hash %q, %v", hash, err)
	}
	wantKind(t, s.SetPassword(t.Context(), "acc_none", "x", 0), stack.NotFound)
}

func (on suite) TestRotateKey_TheOldKeyIsUnknownAtOnce(t *testing.T) {
	s, _ := on.open(t)
	ana := newAccount(t, s, "ana@example.com")
	if err := s.RotateKey(t.Context(), ana.ID, store.Key{Hash: []byte("new"), Hint: "NEW1"}); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := s.AccountByKey(t.Context(), []byte("ana@example.com")); ok || err != nil {
		t.Errorf("the old key: %v, %v", ok, err)
	}
	got, ok, err := s.AccountByKey(t.Context(), []byte("new"))
	if err != nil || !ok || got.ID != ana.ID || got.KeyHint != "NEW1" {
		t.Errorf("the new key: %+v, %v, %v", got, ok, err)
	}
	wantKind(t, s.RotateKey(t.Context(), "acc_none", store.Key{Hash: []byte("x")}), stack.NotFound)
}

func (on suite) TestRotateKey_ManyAtOnceLeaveOneKey(t *testing.T) {
	s, db := on.open(t)
	ana := newAccount(t, s, "ana@example.com")
	var all sync.WaitGroup
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		all.Go(func() {
			if err := s.RotateKey(t.Context(), ana.ID, store.Key{Hash: []byte(key)}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	valid := 0
	for _, key := range []string{"ana@example.com", "a", "b", "c", "d", "e", "f"} {
		if _, ok, err := s.AccountByKey(t.Context(), []byte(key)); err != nil {
			t.Error(err)
		} else if ok {
			valid++
		}
	}
	if valid != 1 {
		t.Errorf("%d keys are valid, want one", valid)
	}
	if account, _, _ := db.open(t).AccountByKey(t.Context(), []byte("ana@example.com")); account != (store.Account{}) {
		t.Error("the first key is still valid")
	}
}

func (on suite) TestLatestEvents_AreTheNewestFirst(t *testing.T) {
	s, _ := on.open(t)
	k := create(t, s)
	for _, service := range []string{"a", "b", "c"} {
		if _, err := s.Update(t.Context(), k.ID, func(*stack.Stack) ([]stack.Event, error) {
			return []stack.Event{stack.ServiceBuilding(service, 1, 1)}, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	events, err := s.LatestEvents(t.Context(), k.ID, 2)
	if err != nil || len(events) != 2 || events[0].Data["service"] != "c" || events[1].Data["service"] != "b" {
		t.Errorf("events %v, %v", events, err)
	}
}
