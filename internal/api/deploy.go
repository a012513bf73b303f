package api

import (
	"fmt"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// deploy answers POST /v0/stacks/{id}/deploy.
func (a *API) deploy(c *fiber.Ctx, s *stack.Stack, role string) error {
	t, err := a.receipts.begin(c, deploying, s.ID, role)
	if err != nil {
		return err
	}
	defer t.releaseKey()
	if t.earlier != nil {
		return a.repeat(c, t)
	}
	wait, err := wantsWait(c)
	if err != nil {
		return err
	}
	if err := deployable(*s); err != nil {
		return err
	}
	if err := a.cfg.Admission.Admit(!s.Claimed()); err != nil {
		return err
	}
	s, secrets, err := a.deployStack(c, s.ID, t)
	if err != nil {
		return err
	}
	return a.answerFirst(c, t, s, secrets, wait)
}

// deployable refuses, before anything of the body is read, what the host would refuse
// after it. It tries the deploy on a copy.
func deployable(s stack.Stack) error {
	_, err := s.Deploy(nil, stack.Now())
	return err
}

// stillDeployable refuses an upload, before it is unpacked, if another one came first.
func (a *API) stillDeployable(id string) error {
	s, err := a.gate.find(id)
	if err != nil {
		return err
	}
	return deployable(*s)
}

// deployStack receives the upload and hands it to the host. It ignores the name, ttl
// and claim_email of its manifest: they were fixed at creation.
func (a *API) deployStack(c *fiber.Ctx, id string, t *attempt) (s *stack.Stack, secrets oneTime, err error) {
	secret := auth.NewWebhookSecret()
	err = a.uploads.receive(c, t.op.form, func(u *upload) error {
		if err := a.stillDeployable(id); err != nil {
			return err
		}
		root, manifest, err := u.unpack(c, nil)
		if err != nil {
			return err
		}
		return t.record(u.form.digest(), oneTime{WebhookSecret: secret}, func(r *store.Receipt) (err error) {
			if s, err = a.cfg.Host.Deploy(a.server.Context(), id, manifest, secret, root, r); err != nil {
				return fmt.Errorf("deploy stack %s: %w", id, err)
			}
			return nil
		})
	})
	if err != nil || s.WebhookSecret != secret {
		return s, oneTime{}, err // no webhook, or it keeps the secret that it has
	}
	return s, oneTime{WebhookSecret: secret}, nil
}
