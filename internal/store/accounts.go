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
	ID        string // acc_ and 12 hex characters
	Email     string // as it was given; no two differ only in the case of ASCII letters
	KeyHint   string // the end of the API key; "" for one that was made before hints were kept
	KeyMadeAt time.Time
	CreatedAt time.Time
}

// Key is what is stored of an API key.
type Key struct {
	Hash []byte
	Hint string // its end, shown to its owner
}

// accountColumns are those of an Account, in the order of its places.
const accountColumns = "accounts.id, accounts.email, accounts.key_hint, coalesce(accounts.key_made_at, accounts.created_at), accounts.created_at"

func (a *Account) places() []any {
	return []any{&a.ID, &a.Email, &a.KeyHint, (*micros)(&a.KeyMadeAt), (*micros)(&a.CreatedAt)}
}

// CreateAccount makes an account with an API key. The password hash is "" for
// one that cannot sign in. An email that already has an account is a Conflict.
func (s *Store) CreateAccount(ctx context.Context, email, passwordHash string, key Key) (Account, error) {
	now := stack.Now()
	account := Account{ID: newAccountID(), Email: email, KeyHint: key.Hint, KeyMadeAt: now, CreatedAt: now}
	err := s.transact(ctx, func(tx *sql.Tx) error {
		var taken bool
		err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM accounts WHERE email = ?)", email).Scan(&taken)
		if err != nil {
			return s.fault("look for the account", err)
		}
		if taken {
			return stack.NewError(stack.Conflict, fmt.Sprintf("the email %s already has an account; sign in, or use another", email))
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO accounts (id, email, password_hash, key_hash, key_hint, key_made_at, created_at)
			VALUES (?, ?, ?, ?, ?, ?, ?)`, account.ID, email, nullText(passwordHash), key.Hash, key.Hint, micros(now), micros(now))
		if err != nil {
			return s.fault("insert account", err)
		}
		return nil
	})
	if err != nil {
		return Account{}, err
	}
	return account, nil
}

// AccountByKey finds the account whose API key has the given hash.
func (s *Store) AccountByKey(ctx context.Context, hash []byte) (account Account, ok bool, err error) {
	row := s.read.QueryRowContext(ctx, "SELECT "+accountColumns+" FROM accounts WHERE key_hash = ?", hash)
	err = s.found("find account by key", row, &ok, account.places()...)
	return account, ok, err
}

// AccountByEmail finds an account and the hash of its password, "" when it has
// none.
func (s *Store) AccountByEmail(ctx context.Context, email string) (account Account, passwordHash string, ok bool, err error) {
	row := s.read.QueryRowContext(ctx, "SELECT "+accountColumns+", password_hash FROM accounts WHERE email = ?", email)
	err = s.found("find account by email", row, &ok, append(account.places(), (*nullText)(&passwordHash))...)
	return account, passwordHash, ok, err
}

// RotateKey gives an account another API key; the one before stops working with
// the next request. An unknown account is NotFound.
func (s *Store) RotateKey(ctx context.Context, accountID string, key Key) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, "UPDATE accounts SET key_hash = ?, key_hint = ?, key_made_at = ? WHERE id = ?",
			key.Hash, key.Hint, micros(stack.Now()), accountID)
		return s.changedAccount("rotate the key", result, err)
	})
}

// SetPassword gives an account another password and ends all its sessions but
// the one of the given id, 0 for none. An unknown account is NotFound.
func (s *Store) SetPassword(ctx context.Context, accountID, passwordHash string, keep int64) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, "UPDATE accounts SET password_hash = ? WHERE id = ?", passwordHash, accountID)
		if err := s.changedAccount("set the password", result, err); err != nil {
			return err
		}
		return s.endSessions(ctx, tx, accountID, keep)
	})
}

// changedAccount tells what came of the update of one account.
func (s *Store) changedAccount(doing string, result sql.Result, err error) error {
	if err != nil {
		return s.fault(doing, err)
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, stack.NewError(stack.NotFound, "there is no such account"))
	}
	return nil
}

// found reads one row into its places, and sets ok when there is one.
func (s *Store) found(doing string, row *sql.Row, ok *bool, places ...any) error {
	err := row.Scan(places...)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return s.fault(doing, err)
	}
	*ok = true
	return nil
}

func newAccountID() string {
	var b [6]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return "acc_" + hex.EncodeToString(b[:])
}
