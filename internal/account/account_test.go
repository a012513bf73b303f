package account_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/account"
	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// limiter admits a number of requests in all.
type limiter struct {
	mu       sync.Mutex
	left     int
	networks []string
}

func (l *limiter) Allow(ctx context.Context, network string) bool {
	_, ok := l.Take(ctx, network)
	return ok
}

func (l *limiter) Take(_ context.Context, network string) (func(), bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.networks = append(l.networks, network)
	if l.left == 0 {
		return nil, false
	}
	l.left--
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.left++
	}, true
}

// host claims in the store, as the supervisor does.
type host struct{ store *store.Store }

func (h host) Claim(ctx context.Context, id, owner, email string) (*stack.Stack, error) {
	return h.store.Update(ctx, id, func(s *stack.Stack) ([]stack.Event, error) { return s.Claim(owner, email, stack.Now()) })
}

// env is the accounts of one test.
type env struct {
	accounts     *account.Accounts
	cfg          account.Config
	store        *store.Store
	path         string // of the store's database
	key          auth.Key
	forms, codes *limiter
}

func newEnv(t *testing.T) *env {
	t.Helper()
	key, path := auth.Key{1}, filepath.Join(t.TempDir(), "db")
	db, err := store.Open(t.Context(), store.Options{
		Path: path, Sealer: auth.NewSealer(key), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	e := &env{store: db, path: path, key: key, forms: &limiter{left: 1000}, codes: &limiter{left: 1000}}
	e.cfg = account.Config{
		Store: db, Passwords: auth.NewPasswords(2), Forms: e.forms, Codes: e.codes,
		Claims: account.Claims{Stacks: db, Host: host{db}, Key: key},
	}
	e.accounts = account.New(e.cfg)
	return e
}

var visitor = account.Visitor{IP: "192.0.2.7", UserAgent: "a browser"}

const password = "correct horse"

func (e *env) signUp(t *testing.T, email string) account.Entry {
	t.Helper()
	entry, err := e.accounts.SignUp(t.Context(), visitor, email, password)
	if err != nil {
		t.Fatal(err)
	}
	return entry
}

func (e *env) signedIn(t *testing.T, token string) bool {
	t.Helper()
	_, ok, err := e.accounts.Session(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// wantKind checks that err is meant for the user, is of the given kind and contains the
// text.
func wantKind(t *testing.T, err error, kind stack.Kind, text string) {
	t.Helper()
	var known *stack.Error
	if !errors.As(err, &known) || known.Kind != kind || !strings.Contains(known.Detail, text) {
		t.Errorf("error %v, want one of kind %d with %q", err, kind, text)
	}
}

// none is the digest of the stacks of an account that owns none.
var none = account.Digest(nil)

func TestDelete_WantsTheAddressAndThePassword(t *testing.T) {
	e := newEnv(t)
	entry := e.signUp(t, "Ana@example.com")
	session, _, err := e.accounts.Session(t.Context(), entry.Token)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		typed, password, shown string
		kind                   stack.Kind
		text                   string
	}{
		{"", password, none, stack.Unprocessable, "type Ana@example.com to delete"},
		{"bob@example.com", password, none, stack.Unprocessable, "nothing was deleted"},
		{"Ana@example.com", "", none, stack.Forbidden, "the current password is wrong"},
		{"Ana@example.com", "another", none, stack.Forbidden, "the current password is wrong"},
		{"Ana@example.com", password, "", stack.Conflict, "nothing was deleted: the account's stacks changed"},
	} {
		_, err := e.accounts.Delete(t.Context(), visitor, session, tt.typed, tt.password, tt.shown)
		wantKind(t, err, tt.kind, tt.text)
	}
	if !e.signedIn(t, entry.Token) {
		t.Fatal("the account is gone")
	}
	stacks, err := e.accounts.Delete(t.Context(), visitor, session, " Ana@example.com ", password, none)
	if err != nil || stacks != 0 {
		t.Fatal(stacks, err)
	}
	if e.signedIn(t, entry.Token) {
		t.Error("the session outlives its account")
	}
	_, err = e.accounts.SignIn(t.Context(), visitor, "Ana@example.com", password)
	wantKind(t, err, stack.Unauthenticated, "")
}

func TestDelete_CountsAsAFormWithAPassword(t *testing.T) {
	e := newEnv(t)
	session, _, err := e.accounts.Session(t.Context(), e.signUp(t, "ana@example.com").Token)
	if err != nil {
		t.Fatal(err)
	}
	e.forms.left = 1
	_, err = e.accounts.Delete(t.Context(), visitor, session, "ana@example.com", "a guess", none)
	wantKind(t, err, stack.Forbidden, "")
	_, err = e.accounts.Delete(t.Context(), visitor, session, "ana@example.com", password, none)
	wantTooMany(t, err)
}

func wantTooMany(t *testing.T, err error) {
	t.Helper()
	wantKind(t, err, stack.TooMany, "too many requests; slow down and retry in a minute")
	var known *stack.Error
	if errors.As(err, &known) && known.RetryAfter != time.Minute {
		t.Errorf("retry after %s, want a minute", known.RetryAfter)
	}
}

func TestSignUp_MakesAnAccountThatIsSignedInAndHasAKey(t *testing.T) {
	e := newEnv(t)
	entry := e.signUp(t, "ana@example.com")
	session, ok, err := e.accounts.Session(t.Context(), entry.Token)
	if err != nil || !ok || session.Account != entry.Account || session.IP != "192.0.2.7" || session.UserAgent != "a browser" {
		t.Fatalf("session %+v, %v, %v", session, ok, err)
	}
	if life := session.ExpiresAt.Sub(session.CreatedAt).Round(time.Minute); life != 30*24*time.Hour || !entry.Expires.Equal(session.ExpiresAt) {
		t.Errorf("the session lasts %s", life)
	}
	found, ok, err := e.store.AccountByKey(t.Context(), auth.Hash(entry.APIKey))
	if err != nil || !ok || found != entry.Account {
		t.Errorf("the key's account is %+v, %v, %v", found, ok, err)
	}
	if masked := account.MaskedKey(found); masked != "as_live_••••"+entry.APIKey[len(entry.APIKey)-4:] {
		t.Errorf("masked key %q", masked)
	}
}

func TestSignUp_RefusesWhatCannotBeAnAccount(t *testing.T) {
	e := newEnv(t)
	e.signUp(t, "ana@example.com")
	for _, tt := range []struct {
		email, password string
		kind            stack.Kind
		text            string
	}{
		{"hello", password, stack.Unprocessable, "is not an email address"},
		{"Ana <ana@example.com>", password, stack.Unprocessable, "is not an email address"},
		{"a@example.com\r\nBcc: b@example.com", password, stack.Unprocessable, "is not an email address"},
		{strings.Repeat("a", 250) + "@example.com", password, stack.Unprocessable, "is not an email address"},
		{"", password, stack.Unprocessable, "is not an email address"},
		{"\u212aim@example.com", password, stack.Unprocessable, "before the @ must be ASCII"},
		{"bo@example.com", "1234567", stack.Unprocessable, "8 characters"},
		{"bo@example.com", strings.Repeat("x", 1<<20), stack.Unprocessable, "too long"},
		{"ANA@example.com", password, stack.Conflict, "already has an account"},
	} {
		entry, err := e.accounts.SignUp(t.Context(), visitor, tt.email, tt.password)
		wantKind(t, err, tt.kind, tt.text)
		if entry != (account.Entry{}) {
			t.Errorf("%.30q: entry %+v", tt.email, entry)
		}
	}
	if _, _, ok, _ := e.store.AccountByEmail(t.Context(), "bo@example.com"); ok {
		t.Error("a refused sign-up made an account")
	}
}

func TestSignIn_MakesANewSessionEachTime(t *testing.T) {
	e := newEnv(t)
	up := e.signUp(t, "Ana@example.com")
	in, err := e.accounts.SignIn(t.Context(), visitor, "ana@EXAMPLE.com", password)
	if err != nil || in.Token == up.Token || in.APIKey != "" || in.Account != up.Account {
		t.Fatalf("entry %+v, %v", in, err)
	}
	if err := e.accounts.SignOut(t.Context(), up.Token); err != nil {
		t.Fatal(err)
	}
	if e.signedIn(t, up.Token) || !e.signedIn(t, in.Token) {
		t.Error("signing out ends another session, or not its own")
	}
}

func TestSignIn_UnknownEmailAndWrongPasswordCannotBeToldApart(t *testing.T) {
	e := newEnv(t)
	e.signUp(t, "ana@example.com")
	if _, err := e.accounts.Add(t.Context(), "shell@example.com", ""); err != nil {
		t.Fatal(err)
	}
	texts := map[string]bool{}
	for _, email := range []string{"ana@example.com", "none@example.com", "shell@example.com", "no email", ""} {
		_, err := e.accounts.SignIn(t.Context(), visitor, email, "a wrong one")
		wantKind(t, err, stack.Unauthenticated, "wrong")
		texts[err.Error()] = true
		// Without a turn to hash, none of them is answered: each of them hashes.
		busy := e.cfg
		busy.Passwords = auth.NewPasswords(0)
		ended, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		if _, err := account.New(busy).SignIn(ended, visitor, email, "a wrong one"); !errors.Is(err, context.Canceled) {
			t.Errorf("%q: %v, want to wait for a turn", email, err)
		}
	}
	if len(texts) != 1 {
		t.Errorf("the answers differ: %v", texts)
	}
}

func TestSession_IsNoneWithoutAToken(t *testing.T) {
	e := newEnv(t)
	for _, token := range []string{"", "ses_", "ses_unknown", strings.Repeat("x", 1<<16)} {
		if e.signedIn(t, token) {
			t.Errorf("%.20q is signed in", token)
		}
	}
}

func TestForms_ShareOneLimitByNetwork(t *testing.T) {
	e := newEnv(t)
	entry := e.signUp(t, "ana@example.com")
	session, _, _ := e.accounts.Session(t.Context(), entry.Token)
	code := e.stackWith(t, "").code
	e.forms.left, e.forms.networks = 0, nil
	v := account.Visitor{IP: "2001:db8::7"}
	_, err := e.accounts.SignUp(t.Context(), v, "bo@example.com", password)
	wantTooMany(t, err)
	_, err = e.accounts.SignIn(t.Context(), v, "ana@example.com", password)
	wantTooMany(t, err)
	_, _, err = e.accounts.SignUpAndClaim(t.Context(), v, "bo@example.com", password, code)
	wantTooMany(t, err)
	_, _, err = e.accounts.SignInAndClaim(t.Context(), v, "ana@example.com", password, code)
	wantTooMany(t, err)
	wantTooMany(t, e.accounts.ChangePassword(t.Context(), v, session, password, "another one"))
	if len(e.forms.networks) != 5 || e.forms.networks[0] != "2001:db8::/64" {
		t.Errorf("counted %v, want each once for the /64", e.forms.networks)
	}
	if len(e.codes.networks) != 0 {
		t.Error("a form counts as a claim")
	}
}

func TestChangePassword_EndsAllOtherSessions(t *testing.T) {
	e := newEnv(t)
	first := e.signUp(t, "ana@example.com")
	second, err := e.accounts.SignIn(t.Context(), visitor, "ana@example.com", password)
	if err != nil {
		t.Fatal(err)
	}
	session, _, _ := e.accounts.Session(t.Context(), second.Token)
	wantKind(t, e.accounts.ChangePassword(t.Context(), visitor, session, "not this", "another one"), stack.Forbidden, "current password")
	wantKind(t, e.accounts.ChangePassword(t.Context(), visitor, session, password, "short"), stack.Unprocessable, "8 characters")
	if !e.signedIn(t, first.Token) {
		t.Error("a refused change ended a session")
	}
	if err := e.accounts.ChangePassword(t.Context(), visitor, session, password, "another one"); err != nil {
		t.Fatal(err)
	}
	if e.signedIn(t, first.Token) || !e.signedIn(t, second.Token) {
		t.Error("not all other sessions are ended, or this one too")
	}
	_, err = e.accounts.SignIn(t.Context(), visitor, "ana@example.com", password)
	wantKind(t, err, stack.Unauthenticated, "wrong")
	if _, err := e.accounts.SignIn(t.Context(), visitor, "ana@example.com", "another one"); err != nil {
		t.Error(err)
	}
}

func TestRotateKey_WorksWithTheNextRequest(t *testing.T) {
	e := newEnv(t)
	entry := e.signUp(t, "ana@example.com")
	key, err := e.accounts.RotateKey(t.Context(), entry.Account.ID)
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range map[string]bool{entry.APIKey: false, key: true} {
		if _, ok, err := e.store.AccountByKey(t.Context(), auth.Hash(k)); ok != want || err != nil {
			t.Errorf("key %s: %v, %v, want %v", k, ok, err, want)
		}
	}
}

func TestOperator_MakesAccountsAndSetsPasswords(t *testing.T) {
	e := newEnv(t)
	key, err := e.accounts.Add(t.Context(), "ana@example.com", "")
	if err != nil || !strings.HasPrefix(key, auth.APIKeyPrefix) {
		t.Fatal(key, err)
	}
	_, err = e.accounts.SignIn(t.Context(), visitor, "ana@example.com", "")
	wantKind(t, err, stack.Unauthenticated, "wrong")
	if err := e.accounts.SetPassword(t.Context(), "ANA@example.com", password); err != nil {
		t.Fatal(err)
	}
	entry, err := e.accounts.SignIn(t.Context(), visitor, "ana@example.com", password)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.accounts.SetPassword(t.Context(), "ana@example.com", "another one"); err != nil {
		t.Fatal(err)
	}
	if e.signedIn(t, entry.Token) {
		t.Error("a session outlives the password that an operator replaced")
	}
	if _, err := e.accounts.Add(t.Context(), "bo@example.com", password); err != nil {
		t.Fatal(err)
	}
	if _, err := e.accounts.SignIn(t.Context(), visitor, "bo@example.com", password); err != nil {
		t.Error(err)
	}
	_, err = e.accounts.Add(t.Context(), "BO@example.com", "")
	wantKind(t, err, stack.Conflict, "already has an account")
	_, err = e.accounts.Add(t.Context(), "cy@example.com", "short")
	wantKind(t, err, stack.Unprocessable, "8 characters")
	wantKind(t, e.accounts.SetPassword(t.Context(), "none@example.com", password), stack.NotFound, "berthd account create")
	wantKind(t, e.accounts.SetPassword(t.Context(), "ana@example.com", "short"), stack.Unprocessable, "8 characters")
}

func TestStack_IsThereForItsOwnerOnly(t *testing.T) {
	e := newEnv(t)
	ana, bo := e.signUp(t, "ana@example.com").Account, e.signUp(t, "bo@example.com").Account
	m, unclaimed := e.stackWith(t, ""), e.stackWith(t, "")
	if _, err := e.accounts.Claim(t.Context(), visitor, ana, m.code); err != nil {
		t.Fatal(err)
	}
	if s, err := e.accounts.Stack(t.Context(), ana.ID, m.id); err != nil || s.ID != m.id {
		t.Errorf("%v, %v", s, err)
	}
	for _, tt := range [][2]string{{bo.ID, m.id}, {"", m.id}, {"", unclaimed.id}, {ana.ID, unclaimed.id}, {ana.ID, "stk_000000000000"}, {ana.ID, "nonsense"}} {
		_, err := e.accounts.Stack(t.Context(), tt[0], tt[1])
		wantKind(t, err, stack.NotFound, "no such stack in your account")
	}
	if all, err := e.accounts.Stacks(t.Context(), ana.ID); err != nil || len(all) != 1 || all[0].ID != m.id {
		t.Errorf("stacks %v, %v", all, err)
	}
}
