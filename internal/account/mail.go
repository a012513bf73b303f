package account

import (
	"context"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// Mails asks for the mails with links. Its limits count those mails alone.
type Mails struct {
	Store     *store.Store
	Addresses Limiter // of mails to an address
	Networks  Limiter // of mails that a client network causes
}

// mailRetry is the Retry-After of the limits on mails.
const mailRetry = time.Hour

// ask asks for a mail to an address, which the visitor's network causes. Too many from the
// network are TooMany. It reports false if the address got too many already; unless the mail is
// for a forgotten password, whose caller is not told, such a request does not count.
func (m *Mails) ask(ctx context.Context, network, address string, mail store.Mail) (asked bool, err error) {
	giveBack, ok := m.Networks.Take(ctx, network)
	if !ok {
		return false, &stack.Error{Kind: stack.TooMany, Detail: "your network has asked for too many mails; try again in an hour", RetryAfter: mailRetry}
	}
	if !m.Addresses.Allow(ctx, strings.ToLower(address)) {
		if mail.Kind != store.MailReset {
			giveBack()
		}
		return false, nil
	}
	return true, m.Store.AskMail(ctx, mail)
}

// confirm asks for a mail that confirms the address of an account, and that claims a stack
// if one is given.
func (m *Mails) confirm(ctx context.Context, network string, account store.Account, stackID string) error {
	asked, err := m.ask(ctx, network, account.Email, store.Mail{Kind: store.MailConfirm, Account: account.ID, StackID: stackID})
	if err == nil && !asked {
		err = &stack.Error{Kind: stack.TooMany, Detail: "several mails were sent to " + account.Email + " in the last hour; open the link in the latest, or try again in an hour", RetryAfter: mailRetry}
	}
	return err
}

// Mails reports whether this installation sends mails.
func (a *Accounts) Mails() bool { return a.cfg.Claims.Mails != nil }

// errNoMails is for what needs mails where none are sent.
var errNoMails = stack.NewError(stack.NotFound, "this installation sends no mail; ask its operator for a new password")

// Forgot asks for a mail with a link to choose a new password. Whether the email has an
// account makes no difference to the caller.
func (a *Accounts) Forgot(ctx context.Context, v Visitor, email string) error {
	if !a.Mails() {
		return errNoMails
	}
	if err := a.admit(ctx, v); err != nil {
		return err
	}
	email = strings.TrimSpace(email)
	if err := checkEmail(email); err != nil {
		return err
	}
	_, err := a.cfg.Claims.Mails.ask(ctx, stack.NetworkOf(v.IP), email, store.Mail{Kind: store.MailReset, Address: email})
	return err
}

// Linked returns the account of a token in a mail of the kind, and the stack that it claims,
// if any. It uses nothing up. A token that does not work is NotFound.
func (a *Accounts) Linked(ctx context.Context, kind store.MailKind, token string) (store.MailToken, error) {
	return a.cfg.Store.FindMailToken(ctx, kind, auth.Hash(token))
}

// ResetPassword chooses a new password by the token of a mail, and ends all sessions of the
// account. The token works once. If the address was not confirmed before, whoever made the
// account may be somebody else: its API key is replaced by one that nobody has, until RotateKey.
func (a *Accounts) ResetPassword(ctx context.Context, v Visitor, token, password string) (keyReplaced bool, err error) {
	if err := a.admit(ctx, v); err != nil {
		return false, err
	}
	if _, err := a.Linked(ctx, store.MailReset, token); err != nil {
		return false, err
	}
	hash, err := a.hashNew(ctx, password)
	if err != nil {
		return false, err
	}
	used, err := a.cfg.Store.ResetPassword(ctx, auth.Hash(token), hash, storedKey(auth.NewAPIKey()))
	return err == nil && !used.Account.Confirmed, err
}

// SendConfirmation asks for another mail that confirms the account's address.
func (a *Accounts) SendConfirmation(ctx context.Context, v Visitor, account store.Account) error {
	if !a.Mails() {
		return errNoMails
	}
	return a.cfg.Claims.Mails.confirm(ctx, stack.NetworkOf(v.IP), account, "")
}

// NeedsPassword reports whether Confirm needs the account's password from a person who is signed
// in as who, the zero Account for a visitor. An account whose address is not confirmed may have
// been made by somebody else, who then has its password and its key, and the mail reaches the
// holder of the address, not the one who made the account: only who has both is the same person.
func NeedsPassword(link store.MailToken, who store.Account) bool {
	return !link.Account.Confirmed && link.Account.ID != who.ID
}

// Confirm confirms an address by the token of a mail, and claims the stack that the mail was
// about; nil if there was none. With NeedsPassword it first signs the person in: then the Entry
// has a token. If only the claim fails, it returns the error of the claim with the account.
func (a *Accounts) Confirm(ctx context.Context, v Visitor, who store.Account, token, password string) (entry Entry, s *stack.Stack, err error) {
	link, err := a.Linked(ctx, store.MailConfirm, token)
	if err == nil && NeedsPassword(link, who) {
		entry, err = a.SignIn(ctx, v, link.Account.Email, password)
	}
	if err != nil {
		return Entry{}, nil, err
	}
	used, err := a.cfg.Store.ConfirmAddress(ctx, auth.Hash(token))
	entry.Account = used.Account
	if err != nil || used.StackID == "" {
		return entry, nil, err
	}
	if err := used.Account.CheckEnabled(); err != nil {
		return entry, nil, err
	}
	s, err = a.cfg.Claims.Host.Claim(ctx, used.StackID, used.Account.ID, used.Account.Email)
	return entry, s, err
}

// SetNotices turns mails about the account's stacks on or off.
func (a *Accounts) SetNotices(ctx context.Context, accountID string, on bool) error {
	return a.cfg.Store.SetMailOff(ctx, accountID, !on)
}
