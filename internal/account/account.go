// Package account signs people up and in, changes passwords, rotates keys, claims stacks
// and deletes accounts. It checks the limits on passwords and codes before anything else,
// so there is no way around them. Every error that a person can do something about is a
// *stack.Error, worded for the page.
//
// Code in this package touches accounts and sessions, through the store, and claims
// stacks through the supervisor. It knows no request and no page. An account is deleted
// with all its stacks in one transaction, which may be another process's: the
// supervisor then removes what is left of them.
package account

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// SessionLife is how long a session lasts (docs/api.md, "Accounts").
const SessionLife = 30 * 24 * time.Hour

// Limiter counts requests of one kind by client network. It does not count the requests
// that it refuses.
type Limiter interface {
	// Allow counts a request and reports whether it is within the limit.
	Allow(ctx context.Context, network string) bool
	// Take is like Allow for a request that may turn out not to count: giveBack removes
	// it again.
	Take(ctx context.Context, network string) (giveBack func(), ok bool)
}

// Config configures Accounts.
type Config struct {
	Store     *store.Store
	Passwords *auth.Passwords
	Claims    Claims
	Forms     Limiter // of everything that takes a password
	Codes     Limiter // of claims, shared with POST /v0/claim
	// Heirs returns what tells which node is to own a stack of a node once it is deleted: that
	// one, or another if it is lost. It fails if the node is away. It is nil on one machine.
	Heirs func(ctx context.Context) (heir func(node string) (string, error), err error)
}

// Accounts manages the accounts of one installation.
type Accounts struct{ cfg Config }

// New returns the accounts of an installation.
func New(cfg Config) *Accounts { return &Accounts{cfg} }

// Visitor is the sender of a form.
type Visitor struct {
	IP        string // client address, from the edge
	UserAgent string
}

// Entry is a browser that has just been signed in. The token is its proof, and is
// stored nowhere else.
type Entry struct {
	Account store.Account
	Token   string
	Expires time.Time
	APIKey  string // only for a new account: it is shown once
}

// SignUp creates an account with an API key and signs its owner in. An email that
// already has an account is a Conflict; an invalid email and a password that is too
// short or too long are Unprocessable.
func (a *Accounts) SignUp(ctx context.Context, v Visitor, email, password string) (Entry, error) {
	if err := a.admit(ctx, v); err != nil {
		return Entry{}, err
	}
	entry, err := a.signUp(ctx, v, email, password)
	if err != nil {
		return entry, err
	}
	return entry, a.welcome(ctx, v, entry)
}

// SignIn signs a person in with a new session. An unknown email and a wrong password
// give the same Unauthenticated, after the same time. An account that an operator has disabled
// is Forbidden.
func (a *Accounts) SignIn(ctx context.Context, v Visitor, email, password string) (Entry, error) {
	if err := a.admit(ctx, v); err != nil {
		return Entry{}, err
	}
	return a.signIn(ctx, v, email, password)
}

// Session returns the session of a browser's token; false if it is unknown, expired or
// ended.
func (a *Accounts) Session(ctx context.Context, token string) (store.Session, bool, error) {
	if token == "" {
		return store.Session{}, false, nil
	}
	return a.cfg.Store.FindSession(ctx, auth.Hash(token))
}

// SignOut ends the session of a token.
func (a *Accounts) SignOut(ctx context.Context, token string) error {
	return a.cfg.Store.EndSession(ctx, auth.Hash(token))
}

// Sessions returns the sessions of an account, newest first.
func (a *Accounts) Sessions(ctx context.Context, accountID string) ([]store.Session, error) {
	return a.cfg.Store.Sessions(ctx, accountID)
}

// EndSession ends one session of an account, if the account has it.
func (a *Accounts) EndSession(ctx context.Context, accountID string, id int64) error {
	return a.cfg.Store.EndSessionOf(ctx, accountID, id)
}

// EndOtherSessions ends all sessions of the account except the given one.
func (a *Accounts) EndOtherSessions(ctx context.Context, session store.Session) error {
	return a.cfg.Store.EndSessions(ctx, session.Account.ID, session.ID)
}

// RotateKey replaces the API key of an account and returns the new one; the old one
// stops working with the next request.
func (a *Accounts) RotateKey(ctx context.Context, accountID string) (string, error) {
	key := auth.NewAPIKey()
	if err := a.cfg.Store.RotateKey(ctx, accountID, storedKey(key)); err != nil {
		return "", err
	}
	return key, nil
}

// ChangePassword changes the password of the session's account, and ends all
// its other sessions.
func (a *Accounts) ChangePassword(ctx context.Context, v Visitor, session store.Session, current, next string) error {
	if err := a.admit(ctx, v); err != nil {
		return err
	}
	if err := auth.CheckPassword(next); err != nil {
		return unprocessable(err)
	}
	if err := a.checkCurrent(ctx, session, current); err != nil {
		return err
	}
	hash, err := a.hashNew(ctx, next)
	if err != nil {
		return err
	}
	return a.cfg.Store.SetPassword(ctx, session.Account.ID, hash, session.ID)
}

// Delete deletes the session's account with all its stacks, and returns how many there
// were. The person has typed the account's email address, to confirm that it is meant,
// and the password, and has seen the stacks whose Digest is shown: if the account has
// others by now, that is a Conflict. The server removes what still runs of the stacks.
func (a *Accounts) Delete(ctx context.Context, v Visitor, session store.Session, typed, current, shown string) (stacks int, err error) {
	if err := a.admit(ctx, v); err != nil {
		return 0, err
	}
	if strings.TrimSpace(typed) != session.Account.Email {
		return 0, stack.NewError(stack.Unprocessable, "nothing was deleted: type "+session.Account.Email+" to delete this account")
	}
	if err := a.checkCurrent(ctx, session, current); err != nil {
		return 0, err
	}
	return a.removeConfirmed(ctx, session.Account.ID, shown, "they are listed again here; confirm once more")
}

// Stacks returns the stacks of an account, newest first.
func (a *Accounts) Stacks(ctx context.Context, accountID string) ([]*stack.Stack, error) {
	return a.cfg.Store.Owned(ctx, accountID)
}

// Stack returns a stack of an account. A stack of another account is NotFound, as if it
// did not exist.
func (a *Accounts) Stack(ctx context.Context, accountID, stackID string) (*stack.Stack, error) {
	s, err := a.cfg.Store.Get(ctx, stackID)
	switch {
	case err == nil && s.Owner == accountID && accountID != "":
		return s, nil
	case err == nil, stack.KindOf(err) == stack.NotFound:
		return nil, stack.NewError(stack.NotFound, "there is no such stack in your account; it was deleted, or the address is wrong")
	}
	return nil, err
}

// MaskedKey returns an account's API key in the form that may be shown again.
func MaskedKey(account store.Account) string {
	return auth.APIKeyPrefix + "••••" + account.KeyHint
}

// admit counts a form with a password against its limit.
func (a *Accounts) admit(ctx context.Context, v Visitor) error {
	return allow(ctx, a.cfg.Forms, v)
}

// signUp creates the account and signs in.
func (a *Accounts) signUp(ctx context.Context, v Visitor, email, password string) (Entry, error) {
	key := auth.NewAPIKey()
	account, err := a.create(ctx, email, password, key)
	if err != nil {
		return Entry{}, err
	}
	entry, err := a.enter(ctx, v, account, "")
	entry.APIKey = key
	return entry, err
}

// welcome asks a new account to confirm its address. Where too many mails were sent, the
// account page sends it later.
func (a *Accounts) welcome(ctx context.Context, v Visitor, entry Entry) error {
	if !a.Mails() || entry.APIKey == "" {
		return nil
	}
	if err := a.cfg.Claims.Mails.confirm(ctx, stack.NetworkOf(v.IP), entry.Account, ""); stack.KindOf(err) != stack.TooMany {
		return err
	}
	return nil
}

// signIn checks the password and signs in.
func (a *Accounts) signIn(ctx context.Context, v Visitor, email, password string) (Entry, error) {
	account, hash, err := a.authenticate(ctx, email, password)
	if err == nil {
		err = account.CheckEnabled()
	}
	if err != nil {
		return Entry{}, err
	}
	return a.enter(ctx, v, account, hash)
}

// create checks what a person chose and creates the account.
func (a *Accounts) create(ctx context.Context, email, password, key string) (store.Account, error) {
	if err := checkEmail(email); err != nil {
		return store.Account{}, err
	}
	hash, err := a.hashNew(ctx, password)
	if err != nil {
		return store.Account{}, err
	}
	return a.cfg.Store.CreateAccount(ctx, email, hash, storedKey(key))
}

// authenticate finds the account of an email and checks the password against its hash, which it
// returns, too. It does the same work whether or not there is one.
func (a *Accounts) authenticate(ctx context.Context, email, password string) (account store.Account, hash string, err error) {
	account, hash, _, err = a.cfg.Store.AccountByEmail(ctx, email)
	if err != nil {
		return store.Account{}, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, hashPatience)
	defer cancel()
	right, err := a.cfg.Passwords.Verify(ctx, hash, password)
	if err != nil {
		return store.Account{}, "", busy(err)
	}
	if !right {
		return store.Account{}, "", stack.NewError(stack.Unauthenticated, "the email or the password is wrong")
	}
	return account, hash, nil
}

// checkCurrent refuses a password other than that of the session's account.
func (a *Accounts) checkCurrent(ctx context.Context, session store.Session, password string) error {
	_, _, err := a.authenticate(ctx, session.Account.Email, password)
	if stack.KindOf(err) == stack.Unauthenticated {
		return stack.NewError(stack.Forbidden, "the current password is wrong")
	}
	return err
}

// enter signs a browser in to an account, if the password still has the hash against which it was
// checked.
func (a *Accounts) enter(ctx context.Context, v Visitor, account store.Account, passwordHash string) (Entry, error) {
	token := auth.NewSessionToken()
	session, err := a.cfg.Store.CreateSession(ctx, account, store.SignIn{
		TokenHash: auth.Hash(token), PasswordHash: passwordHash, ExpiresAt: stack.Now().Add(SessionLife), IP: v.IP, UserAgent: cut(v.UserAgent, mostUserAgent),
	})
	if err != nil {
		return Entry{}, err
	}
	return Entry{Account: account, Token: token, Expires: session.ExpiresAt}, nil
}

// hashPatience is how long a form waits for its turn to hash a password.
const hashPatience = 10 * time.Second

// hashNew checks a new password and hashes it.
func (a *Accounts) hashNew(ctx context.Context, password string) (string, error) {
	if err := auth.CheckPassword(password); err != nil {
		return "", unprocessable(err)
	}
	ctx, cancel := context.WithTimeout(ctx, hashPatience)
	defer cancel()
	hash, err := a.cfg.Passwords.Hash(ctx, password)
	return hash, busy(err)
}

// busy returns the error of a hash that did not get its turn.
func busy(err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &stack.Error{Kind: stack.Unavailable, Detail: "too many people are signing in right now; try again in a minute", RetryAfter: time.Minute}
}

// allow counts a request against a limit.
func allow(ctx context.Context, l Limiter, v Visitor) error {
	if l.Allow(ctx, stack.NetworkOf(v.IP)) {
		return nil
	}
	return stack.NewTooMany(retryAfter)
}

// retryAfter is the Retry-After of the limits on forms and claims (docs/api.md,
// "Errors").
const retryAfter = time.Minute

func storedKey(key string) store.Key {
	return store.Key{Hash: auth.Hash(key), Hint: auth.KeyHint(key)}
}

// mostUserAgent limits what is kept of a browser's name, in bytes.
const mostUserAgent = 200

func unprocessable(err error) error {
	return stack.NewError(stack.Unprocessable, err.Error())
}
