package api

import (
	"fmt"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/store"
)

// claim answers POST /v0/claim.
func (a *API) claim(c *fiber.Ctx, account store.Account) error {
	if err := a.quotas.count(c, a.cfg.Codes); err != nil {
		return err
	}
	wait, err := wantsWait(c)
	if err != nil {
		return err
	}
	text, err := onlyText(bodyOf(c.Context()), "claim_code", `{"claim_code": "CLM-XXXX-XXXX-XXXX"}`)
	if err != nil {
		return err
	}
	s, err := a.cfg.Claims.Claim(a.server.Context(), account, a.quotas.network(c), text)
	if err != nil {
		return err
	}
	noteStack(c, s.ID)
	if s, err = a.settled(c, s, wait); err != nil {
		return err
	}
	return c.JSON(a.view(s))
}

// me answers GET /v0/me.
func (a *API) me(c *fiber.Ctx, account store.Account) error {
	stacks, err := a.cfg.Store.Owned(a.server.Context(), account.ID)
	if err != nil {
		return fmt.Errorf("read the stacks of account %s: %w", account.ID, err)
	}
	views := make([]stackView, len(stacks))
	for i, s := range stacks {
		views[i] = a.view(s)
	}
	return c.JSON(fiber.Map{"email": account.Email, "stacks": views})
}
