package store_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// nextMail takes the mail that is due, and returns the zero Mail if none is.
func nextMail(t *testing.T, s *store.Store) store.Mail {
	t.Helper()
	m, ok, err := s.TakeMail(t.Context(), time.Minute)
	if err != nil || ok != (m != store.Mail{}) {
		t.Fatalf("TakeMail() = %+v, %v, %v", m, ok, err)
	}
	return m
}

// happen records events of a stack.
func happen(t *testing.T, s *store.Store, id string, events ...stack.Event) {
	t.Helper()
	if _, err := s.Update(t.Context(), id, func(*stack.Stack) ([]stack.Event, error) { return events, nil }); err != nil {
		t.Fatal(err)
	}
}

func failedFor(why string) stack.Event {
	return stack.Event{Type: stack.EventFailed, Data: map[string]any{"error": why}}
}

func crashed(times int) stack.Event {
	return stack.Event{Type: stack.EventCrashed, Data: map[string]any{"service": "web", "crashes": times}}
}

// age makes all mails older, as far as their times go.
func age(t *testing.T, db database, by time.Duration) {
	t.Helper()
	db.exec(t, "UPDATE mails SET created_at = created_at - ?, try_at = try_at - ?", by.Microseconds(), by.Microseconds())
}

func (on suite) TestMails_TellTheOwnerOfAFailureOnceAnHour(t *testing.T) {
	s, db := on.open(t)
	ana := newAccount(t, s, "ana@example.com")
	k, other := ownedBy(t, s, ana), ownedBy(t, s, ana)
	happen(t, s, create(t, s).ID, failedFor("nobody's"))
	happen(t, s, k.ID, failedFor("first"))
	happen(t, s, k.ID, failedFor("second"))
	happen(t, s, other.ID, failedFor("other"))
	for _, want := range []store.Mail{{StackID: k.ID, Detail: "first"}, {StackID: other.ID, Detail: "other"}} {
		m := nextMail(t, s)
		if m.Kind != store.MailFailed || m.Account != ana.ID || m.StackID != want.StackID || m.Detail != want.Detail || m.Tries != 1 {
			t.Errorf("the mail is %+v, want %+v", m, want)
		}
		if err := s.MailDone(t.Context(), m.ID); err != nil {
			t.Fatal(err)
		}
	}
	age(t, db, store.MailLife-time.Second)
	happen(t, s, k.ID, failedFor("third"))
	if m := nextMail(t, s); m != (store.Mail{}) {
		t.Errorf("within the hour there is %+v", m)
	}
	age(t, db, time.Second)
	happen(t, s, k.ID, failedFor("fourth"))
	if m := nextMail(t, s); m.Detail != "fourth" {
		t.Errorf("after the hour there is %+v", m)
	}
}

func (on suite) TestMails_TellOfCrashesUnlessTheStackFails(t *testing.T) {
	s, db := on.open(t)
	ana := newAccount(t, s, "ana@example.com")
	k, fails := ownedBy(t, s, ana), ownedBy(t, s, ana)
	for _, id := range []string{k.ID, fails.ID} {
		happen(t, s, id, crashed(1))
		happen(t, s, id, crashed(2))
	}
	age(t, db, time.Minute)
	if m := nextMail(t, s); m != (store.Mail{}) {
		t.Errorf("after two crashes there is %+v", m)
	}
	happen(t, s, k.ID, crashed(3))
	happen(t, s, fails.ID, crashed(3))
	if m := nextMail(t, s); m != (store.Mail{}) {
		t.Errorf("at once there is %+v", m)
	}
	happen(t, s, fails.ID, failedFor("a loop"))
	age(t, db, time.Minute)
	failure, crash := nextMail(t, s), nextMail(t, s)
	if crash.Kind != store.MailCrashing || crash.StackID != k.ID || crash.Detail != "web" || failure.Kind != store.MailFailed || failure.StackID != fails.ID {
		t.Errorf("the mails are %+v and %+v", crash, failure)
	}
	if m := nextMail(t, s); m != (store.Mail{}) {
		t.Errorf("there is also %+v", m)
	}
}

func (on suite) TestMails_AreNotWrittenForThoseWhoTurnedThemOff(t *testing.T) {
	s, _ := on.open(t)
	ana := newAccount(t, s, "ana@example.com")
	k := ownedBy(t, s, ana)
	if err := s.SetMailOff(t.Context(), ana.ID, true); err != nil {
		t.Fatal(err)
	}
	happen(t, s, k.ID, failedFor("quietly"))
	if err := s.AskMail(t.Context(), store.Mail{Kind: store.MailReset, Address: "ana@example.com"}); err != nil {
		t.Fatal(err)
	}
	if m := nextMail(t, s); m.Kind != store.MailReset || m.Address != "ana@example.com" {
		t.Errorf("the mail is %+v, want the link that was asked for", m)
	}
	if m := nextMail(t, s); m != (store.Mail{}) {
		t.Errorf("there is also %+v", m)
	}
	wantKind(t, s.SetMailOff(t.Context(), "acc_none", true), stack.NotFound)
}

func (on suite) TestTakeMail_KeepsItFromOthersAndGivesUpAfterAnHour(t *testing.T) {
	s, db := on.open(t)
	if err := s.AskMail(t.Context(), store.Mail{Kind: store.MailReset, Address: "ana@example.com"}); err != nil {
		t.Fatal(err)
	}
	m := nextMail(t, s)
	if again := nextMail(t, s); again != (store.Mail{}) {
		t.Errorf("it is taken twice: %+v", again)
	}
	if err := s.MailLater(t.Context(), m.ID, 0); err != nil {
		t.Fatal(err)
	}
	if again := nextMail(t, s); again.ID != m.ID || again.Tries != 2 {
		t.Errorf("put off, it is %+v", again)
	}
	age(t, db, store.MailLife)
	if again := nextMail(t, s); again != (store.Mail{}) {
		t.Errorf("after an hour there is still %+v", again)
	}
}

// Two servers of a cluster send at the same time.
func (on suite) TestTakeMail_GivesEachToOneOfTwoStores(t *testing.T) {
	s, db := on.open(t)
	const mails = 30
	for i := range mails {
		if err := s.AskMail(t.Context(), store.Mail{Kind: store.MailReset, Address: fmt.Sprintf("ana%d@example.com", i)}); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	taken := map[string]int{}
	var senders sync.WaitGroup
	for _, one := range []*store.Store{s, db.open(t)} {
		senders.Go(func() {
			for {
				m, ok, err := one.TakeMail(t.Context(), time.Minute)
				if err != nil || !ok {
					if err != nil {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				taken[m.Address]++
				mu.Unlock()
			}
		})
	}
	senders.Wait()
	if len(taken) != mails {
		t.Errorf("%d of %d are taken", len(taken), mails)
	}
	for address, n := range taken {
		if n != 1 {
			t.Errorf("that to %s is taken %d times", address, n)
		}
	}
}

func (on suite) TestAskMail_ReplacesAConfirmationThatWasNotSent(t *testing.T) {
	s, _ := on.open(t)
	ana := newAccount(t, s, "ana@example.com")
	for _, tt := range []struct{ asked, sent []string }{
		{[]string{"", "stk_one"}, []string{"stk_one"}}, // whose link confirms the address, too
		{[]string{"", ""}, []string{""}},
		{[]string{"stk_one", "stk_one"}, []string{"stk_one"}},
		{[]string{"stk_one", "stk_two"}, []string{"stk_one", "stk_two"}},
		{[]string{"stk_one", ""}, []string{"stk_one", ""}},
	} {
		for _, stackID := range tt.asked {
			if err := s.AskMail(t.Context(), store.Mail{Kind: store.MailConfirm, Account: ana.ID, StackID: stackID}); err != nil {
				t.Fatal(err)
			}
		}
		for _, stackID := range tt.sent {
			if m := nextMail(t, s); m.Kind != store.MailConfirm || m.StackID != stackID {
				t.Errorf("asked for %q, the mail is %+v, want that of %q", tt.asked, m, stackID)
			}
		}
		if m := nextMail(t, s); m != (store.Mail{}) {
			t.Errorf("asked for %q, there is also %+v", tt.asked, m)
		}
	}
}

func (on suite) TestResetPassword_WorksOnceAndEndsEverySession(t *testing.T) {
	s, _ := on.open(t)
	ana := newAccount(t, s, "ana@example.com")
	signIn(t, s, ana, "a", time.Hour)
	for _, token := range []string{"first", "second"} {
		if err := s.AddMailToken(t.Context(), []byte(token), store.MailToken{Kind: store.MailReset, Account: ana}, stack.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.FindMailToken(t.Context(), store.MailReset, []byte("first")); err != nil {
		t.Fatal(err)
	}
	used, err := s.ResetPassword(t.Context(), []byte("first"), "new hash", store.Key{Hash: []byte("new key")})
	if err != nil || used.Account.ID != ana.ID {
		t.Fatalf("ResetPassword() = %+v, %v", used, err)
	}
	account, hash, _, err := s.AccountByEmail(t.Context(), "ana@example.com")
	if err != nil || hash != "new hash" || !account.Confirmed || isSignedIn(t, s, "a") {
		t.Errorf("the account is %+v with %q, %v", account, hash, err)
	}
	for _, token := range []string{"first", "second"} {
		_, err := s.ResetPassword(t.Context(), []byte(token), "another hash", store.Key{Hash: []byte("another key")})
		wantKind(t, err, stack.NotFound)
	}
}

// Whoever made an account whose address was never confirmed may be somebody else.
func (on suite) TestResetPassword_ReplacesTheKeyUnlessTheAddressWasConfirmed(t *testing.T) {
	s, _ := on.open(t)
	ana := newAccount(t, s, "ana@example.com")
	for i, key := range []string{"new key", "newer key"} { // the second time, the address is confirmed
		token := []byte("token for " + key)
		if err := s.AddMailToken(t.Context(), token, store.MailToken{Kind: store.MailReset, Account: ana}, stack.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		used, err := s.ResetPassword(t.Context(), token, "hash", store.Key{Hash: []byte(key), Hint: "new"})
		if err != nil || used.Account.Confirmed != (i == 1) {
			t.Fatalf("ResetPassword() = %+v, %v", used, err)
		}
		for _, key := range []string{"ana@example.com", "new key", "newer key"} {
			if account, ok, err := s.AccountByKey(t.Context(), []byte(key)); ok != (key == "new key") || ok && account.KeyHint != "new" || err != nil {
				t.Errorf("after reset %d the account of %q is %+v, %v, %v", i, key, account, ok, err)
			}
		}
	}
}

func (on suite) TestMailTokens_WorkForTheirKindUntilTheyExpire(t *testing.T) {
	s, _ := on.open(t)
	ana := newAccount(t, s, "ana@example.com")
	add := func(token string, kind store.MailKind, life time.Duration) {
		t.Helper()
		err := s.AddMailToken(t.Context(), []byte(token), store.MailToken{Kind: kind, Account: ana, StackID: "stk_one"}, stack.Now().Add(life))
		if err != nil {
			t.Fatal(err)
		}
	}
	add("late", store.MailConfirm, -time.Second)
	_, err := s.ConfirmAddress(t.Context(), []byte("late"))
	wantKind(t, err, stack.NotFound)
	add("confirm", store.MailConfirm, time.Minute)
	_, err = s.ResetPassword(t.Context(), []byte("confirm"), "hash", store.Key{Hash: []byte("another key")})
	wantKind(t, err, stack.NotFound)
	used, err := s.ConfirmAddress(t.Context(), []byte("confirm"))
	if err != nil || used.StackID != "stk_one" {
		t.Errorf("ConfirmAddress() = %+v, %v", used, err)
	}
	letter := func(token, stackID string) {
		t.Helper()
		err := s.AddMailToken(t.Context(), []byte(token), store.MailToken{Kind: store.MailConfirm, Account: ana, StackID: stackID}, stack.Now().Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
	}
	letter("welcome", "")
	letter("claim one", "stk_one")
	letter("claim one again", "stk_one")
	letter("claim two", "stk_two")
	for _, token := range []string{"welcome", "claim two", "claim one again"} { // one does not end those of other stacks
		if _, err := s.ConfirmAddress(t.Context(), []byte(token)); err != nil {
			t.Errorf("%s: %v", token, err)
		}
	}
	_, err = s.ConfirmAddress(t.Context(), []byte("claim one"))
	wantKind(t, err, stack.NotFound)
	add("gone", store.MailConfirm, time.Minute)
	if _, err := s.DeleteAccount(t.Context(), ana.ID, whatever); err != nil {
		t.Fatal(err)
	}
	_, err = s.ConfirmAddress(t.Context(), []byte("gone"))
	wantKind(t, err, stack.NotFound)
	wantKind(t, s.AddMailToken(t.Context(), []byte("x"), store.MailToken{Kind: store.MailReset, Account: ana}, stack.Now().Add(time.Minute)), stack.Unauthenticated)
}

func (on suite) TestMails_TellTheOwnerOfALostDomain(t *testing.T) {
	s, _ := on.open(t)
	k, rival := owned(t, s, ""), owned(t, s, "")
	const host = "www.example.com"
	addDomain(t, s, k, host)
	addDomain(t, s, rival, host)
	activate(t, s, k, host)
	if m := nextMail(t, s); m != (store.Mail{}) {
		t.Errorf("a mail of an active domain: %+v", m)
	}
	activate(t, s, rival, host)
	m := nextMail(t, s)
	if m.Kind != store.MailDomain || m.Account != k.Owner || m.StackID != k.ID || !strings.HasPrefix(m.Detail, host+": ") {
		t.Errorf("the mail is %+v", m)
	}
	if m := nextMail(t, s); m != (store.Mail{}) {
		t.Errorf("one more mail: %+v", m)
	}
}

func (on suite) TestMails_TellTheOwnerOfAStackThatIsTooLarge(t *testing.T) {
	s, _ := on.open(t)
	k := owned(t, s, "")
	for _, told := range []string{"", "it takes 2 of 1", "it takes 3 of 1"} {
		if err := s.SetDisk(t.Context(), k.ID, stack.Disk{At: stack.Now(), Files: 2}, told); err != nil {
			t.Fatal(err)
		}
	}
	m := nextMail(t, s)
	if m.Kind != store.MailDisk || m.Account != k.Owner || m.StackID != k.ID || m.Detail != "it takes 2 of 1" {
		t.Errorf("the mail is %+v", m)
	}
	if m := nextMail(t, s); m != (store.Mail{}) {
		t.Errorf("one more mail within the hour: %+v", m)
	}
}
