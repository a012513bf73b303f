package account_test

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/account"
	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// made is a created stack and the code that claims it.
type made struct{ id, code string }

// stackWith makes a live, unclaimed stack that is bound to an email, "" for
// none.
func (e *env) stackWith(t *testing.T, claimEmail string) made {
	t.Helper()
	k := stack.New("guestbook", []stack.Spec{{Name: "web", Runtime: stack.Runtime{Name: stack.Static}}}, stack.Now())
	code := auth.NewClaimCode()
	k.ClaimCodeHash, k.ClaimEmail = e.key.HashClaimCode(code), claimEmail
	k.Status, k.Deploying, k.ExpiresAt = stack.Live, 0, stack.Now().Add(time.Hour)
	if err := e.store.Create(t.Context(), k, nil); err != nil {
		t.Fatal(err)
	}
	return made{k.ID, code}
}

func (e *env) change(t *testing.T, id string, change func(*stack.Stack)) {
	t.Helper()
	if _, err := e.store.Update(t.Context(), id, func(s *stack.Stack) ([]stack.Event, error) { change(s); return nil, nil }); err != nil {
		t.Fatal(err)
	}
}

func (e *env) owner(t *testing.T, id string) string {
	t.Helper()
	s, err := e.store.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return s.Owner
}

func TestClaim_MovesTheStackAndTheCodeIsUsed(t *testing.T) {
	e := newEnv(t)
	ana, bo := e.signUp(t, "ana@example.com").Account, e.signUp(t, "bo@example.com").Account
	m := e.stackWith(t, "")
	s, err := e.accounts.Claim(t.Context(), visitor, ana, strings.ToLower(strings.ReplaceAll(m.code, "-", " ")))
	if err != nil || s.Owner != ana.ID {
		t.Fatal(s, err)
	}
	for _, who := range []store.Account{ana, bo} {
		_, err := e.accounts.Claim(t.Context(), visitor, who, m.code)
		wantKind(t, err, stack.NotFound, "has already been used")
	}
	_, err = e.accounts.Claim(t.Context(), visitor, ana, auth.NewClaimCode())
	wantKind(t, err, stack.NotFound, "a character is wrong")
	_, err = e.accounts.Claim(t.Context(), visitor, ana, "nonsense")
	wantKind(t, err, stack.NotFound, `"nonsense" is not a claim code; a claim code looks like CLM-XXXX-XXXX-XXXX`)
	e.codes.left = 0
	_, err = e.accounts.Claim(t.Context(), visitor, ana, m.code)
	wantTooMany(t, err)
}

func TestLookUp_TellsWhatACodeIsForSomebody(t *testing.T) {
	e := newEnv(t)
	ana, bo := e.signUp(t, "ana@example.com").Account, e.signUp(t, "bo@example.com").Account
	visitor0 := store.Account{}
	free, bound, used, expired, over, gone := e.stackWith(t, ""), e.stackWith(t, "ANA@example.com"), e.stackWith(t, ""), e.stackWith(t, ""), e.stackWith(t, ""), e.stackWith(t, "")
	if _, err := e.accounts.Claim(t.Context(), visitor, ana, used.code); err != nil {
		t.Fatal(err)
	}
	boundK := e.stackWith(t, "ana@example.kom")
	e.change(t, expired.id, func(s *stack.Stack) { s.Status, s.RetainedUntil = stack.Expired, stack.Now().Add(time.Hour) })
	e.change(t, over.id, func(s *stack.Stack) { s.Status, s.RetainedUntil = stack.Expired, stack.Now().Add(-time.Hour) })
	e.change(t, gone.id, func(s *stack.Stack) {
		if _, err := s.Delete(stack.Now()); err != nil {
			t.Error(err)
		}
	})
	for _, tt := range []struct {
		name  string
		who   store.Account
		typed string
		state account.CodeState
		stack string
	}{
		{"free", visitor0, free.code, account.Claimable, free.id},
		{"free, in another spelling", ana, " " + strings.ToLower(free.code[4:]), account.Claimable, free.id},
		{"bound, for a visitor", visitor0, bound.code, account.Claimable, bound.id},
		{"bound, for the one", ana, bound.code, account.Claimable, bound.id},
		{"bound, for another", bo, bound.code, account.ForOther, bound.id},
		{"bound, for one that Unicode folds to it", store.Account{ID: "acc_1", Email: "ana@example.\u212aom"}, boundK.code, account.ForOther, boundK.id},
		{"used, for its owner", ana, used.code, account.Used, used.id},
		{"used, for another", bo, used.code, account.Used, ""},
		{"used, for a visitor", visitor0, used.code, account.Used, ""},
		{"expired", visitor0, expired.code, account.Claimable, expired.id},
		{"retention over", visitor0, over.code, account.Over, over.id},
		{"deleted", ana, gone.code, account.Unknown, ""},
		{"unknown", ana, auth.NewClaimCode(), account.Unknown, ""},
		{"malformed", ana, "nonsense", account.Malformed, ""},
		{"empty", visitor0, "", account.Malformed, ""},
	} {
		before := e.codes.left
		code, err := e.accounts.LookUp(t.Context(), visitor, tt.who, tt.typed)
		if err != nil || code.State != tt.state || (code.Stack == nil) != (tt.stack == "") || code.Stack != nil && code.Stack.ID != tt.stack {
			t.Errorf("%s: %+v, %v, want state %d and stack %q", tt.name, code, err, tt.state, tt.stack)
		}
		if normal, _ := auth.NormalizeClaimCode(tt.typed); code.Code != normal {
			t.Errorf("%s: code %q, want %q", tt.name, code.Code, normal)
		}
		if counted := before - e.codes.left; counted != 0 != (tt.state == account.Unknown) {
			t.Errorf("%s: counted %d", tt.name, counted)
		}
	}
	if e.owner(t, free.id) != "" || e.owner(t, bound.id) != "" {
		t.Error("looking a code up claimed its stack")
	}
	e.codes.left = 0
	_, err := e.accounts.LookUp(t.Context(), visitor, ana, free.code)
	wantTooMany(t, err)
}

func TestSignUpAndClaim_DoesBothInOneGo(t *testing.T) {
	e := newEnv(t)
	m := e.stackWith(t, "ana@example.com")
	entry, s, err := e.accounts.SignUpAndClaim(t.Context(), visitor, "Ana@example.com", password, m.code)
	if err != nil || s.Owner != entry.Account.ID || entry.APIKey == "" || !e.signedIn(t, entry.Token) {
		t.Fatalf("%+v, %+v, %v", entry, s, err)
	}
	events, err := e.store.Events(t.Context(), m.id, 0, 10)
	if err != nil || len(events) != 1 || events[0].Type != stack.EventClaimed || events[0].Data["by"] != "Ana@example.com" {
		t.Errorf("events %v, %v", events, err)
	}
	if len(e.forms.networks) != 1 || len(e.codes.networks) != 0 {
		t.Errorf("counted as forms %v and as claims %v, want one form", e.forms.networks, e.codes.networks)
	}
}

func TestSignUpAndClaim_MakesNoAccountForACodeThatCannotBeClaimed(t *testing.T) {
	e := newEnv(t)
	ana := e.signUp(t, "ana@example.com").Account
	bound, used := e.stackWith(t, "ana@example.com"), e.stackWith(t, "")
	if _, err := e.accounts.Claim(t.Context(), visitor, ana, used.code); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		code string
		kind stack.Kind
		text string
	}{
		{auth.NewClaimCode(), stack.NotFound, "a character is wrong"},
		{"nonsense", stack.NotFound, "CLM-XXXX-XXXX-XXXX"},
		{used.code, stack.NotFound, "has already been used"},
		{bound.code, stack.Forbidden, "email address it was created for"},
	} {
		entry, s, err := e.accounts.SignUpAndClaim(t.Context(), visitor, "bo@example.com", password, tt.code)
		wantKind(t, err, tt.kind, tt.text)
		if entry != (account.Entry{}) || s != nil {
			t.Errorf("%s: %+v, %+v", tt.code, entry, s)
		}
	}
	if _, _, ok, _ := e.store.AccountByEmail(t.Context(), "bo@example.com"); ok {
		t.Error("an account was made")
	}
	if e.owner(t, bound.id) != "" {
		t.Error("a stack was claimed")
	}
}

func TestSignInAndClaim_NamesTheStackToTheOwnerWhoUsedTheCode(t *testing.T) {
	e := newEnv(t)
	ana := e.signUp(t, "ana@example.com").Account
	e.signUp(t, "bo@example.com")
	m := e.stackWith(t, "")
	if _, err := e.accounts.Claim(t.Context(), visitor, ana, m.code); err != nil {
		t.Fatal(err)
	}
	for email, text := range map[string]string{
		"ana@example.com": m.id + " (guestbook), is in your account",
		"bo@example.com":  "its stack belongs to an account",
	} {
		entry, s, err := e.accounts.SignInAndClaim(t.Context(), visitor, email, password, m.code)
		wantKind(t, err, stack.NotFound, text)
		if s != nil || !e.signedIn(t, entry.Token) {
			t.Errorf("%s: %+v, %+v, want the person signed in and no stack", email, entry, s)
		}
	}
}

func TestSignInAndClaim_ChecksThePasswordBeforeItClaims(t *testing.T) {
	e := newEnv(t)
	ana := e.signUp(t, "ana@example.com").Account
	m := e.stackWith(t, "")
	entry, _, err := e.accounts.SignInAndClaim(t.Context(), visitor, "ana@example.com", "a wrong one", m.code)
	wantKind(t, err, stack.Unauthenticated, "wrong")
	if entry.Token != "" || e.owner(t, m.id) != "" {
		t.Error("a wrong password claims")
	}
	entry, s, err := e.accounts.SignInAndClaim(t.Context(), visitor, "ana@example.com", password, m.code)
	if err != nil || s.Owner != ana.ID || !e.signedIn(t, entry.Token) || entry.APIKey != "" {
		t.Errorf("%+v, %+v, %v", entry, s, err)
	}
}
