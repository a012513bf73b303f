package api

import (
	"fmt"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// claimRetry is the Retry-After of the limit on claims (docs/api.md, "Errors").
const claimRetry = time.Minute

// claim answers POST /v0/claim.
func (a *API) claim(c *fiber.Ctx) error {
	account, err := a.owner(c)
	if err != nil {
		return err
	}
	allowed := a.Codes.Allow(a.base, a.network(c))
	a.showQuota(c, a.Codes, a.network(c))
	if !allowed {
		return stack.NewTooMany(claimRetry)
	}
	wait, err := waits(c)
	if err != nil {
		return err
	}
	text, err := onlyText(bodyOf(c.Context()), "claim_code", `{"claim_code": "CLM-XXXX-XXXX-XXXX"}`)
	if err != nil {
		return err
	}
	s, err := a.Claims.Claim(a.base, account, text)
	if err != nil {
		return err
	}
	noteStack(c, s.ID)
	if wait {
		if s, err = a.settled(c, s); err != nil {
			return err
		}
	}
	return c.JSON(a.view(s))
}

// me answers GET /v0/me.
func (a *API) me(c *fiber.Ctx) error {
	account, err := a.owner(c)
	if err != nil {
		return err
	}
	stacks, err := a.Store.Owned(a.base, account.ID)
	if err != nil {
		return fmt.Errorf("read the stacks of account %s: %w", account.ID, err)
	}
	views := make([]stackView, len(stacks))
	for i, s := range stacks {
		views[i] = a.view(s)
	}
	return c.JSON(struct {
		Email  string      `json:"email"`
		Stacks []stackView `json:"stacks"`
	}{account.Email, views})
}

// owner is the account whose API key the request brings.
func (a *API) owner(c *fiber.Ctx) (store.Account, error) {
	token, present := bearer(c)
	if !present {
		return store.Account{}, stack.NewError(stack.Unauthenticated,
			"this needs the header Authorization: Bearer as_live_…, with the API key of an account")
	}
	return a.account(token)
}
