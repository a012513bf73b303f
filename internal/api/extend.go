package api

import (
	"fmt"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
)

// extend answers PATCH /v0/stacks/{id}.
func (a *API) extend(c *fiber.Ctx) error {
	s, _, err := a.open(c)
	if err != nil {
		return err
	}
	text, err := onlyField(bodyOf(c.Context()), "ttl", `{"ttl": "1h"}`)
	if err != nil {
		return err
	}
	ttl, err := source.ParseDuration(text)
	if err != nil {
		return err
	}
	s, err = a.Store.Update(a.base, s.ID, func(s *stack.Stack) ([]stack.Event, error) {
		return s.Extend(ttl, a.Limits, stack.Now())
	})
	if err != nil {
		return fmt.Errorf("extend the stack: %w", err)
	}
	failpoint.Here("extend-committed")
	return c.JSON(a.view(s))
}
