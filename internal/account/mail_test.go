package account_test

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/account"
	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// newMailEnv is newEnv for an installation that sends mails: so many to each address, and
// so many for each network.
func newMailEnv(t *testing.T, addresses, networks int) *env {
	t.Helper()
	e := newEnv(t)
	mails := &account.Mails{Store: e.store, Addresses: &limiter{left: addresses}, Networks: &limiter{left: networks}}
	e.cfg.Claims.Mails = mails
	e.accounts = account.New(e.cfg)
	return e
}

// mail takes the mail that is due, and returns the zero Mail if none is.
func (e *env) mail(t *testing.T) store.Mail {
	t.Helper()
	m, _, err := e.store.TakeMail(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// follow makes the link that a mail would have.
func (e *env) follow(t *testing.T, m store.Mail, who store.Account) (token string) {
	t.Helper()
	token = auth.NewMailToken()
	err := e.store.AddMailToken(t.Context(), auth.Hash(token), store.MailToken{Kind: m.Kind, Account: who, StackID: m.StackID}, stack.Now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestForgot_AnswersTheSameForAnUnknownAddress(t *testing.T) {
	e := newMailEnv(t, 3, 10)
	for _, email := range []string{"nobody@example.com", " Ana@example.com "} {
		if err := e.accounts.Forgot(t.Context(), visitor, email); err != nil {
			t.Errorf("%s: %v", email, err)
		}
	}
	if m := e.mail(t); m.Kind != store.MailReset || m.Address != "nobody@example.com" {
		t.Errorf("the first mail is %+v", m)
	}
	if m := e.mail(t); m.Kind != store.MailReset || m.Address != "Ana@example.com" {
		t.Errorf("the second mail is %+v", m)
	}
	wantKind(t, e.accounts.Forgot(t.Context(), visitor, "no address"), stack.Unprocessable, "no address")
}

// The request reads nothing of an account, so its time tells nothing either: it does the same
// where there are no accounts, sessions and links to read, and no stacks.
func TestForgot_DoesTheSameWorkForAnUnknownAddress(t *testing.T) {
	e := newMailEnv(t, 3, 10)
	e.signUp(t, "ana@example.com")
	e.mail(t)
	e.hideAccounts(t)
	if _, err := e.accounts.SignIn(t.Context(), visitor, "ana@example.com", password); err == nil || stack.KindOf(err) == stack.Unauthenticated {
		t.Errorf("signing in reads an account where none can be: %v", err)
	}
	cfg := e.cfg
	cfg.Store, cfg.Passwords, cfg.Claims.Stacks, cfg.Claims.Host = nil, nil, nil, nil
	accounts := account.New(cfg)
	for _, email := range []string{"ana@example.com", "nobody@example.com"} {
		if err := accounts.Forgot(t.Context(), visitor, email); err != nil {
			t.Errorf("%s: %v", email, err)
		}
		m := e.mail(t)
		if m.ID, m.CreatedAt = 0, (time.Time{}); m != (store.Mail{Kind: store.MailReset, Address: email, Tries: 1}) {
			t.Errorf("it leaves %+v", m)
		}
	}
}

// hideAccounts makes every statement fail that names accounts or what belongs to them.
func (e *env) hideAccounts(t *testing.T) {
	t.Helper()
	db, err := sql.Open("sqlite", e.path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, table := range []string{"accounts", "sessions", "mail_tokens"} {
		if _, err := db.ExecContext(t.Context(), "ALTER TABLE "+table+" RENAME TO hidden_"+table); err != nil {
			t.Fatal(err)
		}
	}
}

func TestForgot_IsLimitedByAddressQuietlyAndByNetworkLoudly(t *testing.T) {
	e := newMailEnv(t, 1, 2)
	for range 2 {
		if err := e.accounts.Forgot(t.Context(), visitor, "ana@example.com"); err != nil {
			t.Error(err)
		}
	}
	e.mail(t)
	if m := e.mail(t); m != (store.Mail{}) {
		t.Errorf("beyond the limit of the address there is %+v", m)
	}
	wantKind(t, e.accounts.Forgot(t.Context(), visitor, "bo@example.com"), stack.TooMany, "in an hour")
	e.forms.left = 0
	wantKind(t, e.accounts.Forgot(t.Context(), visitor, "bo@example.com"), stack.TooMany, "")
}

func TestForgot_NeedsMails(t *testing.T) {
	e := newEnv(t)
	wantKind(t, e.accounts.Forgot(t.Context(), visitor, "ana@example.com"), stack.NotFound, "operator")
	entry := e.signUp(t, "ana@example.com")
	wantKind(t, e.accounts.SendConfirmation(t.Context(), visitor, entry.Account), stack.NotFound, "operator")
}

func TestResetPassword_ChangesItAndSignsEverybodyOut(t *testing.T) {
	e := newMailEnv(t, 3, 10)
	entry := e.signUp(t, "ana@example.com")
	token := e.follow(t, store.Mail{Kind: store.MailReset}, entry.Account)
	_, err := e.accounts.ResetPassword(t.Context(), visitor, token, "short")
	wantKind(t, err, stack.Unprocessable, "too short")
	if _, err := e.accounts.ResetPassword(t.Context(), visitor, token, "battery staple"); err != nil {
		t.Fatal(err)
	}
	if e.signedIn(t, entry.Token) {
		t.Error("the session goes on")
	}
	_, err = e.accounts.SignIn(t.Context(), visitor, "ana@example.com", password)
	wantKind(t, err, stack.Unauthenticated, "")
	if _, err := e.accounts.SignIn(t.Context(), visitor, "ana@example.com", "battery staple"); err != nil {
		t.Error(err)
	}
	_, err = e.accounts.ResetPassword(t.Context(), visitor, token, "another one")
	wantKind(t, err, stack.NotFound, "has been used")
}

// works reports whether an API key does.
func (e *env) works(t *testing.T, key string) bool {
	t.Helper()
	_, ok, err := e.store.AccountByKey(t.Context(), auth.Hash(key))
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// Eve signs up with ana's address, and has the key. Ana gets in by a mail.
func TestResetPassword_EndsTheKeyOfWhoeverTookTheAddress(t *testing.T) {
	e := newMailEnv(t, 3, 10)
	eve := e.signUp(t, "ana@example.com")
	replaced, err := e.accounts.ResetPassword(t.Context(), visitor, e.follow(t, store.Mail{Kind: store.MailReset}, eve.Account), "battery staple")
	if err != nil || !replaced || e.works(t, eve.APIKey) {
		t.Fatalf("the key works; replaced %v, %v", replaced, err)
	}
	key, err := e.accounts.RotateKey(t.Context(), eve.Account.ID)
	if err != nil {
		t.Fatal(err)
	}
	replaced, err = e.accounts.ResetPassword(t.Context(), visitor, e.follow(t, store.Mail{Kind: store.MailReset}, eve.Account), "another staple")
	if err != nil || replaced || !e.works(t, key) {
		t.Errorf("the key of a confirmed address does not work; replaced %v, %v", replaced, err)
	}
}

func TestSignUp_AsksToConfirmTheAddress(t *testing.T) {
	e := newMailEnv(t, 1, 10)
	entry := e.signUp(t, "ana@example.com")
	m := e.mail(t)
	if m.Kind != store.MailConfirm || m.Account != entry.Account.ID || m.StackID != "" || entry.Account.Confirmed {
		t.Errorf("the mail is %+v for %+v", m, entry.Account)
	}
	wantKind(t, e.accounts.SendConfirmation(t.Context(), visitor, entry.Account), stack.TooMany, "open the link")
	confirmed, s, err := e.accounts.Confirm(t.Context(), visitor, entry.Account, e.follow(t, m, entry.Account), "")
	if err != nil || s != nil || confirmed.Account.ID != entry.Account.ID || confirmed.Token != "" || !e.works(t, entry.APIKey) {
		t.Fatal(confirmed, s, err)
	}
	session, _, err := e.accounts.Session(t.Context(), entry.Token)
	if err != nil || !session.Account.Confirmed {
		t.Errorf("the account is %+v, %v", session.Account, err)
	}
}

func TestConfirm_InAnotherBrowserNeedsThePasswordAndKeepsTheKey(t *testing.T) {
	e := newMailEnv(t, 3, 10)
	entry, bo := e.signUp(t, "ana@example.com"), e.signUp(t, "bo@example.com")
	token := e.follow(t, store.Mail{Kind: store.MailConfirm}, entry.Account)
	for _, who := range []store.Account{{}, bo.Account} {
		_, _, err := e.accounts.Confirm(t.Context(), visitor, who, token, "a wrong one")
		wantKind(t, err, stack.Unauthenticated, "password is wrong")
	}
	confirmed, _, err := e.accounts.Confirm(t.Context(), visitor, store.Account{}, token, password)
	if err != nil || confirmed.Account.ID != entry.Account.ID || !e.signedIn(t, confirmed.Token) || !e.signedIn(t, entry.Token) || !e.works(t, entry.APIKey) {
		t.Errorf("%+v, %v", confirmed, err)
	}
}

// Eve signs up with ana's address and begins to claim ana's stack. Ana gets the letter.
func TestConfirm_GivesNothingToWhoeverTookTheAddress(t *testing.T) {
	e := newMailEnv(t, 3, 10)
	made := e.stackWith(t, "ana@example.com")
	eve, _, err := e.accounts.SignUpAndClaim(t.Context(), visitor, "ana@example.com", password, made.code)
	wantKind(t, err, stack.Forbidden, "a letter was sent")
	token := e.follow(t, e.mail(t), eve.Account)
	_, _, err = e.accounts.Confirm(t.Context(), visitor, store.Account{}, token, "")
	wantKind(t, err, stack.Unauthenticated, "")
	if found, _, err := e.store.AccountByKey(t.Context(), auth.Hash(eve.APIKey)); e.owner(t, made.id) != "" || found.Confirmed || err != nil {
		t.Fatalf("without the password it is claimed for %+v, %v", found, err)
	}
	if _, err := e.accounts.ResetPassword(t.Context(), visitor, e.follow(t, store.Mail{Kind: store.MailReset}, eve.Account), "battery staple"); err != nil {
		t.Fatal(err)
	}
	_, s, err := e.accounts.Confirm(t.Context(), visitor, store.Account{}, token, "")
	if err != nil || s.Owner != eve.Account.ID || e.works(t, eve.APIKey) || e.signedIn(t, eve.Token) {
		t.Errorf("%+v, %v; the key works: %v", s, err, e.works(t, eve.APIKey))
	}
	_, err = e.accounts.SignIn(t.Context(), visitor, "ana@example.com", password)
	wantKind(t, err, stack.Unauthenticated, "")
}

// What the limit of an address refuses does not count for the network.
func TestSendConfirmation_CountsOnlyWhatIsSent(t *testing.T) {
	e := newMailEnv(t, 1, 2)
	entry := e.signUp(t, "ana@example.com")
	for range 3 {
		wantKind(t, e.accounts.SendConfirmation(t.Context(), visitor, entry.Account), stack.TooMany, "several mails were sent to ana@example.com")
	}
	e.cfg.Claims.Mails.Addresses = &limiter{left: 5}
	if err := e.accounts.SendConfirmation(t.Context(), visitor, entry.Account); err != nil {
		t.Error(err)
	}
	wantKind(t, e.accounts.SendConfirmation(t.Context(), visitor, entry.Account), stack.TooMany, "your network")
}

func TestAdd_CountsAsConfirmed(t *testing.T) {
	e := newMailEnv(t, 1, 10)
	if _, err := e.accounts.Add(t.Context(), "ana@example.com", password); err != nil {
		t.Fatal(err)
	}
	entry, err := e.accounts.SignIn(t.Context(), visitor, "ana@example.com", password)
	if err != nil || !entry.Account.Confirmed {
		t.Errorf("the account is %+v, %v", entry.Account, err)
	}
	if m := e.mail(t); m != (store.Mail{}) {
		t.Errorf("it is sent %+v", m)
	}
}

func TestClaim_OfAStackForOneAddressEndsWithTheLinkInAMail(t *testing.T) {
	e := newMailEnv(t, 3, 10)
	made := e.stackWith(t, "ana@example.com")
	entry, _, err := e.accounts.SignUpAndClaim(t.Context(), visitor, "ana@example.com", password, made.code)
	wantKind(t, err, stack.Forbidden, "a letter was sent to ana@example.com")
	if !errors.Is(err, account.ErrUnconfirmed) || entry.Token == "" {
		t.Errorf("error %v with %+v", err, entry)
	}
	m := e.mail(t)
	if m.Kind != store.MailConfirm || m.StackID != made.id {
		t.Errorf("the mail is %+v", m)
	}
	if other := e.mail(t); other != (store.Mail{}) {
		t.Errorf("there is also %+v", other)
	}
	_, s, err := e.accounts.Confirm(t.Context(), visitor, entry.Account, e.follow(t, m, entry.Account), "")
	if err != nil || s.Owner != entry.Account.ID {
		t.Fatal(s, err)
	}
	another := e.stackWith(t, "ana@example.com")
	session, _, err := e.accounts.Session(t.Context(), entry.Token)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.accounts.Claim(t.Context(), visitor, session.Account, another.code); err != nil {
		t.Errorf("a confirmed address: %v", err)
	}
}

func TestClaim_SendsNoMailForWhatItWouldRefuse(t *testing.T) {
	e := newMailEnv(t, 3, 10)
	entry := e.signUp(t, "bo@example.com")
	e.mail(t)
	bound := e.stackWith(t, "ana@example.com")
	_, err := e.accounts.Claim(t.Context(), visitor, entry.Account, bound.code)
	wantKind(t, err, stack.Forbidden, "")
	if m := e.mail(t); m != (store.Mail{}) {
		t.Errorf("it is sent %+v", m)
	}
	free := e.stackWith(t, "")
	if _, err := e.accounts.Claim(t.Context(), visitor, entry.Account, free.code); err != nil {
		t.Errorf("a stack for anybody: %v", err)
	}
}
