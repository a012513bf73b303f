package api

import (
	"encoding/json"
	"fmt"
	"time"

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
	value, err := onlyField(bodyOf(c.Context()), "ttl", `{"ttl": "1h"}`)
	if err != nil {
		return err
	}
	ttl, err := ttlOf(value)
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

// ttlOf reads the duration of a request; a value that is no string is an
// invalid duration too.
func ttlOf(value json.RawMessage) (time.Duration, error) {
	var text string
	if err := json.Unmarshal(value, &text); err != nil {
		text = string(value)
	}
	return source.ParseDuration(text)
}
