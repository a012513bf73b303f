package api

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// create answers POST /v0/stacks.
//
// An anonymous create is counted before its upload is read, and uncounted if it makes
// no stack, so one network never has more uploads under way than the limit on creates
// allows. A refused create counts in the limit on refusals once it is refused.
//
// An attempt after the first with the same Idempotency-Key does not make a stack. It
// gets the first answer, even if no more creates are allowed, once there is room on the
// disk for its upload, which has to be compared.
func (a *API) create(c *fiber.Ctx) error {
	owner, err := a.gate.creator(c)
	if err != nil {
		return err
	}
	wait, err := wantsWait(c)
	if err != nil {
		return err
	}
	t, err := a.receipts.begin(c, creating, "", cmp.Or(owner, a.quotas.network(c)))
	if err != nil {
		return err
	}
	defer t.releaseKey()
	if t.earlier != nil {
		noteStack(c, t.earlier.StackID)
		return a.repeatCreate(c, owner, t)
	}
	s, secrets, err := a.admitCreate(c, owner, t)
	if err != nil {
		return err
	}
	noteStack(c, s.ID)
	return a.answerFirst(c, t, s, secrets, wait, false)
}

// repeatCreate answers an attempt after the first. An attempt with another upload is
// refused and counts like any other refusal.
func (a *API) repeatCreate(c *fiber.Ctx, owner string, t *attempt) error {
	if err := a.quotas.checkRefusals(c, owner); err != nil {
		return err
	}
	err := a.repeat(c, t)
	a.quotas.countRefusal(c, owner, err)
	return err
}

// errUnfinished is the error of a create that ended in a panic.
var errUnfinished = errors.New("the create did not finish")

// admitCreate creates a stack if the host and the limits admit it. It asks them, and
// counts an anonymous create, before it reads anything of the body.
func (a *API) admitCreate(c *fiber.Ctx, owner string, t *attempt) (s *stack.Stack, secrets oneTime, err error) {
	if err := a.cfg.Admission.Admit(owner == ""); err != nil {
		return nil, oneTime{}, err
	}
	settle, err := a.quotas.takeCreate(c, owner)
	if err != nil {
		return nil, oneTime{}, err
	}
	err = errUnfinished
	defer func() { settle(err) }()
	return a.createStack(c, owner, t)
}

// createStack receives the upload and hands the stack to the host. It returns a copy of
// the stack at that time, since the host goes on with its own.
func (a *API) createStack(c *fiber.Ctx, owner string, t *attempt) (made *stack.Stack, secrets oneTime, err error) {
	err = a.uploads.receive(c, t.op.shape, func(u *upload) error {
		src, manifest, err := u.unpack(c, a.lifetimeCheck(owner))
		if err != nil {
			return err
		}
		s, shown := a.newStack(c, manifest, owner)
		asMade := *s
		asMade.Generation.Services = append([]stack.Service{}, s.Generation.Services...)
		made, secrets = &asMade, shown
		return t.record(u.form.digest(), src.Digest(), secrets, func(r *store.Receipt) error {
			if err := a.cfg.Host.Create(a.server.Context(), s, src, r); err != nil {
				return fmt.Errorf("create stack %s: %w", s.ID, err)
			}
			return nil
		})
	})
	return made, secrets, err
}

// newStack returns the stack that a manifest asks for. Only an anonymous stack has a
// lifetime and a claim code.
func (a *API) newStack(c *fiber.Ctx, m *stack.Manifest, owner string) (*stack.Stack, oneTime) {
	s := stack.New(m.Name, m.Services, stack.Now())
	secrets := oneTime{ManageToken: auth.NewManageToken()}
	s.ManageTokenHash = auth.Hash(secrets.ManageToken)
	if m.Webhook != "" {
		s.Webhook = m.Webhook
		s.WebhookSecret = auth.NewWebhookSecret()
		secrets.WebhookSecret = s.WebhookSecret
	}
	if owner != "" {
		s.Owner = owner
		return s, secrets
	}
	s.ExpiresAt = s.CreatedAt.Add(cmp.Or(m.TTL, a.cfg.Limits.TTL))
	s.ClaimEmail = m.ClaimEmail
	s.Network = a.quotas.network(c)
	secrets.ClaimCode = auth.NewClaimCode()
	s.ClaimCodeHash = a.cfg.Key.HashClaimCode(secrets.ClaimCode)
	secrets.ClaimURL = a.cfg.URLs.Claim(secrets.ClaimCode)
	secrets.Note = fmt.Sprintf("Give claim_url to your human now: it is shown only this once, and anyone who opens it can keep this stack. Unclaimed, it stops at %s.",
		s.ExpiresAt.Format(time.RFC3339))
	return s, secrets
}

// lifetimeCheck returns a function that refuses lifetimes a new stack of the owner may
// not have; nil for an owner, whose stacks have no lifetime.
func (a *API) lifetimeCheck(owner string) func(time.Duration) error {
	if owner != "" {
		return nil
	}
	return func(ttl time.Duration) error {
		now := stack.Now()
		return a.cfg.Limits.CheckTTL(ttl, now, now)
	}
}
