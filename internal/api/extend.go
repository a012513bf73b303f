package api

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/stack"
)

// extend answers PATCH /v0/stacks/{id}. Every extension leaves a permanent event and
// goes to the webhook, so there is a limit for each stack; a refused extension does not
// count.
func (a *API) extend(c *fiber.Ctx, s *stack.Stack, _ string) error {
	value, err := onlyField(bodyOf(c.Context()), "ttl", `{"ttl": "1h"}`)
	if err != nil {
		return err
	}
	ttl, err := ttlOf(value)
	if err != nil {
		return err
	}
	giveBack, ok := a.cfg.Extensions.Take(a.server.Context(), s.ID)
	defer a.quotas.show(c, a.cfg.Extensions, s.ID)
	if !ok {
		return stack.NewTooMany(limitRetry)
	}
	s, err = a.cfg.Store.Update(a.server.Context(), s.ID, func(s *stack.Stack) ([]stack.Event, error) {
		return s.Extend(ttl, a.cfg.Limits, stack.Now())
	})
	if err != nil {
		giveBack()
		return fmt.Errorf("extend the stack: %w", err)
	}
	failpoint.Here("extend-committed")
	return c.JSON(a.view(s))
}

// ttlOf reads the duration of a request; a value other than a string is an
// invalid duration too.
func ttlOf(value json.RawMessage) (time.Duration, error) {
	var text string
	if err := json.Unmarshal(value, &text); err != nil {
		text = string(value)
	}
	return stack.ParseDuration(text)
}
