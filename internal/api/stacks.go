package api

import (
	"fmt"
	"strconv"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/stack"
)

// eventsPerRequest limits the events in one answer (docs/api.md, "Logs and events").
const eventsPerRequest = 200

// show answers GET /v0/stacks/{id}.
func (a *API) show(c *fiber.Ctx, s *stack.Stack, role string) error {
	wait, err := wantsWait(c)
	if err != nil {
		return err
	}
	if s, err = a.settled(c, s, wait); err != nil {
		return err
	}
	v := a.view(s)
	v.Role = role
	return c.JSON(v)
}

// removeStack answers DELETE /v0/stacks/{id}.
func (a *API) removeStack(c *fiber.Ctx, s *stack.Stack, _ string) error {
	if err := a.cfg.Host.Delete(a.server.Context(), s.ID); err != nil {
		return fmt.Errorf("delete stack %s: %w", s.ID, err)
	}
	return c.JSON(fiber.Map{"id": s.ID, "status": stack.Deleted})
}

// events answers GET /v0/stacks/{id}/events. If the request accepts server-sent events,
// it follows the stack.
func (a *API) events(c *fiber.Ctx, s *stack.Stack, _ string) error {
	after, err := eventCursor(c)
	if err != nil {
		return err
	}
	if wantsStream(c) {
		return a.followEvents(c, after)
	}
	wait, err := wantsWait(c)
	if err != nil {
		return err
	}
	events, err := a.eventsAfter(c, s.ID, after, wait)
	if err != nil {
		return err
	}
	return c.JSON(fiber.Map{"events": events})
}

// eventsAfter reads one page of events; with wait it holds the response until there is
// one, as long as hold does.
func (a *API) eventsAfter(c *fiber.Ctx, id string, after int64, wait bool) (events []stack.Event, err error) {
	if !wait {
		return a.readEvents(id, after)
	}
	err = a.hold(c, id, func() (bool, error) {
		if _, err := a.gate.find(id); err != nil {
			return false, err
		}
		events, err = a.readEvents(id, after)
		return len(events) > 0, err
	})
	return events, err
}

func (a *API) readEvents(id string, after int64) ([]stack.Event, error) {
	events, err := a.cfg.Store.Events(a.server.Context(), id, after, eventsPerRequest)
	if err != nil {
		return nil, fmt.Errorf("read the events of stack %s: %w", id, err)
	}
	return events, nil
}

func eventCursor(c *fiber.Ctx) (int64, error) { return parseCursor("after", c.Query("after", "0")) }

func parseCursor(name, text string) (int64, error) {
	after, err := strconv.ParseInt(text, 10, 64)
	if err != nil || after < 0 {
		return 0, invalid("%s must be the id of the last event seen, or 0 for all of them, not %q", name, shorten(text))
	}
	return after, nil
}
