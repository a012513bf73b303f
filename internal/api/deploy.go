package api

import (
	"fmt"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/stack"
)

// deploy answers POST /v0/stacks/{id}/deploy.
func (a *API) deploy(c *fiber.Ctx) error {
	s, role, err := a.open(c)
	if err != nil {
		return err
	}
	t, err := a.attempt(c, "deploy "+s.ID, role)
	if err != nil {
		return err
	}
	defer t.end()
	if t.earlier != nil {
		return a.repeat(c, t, deployForm, fiber.StatusOK)
	}
	wait, err := waits(c)
	if err != nil {
		return err
	}
	if err := deployable(*s); err != nil {
		return err
	}
	if err := a.Host.Admit(!s.Claimed()); err != nil {
		return err
	}
	s, secrets, err := a.deployStack(c, s.ID, t)
	if err != nil {
		return err
	}
	if wait {
		if s, err = a.settled(c, s); err != nil {
			return err
		}
	}
	v := a.view(s)
	failpoint.Here("deploy-unanswered")
	t.keep(v)
	v.oneTime = &secrets
	return c.JSON(v)
}

// deployable refuses, before anything of the body is read, what the host would
// refuse after it. It tries on a copy.
func deployable(s stack.Stack) error {
	_, err := s.Deploy(nil)
	return err
}

// stillDeployable refuses an upload that another one came before, while it is
// an archive and not yet a tree.
func (a *API) stillDeployable(id string) error {
	s, err := a.find(id)
	if err != nil {
		return err
	}
	return deployable(*s)
}

// deployStack takes the upload and hands it to the host. The name, ttl and
// claim_email of its manifest do not count: they were fixed at creation.
func (a *API) deployStack(c *fiber.Ctx, id string, t *attempt) (*stack.Stack, oneTime, error) {
	dir, err := a.Host.TempDir()
	if err != nil {
		return nil, oneTime{}, fmt.Errorf("make a folder for the upload: %w", err)
	}
	defer a.removeAll(dir)
	f, err := a.upload(c, deployForm, dir)
	if err != nil {
		return nil, oneTime{}, err
	}
	if err := a.stillDeployable(id); err != nil {
		return nil, oneTime{}, err
	}
	root, manifest, err := a.unpack(c, f, dir, nil)
	if err != nil {
		return nil, oneTime{}, err
	}
	secret := auth.NewWebhookSecret()
	receipt, err := t.receipt(f.digest(), oneTime{WebhookSecret: secret})
	if err != nil {
		return nil, oneTime{}, err
	}
	s, err := a.Host.Deploy(a.base, id, manifest, secret, root, receipt)
	if err != nil {
		t.drop()
		return nil, oneTime{}, fmt.Errorf("deploy stack %s: %w", id, err)
	}
	if s.WebhookSecret != secret {
		return s, oneTime{}, nil // no webhook, or it keeps the secret that it has
	}
	return s, oneTime{WebhookSecret: secret}, nil
}
