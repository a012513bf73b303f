package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// MailKind is what a mail is about.
type MailKind string

// The kinds of mails. MailReset and MailConfirm are asked for; the others are notices, which
// the holder of an account can turn off.
const (
	MailFailed   MailKind = "failed"   // a stack failed
	MailCrashing MailKind = "crashing" // a service crashes again and again
	MailClaimed  MailKind = "claimed"  // a stack was claimed into the account
	MailDomain   MailKind = "domain"   // a stack has lost a domain
	MailDisk     MailKind = "disk"     // a stack takes more than it may on the disk
	MailReset    MailKind = "reset"    // a link to choose a new password
	MailConfirm  MailKind = "confirm"  // a link to confirm the address, and to claim StackID
)

// MailLife is how long a mail that cannot be sent is tried. For as long no second notice of
// the same kind about a stack goes to its account.
const MailLife = time.Hour

// Mail is a mail that is to be sent.
type Mail struct {
	ID        int64
	Kind      MailKind
	Account   string // "" for a MailReset
	Address   string // as typed, for a MailReset; "" for that of the account
	StackID   string // "" for none
	Detail    string // of a notice: the error, the service, the domain and why, or the figures
	CreatedAt time.Time
	Tries     int // with the one under way
}

func (m *Mail) places() []any {
	return []any{&m.ID, (*string)(&m.Kind), &m.Account, &m.Address, &m.StackID, &m.Detail, (*micros)(&m.CreatedAt), &m.Tries}
}

const mailColumns = "id, kind, account, address, stack_id, detail, created_at, tries"

// AskMail records that a mail is to be sent; its ID, CreatedAt and Tries do not count. An
// account's MailConfirm replaces one about the same stack, or about none, that was not sent yet.
func (s *Store) AskMail(ctx context.Context, m Mail) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		now := stack.Now()
		if m.Kind == MailConfirm {
			if err := s.dropMails(ctx, tx, m.Kind, m.Account, m.StackID); err != nil {
				return err
			}
		}
		return s.insertMail(ctx, tx, m, now, now)
	})
}

// TakeMail returns the mail that has been due for the longest time, if there is one, and
// keeps it from every other server for the given time.
func (s *Store) TakeMail(ctx context.Context, hold time.Duration) (m Mail, ok bool, err error) {
	now := micros(stack.Now())
	due := "id = (SELECT id FROM mails WHERE try_at <= ? AND created_at > ? ORDER BY try_at, id LIMIT 1)"
	oldest := micros(time.Time(now).Add(-MailLife))
	if m, ok, err = readOne(ctx, s, s.read, "look for a mail", (*Mail).places, "SELECT "+mailColumns+" FROM mails WHERE "+due, now, oldest); err != nil || !ok {
		return Mail{}, false, err
	}
	err = s.transact(ctx, func(tx *sql.Tx) error {
		m, ok, err = readOne(ctx, s, tx, "take a mail", (*Mail).places,
			"UPDATE mails SET try_at = ?, tries = tries + 1 WHERE "+due+" RETURNING "+mailColumns, micros(time.Time(now).Add(hold)), now, oldest)
		return err
	})
	return m, ok && err == nil, err
}

// MailLater makes a mail due again after the given time.
func (s *Store) MailLater(ctx context.Context, id int64, after time.Duration) error {
	return s.exec(ctx, s.write, "put off a mail", "UPDATE mails SET try_at = ? WHERE id = ?", micros(stack.Now().Add(after)), id)
}

// MailDone records that a mail was sent, or never can be.
func (s *Store) MailDone(ctx context.Context, id int64) error {
	return s.exec(ctx, s.write, "end a mail", "UPDATE mails SET try_at = NULL WHERE id = ?", id)
}

// SetMailOff turns notices to an account off, or on again.
func (s *Store) SetMailOff(ctx context.Context, accountID string, off bool) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		return s.change(ctx, tx, errNoAccount, "set what is mailed", "UPDATE accounts SET mail_off = ? WHERE id = ?", off, accountID)
	})
}

// crashesTold is the number of crashes in the window of which an account is told, and
// crashWait how long the mail waits: a stack that fails meanwhile needs one mail only.
const (
	crashesTold = 3
	crashWait   = time.Minute
)

// noteEvents records the mails about events of a stack that has an owner.
func (s *Store) noteEvents(ctx context.Context, tx *sql.Tx, k *stack.Stack, events []stack.Event) error {
	if !s.mails || k.Owner == "" {
		return nil
	}
	for _, e := range events {
		m, wait := mailOf(e)
		if m.Kind == "" {
			continue
		}
		m.Account, m.StackID = k.Owner, k.ID
		if err := s.note(ctx, tx, m, e.CreatedAt, wait); err != nil {
			return err
		}
	}
	return nil
}

// mailOf returns the notice about an event, with the Kind "" for none, and how long it waits.
func mailOf(e stack.Event) (m Mail, wait time.Duration) {
	switch e.Type {
	case stack.EventFailed:
		why, _ := e.Data["error"].(string)
		return Mail{Kind: MailFailed, Detail: why}, 0
	case stack.EventClaimed:
		return Mail{Kind: MailClaimed}, 0
	case stack.EventCrashed:
		if crashes, _ := e.Data["crashes"].(int); crashes >= crashesTold {
			service, _ := e.Data["service"].(string)
			return Mail{Kind: MailCrashing, Detail: service}, crashWait
		}
	}
	return Mail{}, 0
}

// note records a notice, unless the account has notices turned off or was sent the same one
// within the last hour. A stack that failed takes the place of one that crashes.
func (s *Store) note(ctx context.Context, tx *sql.Tx, m Mail, now time.Time, wait time.Duration) error {
	_, unwanted, err := readOne(ctx, s, tx, "look for mails about "+m.StackID, onlyPlace[int], `SELECT 1 WHERE
		EXISTS (SELECT 1 FROM accounts WHERE id = ? AND mail_off) OR
		EXISTS (SELECT 1 FROM mails WHERE kind = ? AND account = ? AND stack_id = ? AND created_at > ?)`,
		m.Account, string(m.Kind), m.Account, m.StackID, micros(now.Add(-MailLife)))
	if err != nil || unwanted {
		return err
	}
	if m.Kind == MailFailed {
		if err := s.dropMails(ctx, tx, MailCrashing, m.Account, m.StackID); err != nil {
			return err
		}
	}
	return s.insertMail(ctx, tx, m, now, now.Add(wait))
}

// dropMails removes what is not sent yet about the stack, or about none.
func (s *Store) dropMails(ctx context.Context, tx *sql.Tx, kind MailKind, account, stackID string) error {
	return s.exec(ctx, tx, "drop a mail", "DELETE FROM mails WHERE kind = ? AND account = ? AND stack_id IN (?, '') AND tries = 0",
		string(kind), account, stackID)
}

// insertMail also removes the mails whose time is over.
func (s *Store) insertMail(ctx context.Context, tx *sql.Tx, m Mail, now, due time.Time) error {
	if err := s.exec(ctx, tx, "remove old mails", "DELETE FROM mails WHERE created_at <= ?", micros(now.Add(-MailLife))); err != nil {
		return err
	}
	return s.exec(ctx, tx, "insert a mail", `INSERT INTO mails (kind, account, address, stack_id, detail, created_at, try_at)
		VALUES (?, ?, ?, ?, ?, ?, ?)`, string(m.Kind), m.Account, m.Address, m.StackID, m.Detail, micros(now), micros(due))
}
