package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// Session is a browser that is signed in to an account.
type Session struct {
	ID         int64 // never used twice; 0 for none
	Account    Account
	CreatedAt  time.Time
	LastUsedAt time.Time // within the last touchEvery, when it is in use
	ExpiresAt  time.Time
	IP         string // address that signed in
	UserAgent  string
}

// touchEvery is how far LastUsedAt may lag behind: a request that only reads
// must not become a write.
const touchEvery = 10 * time.Minute

// sessionColumns are the columns of a Session, in the order of its places.
const sessionColumns = "sessions.id, sessions.created_at, sessions.last_used_at, sessions.expires_at, sessions.ip, sessions.user_agent, " + accountColumns

func (session *Session) places() []any {
	own := []any{&session.ID, (*micros)(&session.CreatedAt), (*micros)(&session.LastUsedAt), (*micros)(&session.ExpiresAt), &session.IP, &session.UserAgent}
	return append(own, session.Account.places()...)
}

const selectSessions = "SELECT " + sessionColumns + " FROM sessions JOIN accounts ON accounts.id = sessions.account WHERE "

// SignIn is what a new session is made of.
type SignIn struct {
	TokenHash     []byte // of the token that opens the account
	PasswordHash  string // what the password was checked against; "" if none was
	ExpiresAt     time.Time
	IP, UserAgent string
}

// CreateSession signs a browser in. It also removes expired sessions of all accounts. If the
// account was deleted or has got another password in the meantime, the error is Unauthenticated.
func (s *Store) CreateSession(ctx context.Context, account Account, in SignIn) (Session, error) {
	now := stack.Now()
	session := Session{Account: account, CreatedAt: now, LastUsedAt: now, ExpiresAt: in.ExpiresAt, IP: in.IP, UserAgent: in.UserAgent}
	err := s.transact(ctx, func(tx *sql.Tx) error {
		if err := s.exec(ctx, tx, "remove expired sessions", "DELETE FROM sessions WHERE expires_at <= ?", micros(now)); err != nil {
			return err
		}
		if err := s.checkOwner(ctx, tx, account.ID); err != nil {
			return err
		}
		if err := s.checkPassword(ctx, tx, account.ID, in.PasswordHash); err != nil {
			return err
		}
		id, _, err := readOne(ctx, s, tx, "insert session", onlyPlace[int64], `INSERT INTO sessions
			(token_hash, account, created_at, last_used_at, expires_at, ip, user_agent) VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id`,
			in.TokenHash, account.ID, micros(now), micros(now), micros(in.ExpiresAt), in.IP, in.UserAgent)
		session.ID = id
		return err
	})
	if err != nil {
		return Session{}, err
	}
	return session, nil
}

// checkPassword returns an Unauthenticated error if an account has another password than the one
// with a hash; "" for any.
func (s *Store) checkPassword(ctx context.Context, from querier, accountID, hash string) error {
	if hash == "" {
		return nil
	}
	_, same, err := readOne(ctx, s, from, "look at the password", onlyPlace[int], "SELECT 1 FROM accounts WHERE id = ? AND password_hash = ?", accountID, hash)
	if err == nil && !same {
		err = stack.NewError(stack.Unauthenticated, "the password was changed a moment ago; sign in with the new one")
	}
	return err
}

// FindSession returns the session whose token has this hash, unless it has expired, and
// records that it is in use.
func (s *Store) FindSession(ctx context.Context, tokenHash []byte) (session Session, ok bool, err error) {
	now := stack.Now()
	session, ok, err = readOne(ctx, s, s.read, "find session", (*Session).places,
		selectSessions+"token_hash = ? AND expires_at > ?", tokenHash, micros(now))
	if err != nil || !ok || now.Sub(session.LastUsedAt) < touchEvery {
		return session, ok, err
	}
	session.LastUsedAt = now
	if err := s.exec(ctx, s.write, "touch session", "UPDATE sessions SET last_used_at = ? WHERE id = ?", micros(now), session.ID); err != nil {
		return Session{}, false, err
	}
	return session, true, nil
}

// Sessions returns the sessions of an account that have not expired, newest first.
func (s *Store) Sessions(ctx context.Context, accountID string) ([]Session, error) {
	return readAll(ctx, s, s.read, "read sessions", (*Session).places,
		selectSessions+"account = ? AND expires_at > ? ORDER BY sessions.id DESC", accountID, micros(stack.Now()))
}

// EndSession ends the session whose token has this hash, if there is one.
func (s *Store) EndSession(ctx context.Context, tokenHash []byte) error {
	return s.exec(ctx, s.write, "end session", "DELETE FROM sessions WHERE token_hash = ?", tokenHash)
}

// EndSessionOf ends one session of an account, if the account has it.
func (s *Store) EndSessionOf(ctx context.Context, accountID string, id int64) error {
	return s.exec(ctx, s.write, "end session", "DELETE FROM sessions WHERE account = ? AND id = ?", accountID, id)
}

// EndSessions ends all sessions of an account except the one with the given id, 0 for
// none.
func (s *Store) EndSessions(ctx context.Context, accountID string, keep int64) error {
	return s.endSessions(ctx, s.write, accountID, keep)
}

func (s *Store) endSessions(ctx context.Context, q querier, accountID string, keep int64) error {
	return s.exec(ctx, q, "end sessions", "DELETE FROM sessions WHERE account = ? AND id <> ?", accountID, keep)
}
