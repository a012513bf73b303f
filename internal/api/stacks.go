package api

import (
	"fmt"
	"strconv"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/stack"
)

// eventsPerRequest bounds one answer of the events endpoint ("Logs and events").
const eventsPerRequest = 200

// show answers GET /v0/stacks/{id}.
func (a *API) show(c *fiber.Ctx) error {
	s, role, err := a.open(c)
	if err != nil {
		return err
	}
	wait, err := waits(c)
	if err != nil {
		return err
	}
	if wait {
		if s, err = a.settled(c, s); err != nil {
			return err
		}
	}
	v := a.view(s)
	v.Role = role
	return c.JSON(v)
}

// remove answers DELETE /v0/stacks/{id}.
func (a *API) remove(c *fiber.Ctx) error {
	s, _, err := a.open(c)
	if err != nil {
		return err
	}
	if err := a.Host.Delete(a.base, s.ID); err != nil {
		return fmt.Errorf("delete stack %s: %w", s.ID, err)
	}
	return c.JSON(struct {
		ID     string       `json:"id"`
		Status stack.Status `json:"status"`
	}{s.ID, stack.Deleted})
}

// events answers GET /v0/stacks/{id}/events.
func (a *API) events(c *fiber.Ctx) error {
	s, _, err := a.open(c)
	if err != nil {
		return err
	}
	after, err := eventCursor(c)
	if err != nil {
		return err
	}
	events, err := a.Store.Events(a.base, s.ID, after, eventsPerRequest)
	if err != nil {
		return fmt.Errorf("read the events of stack %s: %w", s.ID, err)
	}
	if events == nil {
		events = []stack.Event{}
	}
	return c.JSON(struct {
		Events []stack.Event `json:"events"`
	}{events})
}

func eventCursor(c *fiber.Ctx) (int64, error) {
	text := c.Query("after", "0")
	after, err := strconv.ParseInt(text, 10, 64)
	if err != nil || after < 0 {
		return 0, invalid("after must be the id of the last event seen, or 0 for all of them, not %q", shorten(text))
	}
	return after, nil
}
