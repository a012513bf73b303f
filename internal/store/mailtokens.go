package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// MailToken is what the token in a mail's link is for.
type MailToken struct {
	Kind    MailKind // MailReset or MailConfirm
	Account Account
	StackID string // of a MailConfirm: the stack that it also claims; "" for none
}

func (t *MailToken) places() []any {
	return append([]any{(*string)(&t.Kind), &t.StackID}, t.Account.places()...)
}

// AddMailToken stores the hash of a token until its expiry, and removes those that have
// expired. An account deleted in the meantime is Unauthenticated.
func (s *Store) AddMailToken(ctx context.Context, hash []byte, t MailToken, expires time.Time) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		if err := s.exec(ctx, tx, "remove expired tokens of mails", "DELETE FROM mail_tokens WHERE expires_at <= ?", micros(stack.Now())); err != nil {
			return err
		}
		if err := s.checkOwner(ctx, tx, t.Account.ID); err != nil {
			return err
		}
		return s.exec(ctx, tx, "insert the token of a mail", "INSERT INTO mail_tokens (hash, kind, account, stack_id, expires_at) VALUES (?, ?, ?, ?, ?)",
			hash, string(t.Kind), t.Account.ID, t.StackID, micros(expires))
	})
}

// FindMailToken returns the token of a kind with this hash. One that has expired, was used or
// never was is NotFound.
func (s *Store) FindMailToken(ctx context.Context, kind MailKind, hash []byte) (MailToken, error) {
	return s.findMailToken(ctx, s.read, kind, hash)
}

func (s *Store) findMailToken(ctx context.Context, q querier, kind MailKind, hash []byte) (MailToken, error) {
	t, ok, err := readOne(ctx, s, q, "find the token of a mail", (*MailToken).places,
		"SELECT mail_tokens.kind, mail_tokens.stack_id, "+accountColumns+` FROM mail_tokens JOIN accounts ON accounts.id = mail_tokens.account
		WHERE mail_tokens.hash = ? AND mail_tokens.kind = ? AND mail_tokens.expires_at > ?`, hash, string(kind), micros(stack.Now()))
	if err == nil && !ok {
		err = errNoMailToken
	}
	return t, err
}

// ResetPassword uses a token of the kind MailReset: it replaces the account's password and
// ends all its sessions, and, if the address was not confirmed before, replaces the API key, since
// somebody else may have made the account. Then the address counts as confirmed. The returned
// account is as it was before. No token of the kind works for it again. A token that does not work
// is NotFound.
func (s *Store) ResetPassword(ctx context.Context, hash []byte, passwordHash string, key Key) (MailToken, error) {
	return s.useMailToken(ctx, MailReset, hash, func(tx *sql.Tx, t MailToken) error {
		if err := s.exec(ctx, tx, "set the password", "UPDATE accounts SET password_hash = ? WHERE id = ?", passwordHash, t.Account.ID); err != nil {
			return err
		}
		if !t.Account.Confirmed {
			if err := s.rotateKey(ctx, tx, t.Account.ID, key); err != nil {
				return err
			}
		}
		return s.endSessions(ctx, tx, t.Account.ID, 0)
	})
}

// ConfirmAddress uses a token of the kind MailConfirm. Others that claim another stack go on
// working. A token that does not work is NotFound.
func (s *Store) ConfirmAddress(ctx context.Context, hash []byte) (MailToken, error) {
	return s.useMailToken(ctx, MailConfirm, hash, func(*sql.Tx, MailToken) error { return nil })
}

func (s *Store) useMailToken(ctx context.Context, kind MailKind, hash []byte, use func(*sql.Tx, MailToken) error) (t MailToken, err error) {
	err = s.transact(ctx, func(tx *sql.Tx) (err error) {
		if t, err = s.findMailToken(ctx, tx, kind, hash); err != nil {
			return err
		}
		if err := s.exec(ctx, tx, "use the token of a mail", "DELETE FROM mail_tokens WHERE account = ? AND kind = ? AND stack_id = ?", t.Account.ID, string(kind), t.StackID); err != nil {
			return err
		}
		err = s.exec(ctx, tx, "confirm the address", "UPDATE accounts SET confirmed_at = ? WHERE id = ? AND confirmed_at IS NULL", micros(stack.Now()), t.Account.ID)
		if err != nil {
			return err
		}
		return use(tx, t)
	})
	return t, err
}

var errNoMailToken = stack.NewError(stack.NotFound, "this link has been used, is older than 30 minutes, or was cut off; ask for another")

// forgetMails removes the mails and tokens of an account.
func (s *Store) forgetMails(ctx context.Context, tx *sql.Tx, accountID string) error {
	if err := s.exec(ctx, tx, "remove the account's mails", "DELETE FROM mails WHERE account = ?", accountID); err != nil {
		return err
	}
	return s.exec(ctx, tx, "remove the account's tokens", "DELETE FROM mail_tokens WHERE account = ?", accountID)
}
