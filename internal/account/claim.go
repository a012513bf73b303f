package account

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// Host claims stacks; the supervisor implements it.
type Host interface {
	// Claim moves a stack into an account, and brings an expired one back in the
	// background. It fails with a *stack.Error if the stack cannot be claimed, or not
	// with this email.
	Claim(ctx context.Context, id, owner, email string) (*stack.Stack, error)
}

// Claims is the only way to claim a stack, from the API and from the browser. It does
// not check limits.
type Claims struct {
	Stacks *store.Store
	Host   Host
	Key    auth.Key // of the installation, for the hashes of claim codes
	Mails  *Mails   // nil where no mail is sent
}

// ErrUnconfirmed is a claim that ends with the link in a mail, which was asked for.
var ErrUnconfirmed = errors.New("the account's address is not confirmed")

// Claim moves the stack of a code, in any spelling, into the account. The network is the
// caller's. Where mails are sent, a stack for one address needs an account whose address is
// confirmed: otherwise the error is a Forbidden with ErrUnconfirmed.
func (c Claims) Claim(ctx context.Context, who store.Account, network, typed string) (*stack.Stack, error) {
	id, err := c.find(ctx, typed)
	if err != nil {
		return nil, err
	}
	if err := c.checkAddress(ctx, who, network, id); err != nil {
		return nil, err
	}
	s, err := c.Host.Claim(ctx, id, who.ID, who.Email)
	if err != nil {
		return nil, fmt.Errorf("claim stack %s: %w", id, err)
	}
	return s, nil
}

// checkAddress refuses an address that must be confirmed first, and asks for the mail.
func (c Claims) checkAddress(ctx context.Context, who store.Account, network, id string) error {
	if c.Mails == nil || who.Confirmed {
		return nil
	}
	s, err := c.Stacks.Get(ctx, id)
	if err != nil || s.ClaimEmail == "" {
		return err
	}
	if _, err := s.Claim(who.ID, who.Email, stack.Now()); err != nil {
		return err
	}
	if err := c.Mails.confirm(ctx, network, who, id); err != nil {
		return err
	}
	refusal := stack.NewError(stack.Forbidden, "a letter was sent to "+who.Email+"; open the link in it within 30 minutes to confirm the address and claim the stack")
	return errors.Join(refusal, ErrUnconfirmed)
}

// find returns the id of the stack of a code.
func (c Claims) find(ctx context.Context, typed string) (string, error) {
	code, ok := auth.NormalizeClaimCode(typed)
	if !ok {
		return "", stack.NewError(stack.NotFound, fmt.Sprintf(
			"%q is not a claim code; a claim code looks like CLM-XXXX-XXXX-XXXX and is in the response that creates a stack", shorten(typed)))
	}
	id, ok, err := c.Stacks.FindClaimCode(ctx, c.Key.HashClaimCode(code))
	if err != nil {
		return "", fmt.Errorf("look up the claim code: %w", err)
	}
	if !ok {
		return "", stack.NewError(stack.NotFound,
			"no stack has this claim code: its stack was deleted, or a character is wrong")
	}
	return id, nil
}

// shorten limits how much of the request an error repeats.
func shorten(s string) string {
	const most = 120
	if len(s) <= most {
		return cut(s, most)
	}
	return cut(s, most) + "…"
}

// CodeState is what a person can do with a claim code.
type CodeState int

// The states of a claim code.
const (
	Malformed CodeState = iota // it cannot be a code
	Unknown                    // no stack has it, or the stack was deleted
	Used                       // its stack was claimed
	Over                       // its stack expired and is about to be deleted
	ForOther                   // its stack may be claimed by another email only
	Claimable
)

// Code is a claim code that a person asks about.
type Code struct {
	Typed string
	Code  string // in the form CLM-XXXX-XXXX-XXXX; "" when it cannot be one
	State CodeState
	// Stack is the stack that it claims. For a used code it is set for the owner only.
	Stack *stack.Stack
}

// LookUp returns what a code can claim for a person, the zero Account for a visitor,
// and claims nothing. Only unknown codes count in the limit on claims, so guessing is
// slow, and opening a claim page again is not.
func (a *Accounts) LookUp(ctx context.Context, v Visitor, who store.Account, typed string) (Code, error) {
	giveBack, ok := a.cfg.Codes.Take(ctx, stack.NetworkOf(v.IP))
	if !ok {
		return Code{}, stack.NewTooMany(retryAfter)
	}
	code, err := a.cfg.Claims.lookUp(ctx, who, typed)
	if err != nil || code.State != Unknown {
		giveBack()
	}
	return code, err
}

// Claim moves the stack of a code into the account of a signed-in person. It counts in
// the limit on claims, like POST /v0/claim.
func (a *Accounts) Claim(ctx context.Context, v Visitor, who store.Account, typed string) (*stack.Stack, error) {
	if err := allow(ctx, a.cfg.Codes, v); err != nil {
		return nil, err
	}
	return a.cfg.Claims.Claim(ctx, who, stack.NetworkOf(v.IP), typed)
}

// SignUpAndClaim creates an account and claims a stack for it. If the code cannot be
// claimed, it does not create an account. If it returns an error and an Entry with a
// token, the account was created and only the claim failed.
func (a *Accounts) SignUpAndClaim(ctx context.Context, v Visitor, email, password, typed string) (Entry, *stack.Stack, error) {
	return a.claimWith(ctx, v, typed, func() (Entry, error) {
		if err := a.cfg.Claims.check(ctx, email, typed); err != nil {
			return Entry{}, err
		}
		return a.signUp(ctx, v, email, password)
	})
}

// SignInAndClaim signs a person in and claims a stack. If it returns an error and an
// Entry with a token, the person is signed in and only the claim failed.
func (a *Accounts) SignInAndClaim(ctx context.Context, v Visitor, email, password, typed string) (Entry, *stack.Stack, error) {
	return a.claimWith(ctx, v, typed, func() (Entry, error) {
		return a.signIn(ctx, v, email, password)
	})
}

// claimWith counts one form, signs the person in and claims.
func (a *Accounts) claimWith(ctx context.Context, v Visitor, typed string, letIn func() (Entry, error)) (Entry, *stack.Stack, error) {
	if err := a.admit(ctx, v); err != nil {
		return Entry{}, nil, err
	}
	entry, err := letIn()
	if err != nil {
		return entry, nil, err
	}
	s, err := a.cfg.Claims.Claim(ctx, entry.Account, stack.NetworkOf(v.IP), typed)
	if errors.Is(err, ErrUnconfirmed) {
		return entry, s, err
	}
	return entry, s, errors.Join(err, a.welcome(ctx, v, entry))
}

// check refuses what a claim by a new account with the email would refuse. It tries the
// claim on a copy.
func (c Claims) check(ctx context.Context, email, typed string) error {
	id, err := c.find(ctx, typed)
	if err != nil {
		return err
	}
	s, err := c.Stacks.Get(ctx, id)
	if err != nil {
		return err
	}
	_, err = s.Claim("acc_", email, stack.Now())
	return err
}

// lookUp determines the state of a code.
func (c Claims) lookUp(ctx context.Context, who store.Account, typed string) (Code, error) {
	code := Code{Typed: shorten(typed), State: Malformed}
	normal, ok := auth.NormalizeClaimCode(typed)
	if !ok {
		return code, nil
	}
	code.Code, code.State = normal, Unknown
	id, ok, err := c.Stacks.FindClaimCode(ctx, c.Key.HashClaimCode(normal))
	if err != nil {
		return code, fmt.Errorf("look up the claim code: %w", err)
	}
	if !ok {
		return code, nil
	}
	s, err := c.Stacks.Get(ctx, id)
	if stack.KindOf(err) == stack.NotFound {
		return code, nil // deleted in between
	}
	if err != nil {
		return code, err
	}
	code.State = stateFor(s, who)
	if code.State != Used || s.Owner == who.ID {
		code.Stack = s
	}
	return code, nil
}

// stateFor returns the state of a stack's code for a person.
func stateFor(s *stack.Stack, who store.Account) CodeState {
	switch {
	case s.Claimed():
		return Used
	case s.Status == stack.Expired && !stack.Now().Before(s.RetainedUntil):
		return Over
	case who.Email != "" && s.ClaimEmail != "" && !stack.SameEmail(s.ClaimEmail, who.Email):
		return ForOther
	}
	return Claimable
}
