package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// Account is a person's account.
type Account struct {
	ID      string // acc_ and 12 hex characters
	Email   string // as it was given; no two differ only in the case of ASCII letters
	KeyHint string // the end of the API key; "" for one that was made before hints were kept

	Confirmed bool // its holder has opened a link that was sent to Email
	MailOff   bool // its holder wants no notices by mail

	DisabledFor string // why an operator has disabled it; "" if none has
}

// CheckEnabled returns a Forbidden error if an operator has disabled the account.
func (a *Account) CheckEnabled() error {
	if a.DisabledFor == "" {
		return nil
	}
	return stack.NewError(stack.Forbidden, "the operator of this host has disabled this account: "+a.DisabledFor)
}

// Key is what the database holds of an API key.
type Key struct {
	Hash []byte
	Hint string // its end, shown to its owner
}

// accountColumns are the columns of an Account, in the order of its places.
const accountColumns = "accounts.id, accounts.email, accounts.key_hint, accounts.confirmed_at IS NOT NULL, accounts.mail_off, accounts.disabled_for"

func (a *Account) places() []any {
	return []any{&a.ID, &a.Email, &a.KeyHint, &a.Confirmed, &a.MailOff, (*nullText)(&a.DisabledFor)}
}

// CreateAccount creates an account with an API key. The password hash is "" for an
// account that cannot sign in. An email that already has an account is a Conflict.
func (s *Store) CreateAccount(ctx context.Context, email, passwordHash string, key Key) (Account, error) {
	return s.createAccount(ctx, email, passwordHash, key, time.Time{})
}

// CreateConfirmed is CreateAccount for an address that needs no confirmation.
func (s *Store) CreateConfirmed(ctx context.Context, email, passwordHash string, key Key) (Account, error) {
	return s.createAccount(ctx, email, passwordHash, key, stack.Now())
}

func (s *Store) createAccount(ctx context.Context, email, passwordHash string, key Key, confirmed time.Time) (Account, error) {
	now := stack.Now()
	account := Account{ID: newAccountID(), Email: email, KeyHint: key.Hint, Confirmed: !confirmed.IsZero()}
	err := s.transact(ctx, func(tx *sql.Tx) error {
		unchanged := stack.NewError(stack.Conflict, fmt.Sprintf("the email %s already has an account; sign in, or use another", email))
		return s.change(ctx, tx, unchanged, "insert account",
			`INSERT INTO accounts (id, email, password_hash, key_hash, key_hint, key_made_at, created_at, confirmed_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (`+s.dialect.email()+`) DO NOTHING`,
			account.ID, email, nullText(passwordHash), key.Hash, key.Hint, micros(now), micros(now), micros(confirmed))
	})
	if err != nil {
		return Account{}, err
	}
	return account, nil
}

// AccountByKey returns the account whose API key has the given hash.
func (s *Store) AccountByKey(ctx context.Context, hash []byte) (account Account, ok bool, err error) {
	return readOne(ctx, s, s.read, "find account by key", (*Account).places, "SELECT "+accountColumns+" FROM accounts WHERE key_hash = ?", hash)
}

// AccountByEmail returns an account and the hash of its password, "" if it has none.
func (s *Store) AccountByEmail(ctx context.Context, email string) (account Account, passwordHash string, ok bool, err error) {
	account, ok, err = readOne(ctx, s, s.read, "find account by email", func(a *Account) []any {
		return append(a.places(), (*nullText)(&passwordHash))
	}, "SELECT "+accountColumns+", password_hash FROM accounts WHERE "+s.dialect.email()+" = ?", lowerASCII(email))
	return account, passwordHash, ok, err
}

// Account returns the account with an id.
func (s *Store) Account(ctx context.Context, accountID string) (account Account, ok bool, err error) {
	return readOne(ctx, s, s.read, "read account "+accountID, (*Account).places, "SELECT "+accountColumns+" FROM accounts WHERE id = ?", accountID)
}

// AccountEmail returns the email of an account that exists.
func (s *Store) AccountEmail(ctx context.Context, accountID string) (string, error) {
	email, ok, err := readOne(ctx, s, s.read, "read account "+accountID, onlyPlace[string], "SELECT email FROM accounts WHERE id = ?", accountID)
	if err == nil && !ok {
		err = s.fault("read account "+accountID, sql.ErrNoRows)
	}
	return email, err
}

// AccountEntry is an account as an operator sees it.
type AccountEntry struct {
	Account   Account
	CreatedAt time.Time
	Stacks    int // that it owns
}

// Accounts returns all accounts, in the order of their emails.
func (s *Store) Accounts(ctx context.Context) ([]AccountEntry, error) {
	return readAll(ctx, s, s.read, "list accounts", func(e *AccountEntry) []any {
		return append(e.Account.places(), (*micros)(&e.CreatedAt), &e.Stacks)
	}, "SELECT "+accountColumns+`, created_at, (SELECT COUNT(*) FROM stacks WHERE owner = accounts.id AND status <> 'deleted')
		FROM accounts ORDER BY email`)
}

// DisableAccount disables an account for a reason, or enables it for "". An unknown account is
// NotFound.
func (s *Store) DisableAccount(ctx context.Context, accountID, reason string) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		return s.change(ctx, tx, errNoAccount, "disable the account", "UPDATE accounts SET disabled_for = ? WHERE id = ?", nullText(reason), accountID)
	})
}

// RotateKey replaces the API key of an account; the old one stops working with the next
// request. An unknown account is NotFound.
func (s *Store) RotateKey(ctx context.Context, accountID string, key Key) error {
	return s.transact(ctx, func(tx *sql.Tx) error { return s.rotateKey(ctx, tx, accountID, key) })
}

func (s *Store) rotateKey(ctx context.Context, tx *sql.Tx, accountID string, key Key) error {
	return s.change(ctx, tx, errNoAccount, "rotate the key",
		"UPDATE accounts SET key_hash = ?, key_hint = ?, key_made_at = ? WHERE id = ?",
		key.Hash, key.Hint, micros(stack.Now()), accountID)
}

// SetPassword replaces the password of an account and ends all its sessions except the
// one with the given id, 0 for none. An unknown account is NotFound.
func (s *Store) SetPassword(ctx context.Context, accountID, passwordHash string, keep int64) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		err := s.change(ctx, tx, errNoAccount, "set the password", "UPDATE accounts SET password_hash = ? WHERE id = ?", passwordHash, accountID)
		if err != nil {
			return err
		}
		return s.endSessions(ctx, tx, accountID, keep)
	})
}

// DeleteAccount deletes an account with all its stacks and sessions in one transaction,
// and returns those stacks. Their watchers find them deleted; their rows stay for their
// events, as for any deleted stack. DeleteAccount first calls check with the stacks,
// and deletes nothing if check fails. A stack whose Node check changes is that node's then,
// which delivers its last event. An unknown account is NotFound.
func (s *Store) DeleteAccount(ctx context.Context, accountID string, check func([]*stack.Stack) error) ([]*stack.Stack, error) {
	var stacks []*stack.Stack
	events := map[string][]stack.Event{}
	err := s.transact(ctx, func(tx *sql.Tx) (err error) {
		now := stack.Now()
		if stacks, err = s.list(ctx, tx, "owner = ? AND status <> 'deleted' ORDER BY seq", accountID); err != nil {
			return err
		}
		before := make([]stack.Stack, len(stacks))
		for i, k := range stacks {
			before[i] = *k
		}
		if err := check(stacks); err != nil {
			return err
		}
		for i, k := range stacks {
			if events[k.ID], err = s.deleteOwned(ctx, tx, &before[i], k, now); err != nil {
				return err
			}
		}
		return s.removeAccount(ctx, tx, accountID)
	})
	if err != nil {
		return nil, err
	}
	for _, k := range stacks {
		s.announce(k.ID, events[k.ID])
	}
	return stacks, nil
}

// deleteOwned deletes a stack of an account, and returns the events.
func (s *Store) deleteOwned(ctx context.Context, tx *sql.Tx, before, k *stack.Stack, now time.Time) ([]stack.Event, error) {
	if k.Node != before.Node {
		k.Epoch++
	}
	events, err := k.Delete(now)
	if err != nil {
		return nil, err
	}
	if err := s.handOver(ctx, tx, before, k, &change{}); err != nil {
		return nil, err
	}
	return events, s.save(ctx, tx, k, events)
}

// removeAccount removes an account whose stacks are all deleted, and the receipts of
// those stacks.
func (s *Store) removeAccount(ctx context.Context, tx *sql.Tx, accountID string) error {
	if err := errors.Join(s.endSessions(ctx, tx, accountID, 0), s.forgetMails(ctx, tx, accountID)); err != nil {
		return err
	}
	err := s.exec(ctx, tx, "remove the receipts of the account's stacks",
		"DELETE FROM receipts WHERE stack_id IN (SELECT id FROM stacks WHERE owner = ?)", accountID)
	if err != nil {
		return err
	}
	if err := s.exec(ctx, tx, "disown the account's stacks", "UPDATE stacks SET owner = NULL WHERE owner = ?", accountID); err != nil {
		return err
	}
	return s.change(ctx, tx, errNoAccount, "delete the account", "DELETE FROM accounts WHERE id = ?", accountID)
}

// checkOwner refuses a deleted account as the owner of a stack or session: it was
// deleted after its key, session or password had been looked up.
func (s *Store) checkOwner(ctx context.Context, from querier, accountID string) error {
	account, there, err := readOne(ctx, s, from, "look for the account", (*Account).places, "SELECT "+accountColumns+" FROM accounts WHERE id = ?", accountID)
	if err != nil {
		return err
	}
	if !there {
		return stack.NewError(stack.Unauthenticated, "this account was deleted a moment ago")
	}
	return account.CheckEnabled()
}

// CheckAccount returns a Forbidden error if an operator has disabled an account.
func (s *Store) CheckAccount(ctx context.Context, accountID string) error {
	return s.checkOwner(ctx, s.read, accountID)
}

var errNoAccount = stack.NewError(stack.NotFound, "there is no such account")

// change runs a statement for one account, and returns the error unchanged if it
// changes none.
func (s *Store) change(ctx context.Context, tx *sql.Tx, unchanged *stack.Error, doing, query string, args ...any) error {
	ctx, cancel := s.limit(ctx)
	defer cancel()
	result, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return s.fault(doing, err)
	}
	n, err := result.RowsAffected()
	if err == nil && n == 0 {
		return unchanged
	}
	return s.fault(doing, err)
}

func newAccountID() string {
	var b [6]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return "acc_" + hex.EncodeToString(b[:])
}
