package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/berth-host/berth/internal/stack"
)

// Account is a person's account.
type Account struct {
	ID    string // acc_ and 12 hex characters
	Email string // as it was given; no two differ only in the case of ASCII letters
}

// CreateAccount makes an account whose API key has the given hash. An email
// that already has an account is a Conflict.
func (s *Store) CreateAccount(ctx context.Context, email string, keyHash []byte) (Account, error) {
	account := Account{ID: newAccountID(), Email: email}
	err := s.transact(ctx, func(tx *sql.Tx) error {
		var taken bool
		err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM accounts WHERE email = ?)", email).Scan(&taken)
		if err != nil {
			return s.fault("look for the account", err)
		}
		if taken {
			return stack.NewError(stack.Conflict, fmt.Sprintf("%s already has an account; use its API key, or another email", email))
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO accounts (id, email, key_hash, created_at) VALUES (?, ?, ?, ?)",
			account.ID, email, keyHash, micros(stack.Now()))
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
	err = s.read.QueryRowContext(ctx, "SELECT id, email FROM accounts WHERE key_hash = ?", hash).
		Scan(&account.ID, &account.Email)
	if errors.Is(err, sql.ErrNoRows) {
		return Account{}, false, nil
	}
	if err != nil {
		return Account{}, false, s.fault("find account by key", err)
	}
	return account, true, nil
}

func newAccountID() string {
	var b [6]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return "acc_" + hex.EncodeToString(b[:])
}
