package api

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/stack"
)

// createRetry is the Retry-After of the limit on anonymous creates (docs/api.md,
// "Errors").
const createRetry = time.Hour

// create answers POST /v0/stacks.
//
// An anonymous create is counted before its upload is read, and given back if it
// makes no stack: no more uploads of one network are under way at once than the
// limit on creates has room for. One that is refused counts in the limit on
// refusals once it is.
//
// An attempt after the first with the same Idempotency-Key makes no stack: it
// gets the first one's answer even where no more creates are allowed, once there
// is room on the disk for its upload, which has to be compared.
func (a *API) create(c *fiber.Ctx) error {
	owner, err := a.creator(c)
	if err != nil {
		return err
	}
	wait, err := waits(c)
	if err != nil {
		return err
	}
	t, err := a.attempt(c, "create", cmp.Or(owner, a.network(c)))
	if err != nil {
		return err
	}
	defer t.end()
	if t.earlier != nil {
		noteStack(c, t.earlier.StackID)
		return a.repeatCreate(c, owner, t)
	}
	s, secrets, err := a.admitted(c, owner, t)
	if err != nil {
		return err
	}
	noteStack(c, s.ID)
	if wait {
		if s, err = a.settled(c, s); err != nil {
			return err
		}
	}
	v := a.view(s)
	failpoint.Here("create-unanswered")
	t.keep(v)
	v.oneTime = &secrets
	c.Location(a.address(s.ID))
	return c.Status(fiber.StatusCreated).JSON(v)
}

// address is where the API shows a stack.
func (a *API) address(id string) string { return a.URLs.Base.JoinPath("v0", "stacks", id).String() }

// creator tells which account a create is for, "" for an anonymous one.
func (a *API) creator(c *fiber.Ctx) (string, error) {
	token, present := bearer(c)
	if !present {
		return "", nil
	}
	account, err := a.account(token)
	return account.ID, err
}

// errUnfinished is the error of a create that ended in a panic.
var errUnfinished = errors.New("the create did not come to its end")

// admitted is createStack for a create that the host and the limits admit. They
// are asked, and an anonymous create is counted, before anything of its body is
// read.
func (a *API) admitted(c *fiber.Ctx, owner string, t *attempt) (s *stack.Stack, secrets oneTime, err error) {
	if err := a.Host.Admit(owner == ""); err != nil {
		return nil, oneTime{}, err
	}
	settle, err := a.count(c, owner)
	if err != nil {
		return nil, oneTime{}, err
	}
	err = errUnfinished
	defer func() { settle(err) }()
	return a.createStack(c, owner, t)
}

// count counts an anonymous create. The caller calls settle once with what came
// of it.
func (a *API) count(c *fiber.Ctx, owner string) (settle func(error), err error) {
	if owner != "" {
		return func(error) {}, nil
	}
	if err := a.checkRefusals(c, owner); err != nil {
		return nil, err
	}
	giveBack, ok := a.Limiter.Take(a.base, a.network(c))
	if !ok {
		a.showQuota(c, a.Limiter, a.network(c))
		return nil, stack.NewTooMany(createRetry)
	}
	return func(err error) {
		a.countRefusal(c, owner, err)
		if err != nil {
			giveBack()
		}
		a.showQuota(c, a.Limiter, a.network(c))
	}, nil
}

// checkRefusals fails for an anonymous create whose network has had too many
// refused. One that is under way is not among them: it may be in order.
func (a *API) checkRefusals(c *fiber.Ctx, owner string) error {
	if owner != "" {
		return nil
	}
	if _, remaining, _ := a.Refusals.Quota(a.base, a.network(c)); remaining > 0 {
		return nil
	}
	a.showQuota(c, a.Refusals, a.network(c))
	err := stack.NewTooMany(createRetry)
	err.Detail += "; too many creates from your network were refused with 413 or 422 in the last hour: try a project with POST /v0/validate before you create it"
	return err
}

// countRefusal counts an anonymous create that ended in err, if that is a
// refusal.
func (a *API) countRefusal(c *fiber.Ctx, owner string, err error) {
	if owner == "" && refused(err) {
		a.Refusals.Allow(a.base, a.network(c))
	}
}

// refused reports whether a create was refused for what it brought.
func refused(err error) bool {
	var known *stack.Error
	return errors.As(err, &known) && (known.Kind == stack.TooLarge || known.Kind == stack.Unprocessable)
}

// repeatCreate answers an attempt after the first. One that brings another
// upload is refused, and counts as any other that is.
func (a *API) repeatCreate(c *fiber.Ctx, owner string, t *attempt) error {
	if err := a.checkRefusals(c, owner); err != nil {
		return err
	}
	err := a.repeat(c, t, createForm, fiber.StatusCreated)
	a.countRefusal(c, owner, err)
	return err
}

// network is what the anonymous limits count by.
func (a *API) network(c *fiber.Ctx) string { return stack.NetworkOf(c.Get(a.ClientHeader)) }

// createStack takes the upload and hands the stack to the host. It returns a
// copy of the stack as it was then, since the host goes on with its own.
func (a *API) createStack(c *fiber.Ctx, owner string, t *attempt) (*stack.Stack, oneTime, error) {
	dir, err := a.Host.TempDir()
	if err != nil {
		return nil, oneTime{}, fmt.Errorf("make a folder for the upload: %w", err)
	}
	defer a.removeAll(dir)
	var checkTTL func(time.Duration) error
	if owner == "" {
		checkTTL = a.checkTTL
	}
	f, err := a.upload(c, createForm, dir)
	if err != nil {
		return nil, oneTime{}, err
	}
	root, manifest, err := a.unpack(c, f, dir, checkTTL)
	if err != nil {
		return nil, oneTime{}, err
	}
	s, secrets := a.newStack(c, manifest, owner)
	receipt, err := t.receipt(f.digest(), secrets)
	if err != nil {
		return nil, oneTime{}, err
	}
	asMade := *s
	asMade.Services = append([]stack.Service{}, s.Services...)
	if err := a.Host.Create(a.base, s, root, receipt); err != nil {
		t.drop()
		return nil, oneTime{}, fmt.Errorf("create stack %s: %w", s.ID, err)
	}
	return &asMade, secrets, nil
}

// newStack makes the stack that a manifest asks for. Only an anonymous one has
// a lifetime and a claim code.
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
	s.ExpiresAt = s.CreatedAt.Add(cmp.Or(m.TTL, a.Limits.TTL))
	s.ClaimEmail = m.ClaimEmail
	s.Network = a.network(c)
	secrets.ClaimCode = auth.NewClaimCode()
	s.ClaimCodeHash = a.Key.HashClaimCode(secrets.ClaimCode)
	secrets.ClaimURL = a.URLs.Claim(secrets.ClaimCode)
	secrets.Note = fmt.Sprintf("Give claim_url to your human now: it is shown only this once, and whoever opens it can keep this stack. Unclaimed, it stops at %s.",
		s.ExpiresAt.Format(time.RFC3339))
	return s, secrets
}

// checkTTL tells whether a new unclaimed stack may live that long.
func (a *API) checkTTL(ttl time.Duration) error {
	now := stack.Now()
	return a.Limits.CheckTTL(ttl, now, now)
}

// removeAll removes what is left of an upload; the host has moved away what it
// took over.
func (a *API) removeAll(dir string) {
	if err := os.RemoveAll(dir); err != nil {
		a.Log.Error("remove the upload", "error", err)
	}
}
