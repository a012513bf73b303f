// Package mail sends the mails that the store has: notices about stacks, and links to
// choose a new password and to confirm an address. Several servers may send the mails of
// one database; each mail is taken by one of them. A mail that its server does not accept
// is tried for an hour, less and less often.
//
// Code in this package reads accounts and stacks, writes mails and the tokens in their
// links, and talks to one server by SMTP. A token is made when its mail is sent, so its
// time counts from then, and nothing but the mail ever has it.
package mail

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/mail"
	"strings"
	"sync"
	"time"

	gomail "github.com/wneessen/go-mail"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// TokenLife is how long a link in a mail works (docs/api.md, "Accounts").
const TokenLife = 30 * time.Minute

// Config configures a Sender.
type Config struct {
	Store  *store.Store
	Server Server
	From   mail.Address
	Base   string // URL of the installation; links in mails are built from it
	Log    *slog.Logger

	Observe func(result string) // called after each try: sent, retried or failed
}

// Sender sends the mails of a database.
type Sender struct {
	cfg     Config
	ctx     context.Context
	stop    context.CancelFunc
	workers sync.WaitGroup
}

// New returns a sender that has not started. It does not contact the server.
func New(cfg Config) *Sender {
	cfg.Base = strings.TrimSuffix(cfg.Base, "/")
	s := &Sender{cfg: cfg}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

const (
	// atOnce is how many mails are sent at the same time, so that a slow one does not hold
	// up a person who waits for a link.
	atOnce = 2
	// lookEvery is how often a worker looks for mails.
	lookEvery = 2 * time.Second
	// holdFor is how long a mail is kept from other servers while one sends it.
	holdFor = 3 * time.Minute
)

// Start begins to send.
func (s *Sender) Start() {
	for range atOnce {
		s.workers.Go(s.work)
	}
}

// Close ends the sending; what is not sent yet is left to the next sender. It may be called
// without Start.
func (s *Sender) Close() {
	s.stop()
	s.workers.Wait()
}

func (s *Sender) work() {
	for pause.For(s.ctx, lookEvery) {
		for s.sendNext() {
		}
	}
}

// sendNext sends the mail that is due, and reports whether there was one.
func (s *Sender) sendNext() bool {
	m, ok, err := s.cfg.Store.TakeMail(s.ctx, holdFor)
	if err != nil || !ok {
		s.complain("mails to send not read; trying again", err)
		return false
	}
	err = s.send(m)
	after := context.WithoutCancel(s.ctx)
	switch wait, again := retryAfter(m, err); {
	case err == nil || errors.Is(err, errNobody):
		err = s.cfg.Store.MailDone(after, m.ID)
	case again:
		s.cfg.Observe("retried")
		s.cfg.Log.Warn("mail not sent; trying again", "mail", m.ID, "kind", m.Kind, "server", s.cfg.Server.address(), "after", wait, "error", err)
		err = s.cfg.Store.MailLater(after, m.ID, wait)
	default:
		s.cfg.Observe("failed")
		s.cfg.Log.Error("mail given up; check BERTH_SMTP_URL and BERTH_MAIL_FROM", "mail", m.ID, "kind", m.Kind, "server", s.cfg.Server.address(), "error", err)
		err = s.cfg.Store.MailDone(after, m.ID)
	}
	s.complain("mail not recorded as sent; it may be sent again", err)
	return err == nil
}

func (s *Sender) complain(what string, err error) {
	if err != nil && s.ctx.Err() == nil {
		s.cfg.Log.Error(what, "error", err)
	}
}

// firstRetry is how long a mail waits after its first try; the wait doubles, up to
// longestRetry.
const (
	firstRetry   = 10 * time.Second
	longestRetry = 10 * time.Minute
)

// retryAfter returns how long to wait after a failed try. It reports false if the server
// refused the mail for good, or the time of the mail is over by then.
func retryAfter(m store.Mail, err error) (wait time.Duration, again bool) {
	wait = min(firstRetry<<min(m.Tries-1, 10), longestRetry)
	var refused *gomail.SendError
	if errors.As(err, &refused) && !refused.IsTemp() && refused.ErrorCode() >= 500 {
		return 0, false
	}
	return wait, stack.Now().Add(wait).Before(m.CreatedAt.Add(store.MailLife))
}

// errNobody is for a mail whose account or stack is gone, or never was.
var errNobody = errors.New("nobody to write to")

// send writes a mail and hands it in.
func (s *Sender) send(m store.Mail) error {
	account, err := s.recipient(m)
	if err != nil {
		return err
	}
	text, err := s.write(m, account)
	if err != nil {
		return err
	}
	if err := s.handIn(m, account.Email, text); err != nil {
		return err
	}
	s.cfg.Observe("sent")
	return nil
}

// recipient returns the account that a mail is for.
func (s *Sender) recipient(m store.Mail) (store.Account, error) {
	var account store.Account
	var ok bool
	var err error
	if m.Kind == store.MailReset {
		account, _, ok, err = s.cfg.Store.AccountByEmail(s.ctx, m.Address)
	} else {
		account, ok, err = s.cfg.Store.Account(s.ctx, m.Account)
	}
	if err == nil && !ok {
		err = errNobody
	}
	return account, err
}

// write returns the text of a mail, with a new token where it needs one.
func (s *Sender) write(m store.Mail, account store.Account) (letter, error) {
	switch m.Kind {
	case store.MailReset:
		token, err := s.newToken(m, account)
		return resetLetter(s.cfg.Base, token), err
	case store.MailConfirm:
		token, err := s.newToken(m, account)
		return confirmLetter(s.cfg.Base, token, m.StackID), err
	}
	about, err := s.cfg.Store.Get(s.ctx, m.StackID)
	if stack.KindOf(err) == stack.NotFound || err == nil && about.Owner != account.ID {
		return letter{}, errNobody
	}
	if err != nil {
		return letter{}, err
	}
	return notice(m.Kind, subject{id: about.ID, name: about.Name, detail: m.Detail, base: s.cfg.Base}), nil
}

func (s *Sender) newToken(m store.Mail, account store.Account) (string, error) {
	token := auth.NewMailToken()
	err := s.cfg.Store.AddMailToken(s.ctx, auth.Hash(token), store.MailToken{Kind: m.Kind, Account: account, StackID: m.StackID}, stack.Now().Add(TokenLife))
	if stack.KindOf(err) == stack.Unauthenticated {
		return "", errNobody
	}
	return token, err
}

// handIn gives a mail to the server. A mail that is sent twice has the same Message-ID.
func (s *Sender) handIn(m store.Mail, to string, text letter) error {
	message := gomail.NewMsg()
	message.FromMailAddress(&s.cfg.From)
	if err := message.To(to); err != nil {
		return errors.Join(errNobody, err)
	}
	_, domain, _ := strings.Cut(s.cfg.From.Address, "@")
	message.SetMessageIDWithValue(fmt.Sprintf("berth.%d.%d@%s", m.ID, m.CreatedAt.UnixMicro(), domain))
	message.SetDateWithValue(m.CreatedAt)
	message.SetGenHeader("Auto-Submitted", "auto-generated")
	message.Subject(text.subject)
	message.SetBodyString(gomail.TypeTextPlain, text.body)
	client, err := s.cfg.Server.client()
	if err != nil {
		return err
	}
	return client.DialAndSendWithContext(s.ctx, message)
}
