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

// CreateSession signs a browser in: the token with the given hash opens the account
// until the expiry. It also removes expired sessions of all accounts. An account
// deleted in the meantime is Unauthenticated.
func (s *Store) CreateSession(ctx context.Context, account Account, tokenHash []byte, expires time.Time, ip, userAgent string) (Session, error) {
	now := stack.Now()
	session := Session{Account: account, CreatedAt: now, LastUsedAt: now, ExpiresAt: expires, IP: ip, UserAgent: userAgent}
	err := s.transact(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM sessions WHERE expires_at <= ?", micros(now)); err != nil {
			return s.fault("remove expired sessions", err)
		}
		if err := s.checkOwner(ctx, tx, account.ID); err != nil {
			return err
		}
		err := tx.QueryRowContext(ctx, `INSERT INTO sessions (token_hash, account, created_at, last_used_at, expires_at, ip, user_agent)
			VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id`,
			tokenHash, account.ID, micros(now), micros(now), micros(expires), ip, userAgent).Scan(&session.ID)
		if err != nil {
			return s.fault("insert session", err)
		}
		return nil
	})
	if err != nil {
		return Session{}, err
	}
	return session, nil
}

// FindSession returns the session whose token has this hash, unless it has expired, and
// records that it is in use.
func (s *Store) FindSession(ctx context.Context, tokenHash []byte) (session Session, ok bool, err error) {
	now := stack.Now()
	row := s.read.QueryRowContext(ctx, selectSessions+"token_hash = ? AND expires_at > ?", tokenHash, micros(now))
	if err := s.found("find session", row, &ok, session.places()...); err != nil || !ok {
		return Session{}, false, err
	}
	if now.Sub(session.LastUsedAt) < touchEvery {
		return session, true, nil
	}
	session.LastUsedAt = now
	if _, err := s.write.ExecContext(ctx, "UPDATE sessions SET last_used_at = ? WHERE id = ?", micros(now), session.ID); err != nil {
		return Session{}, false, s.fault("touch session", err)
	}
	return session, true, nil
}

// Sessions returns the sessions of an account that have not expired, newest first.
func (s *Store) Sessions(ctx context.Context, accountID string) ([]Session, error) {
	scan := func(r row) (session Session, err error) {
		err = r.Scan(session.places()...)
		return session, err
	}
	return readAll(ctx, s, s.read, "read sessions", scan,
		selectSessions+"account = ? AND expires_at > ? ORDER BY sessions.id DESC", accountID, micros(stack.Now()))
}

// EndSession ends the session whose token has this hash, if there is one.
func (s *Store) EndSession(ctx context.Context, tokenHash []byte) error {
	if _, err := s.write.ExecContext(ctx, "DELETE FROM sessions WHERE token_hash = ?", tokenHash); err != nil {
		return s.fault("end session", err)
	}
	return nil
}

// EndSessionOf ends one session of an account, if the account has it.
func (s *Store) EndSessionOf(ctx context.Context, accountID string, id int64) error {
	if _, err := s.write.ExecContext(ctx, "DELETE FROM sessions WHERE account = ? AND id = ?", accountID, id); err != nil {
		return s.fault("end session", err)
	}
	return nil
}

// EndSessions ends all sessions of an account except the one with the given id, 0 for
// none.
func (s *Store) EndSessions(ctx context.Context, accountID string, keep int64) error {
	return s.transact(ctx, func(tx *sql.Tx) error { return s.endSessions(ctx, tx, accountID, keep) })
}

func (s *Store) endSessions(ctx context.Context, tx *sql.Tx, accountID string, keep int64) error {
	if _, err := tx.ExecContext(ctx, "DELETE FROM sessions WHERE account = ? AND id <> ?", accountID, keep); err != nil {
		return s.fault("end sessions", err)
	}
	return nil
}
