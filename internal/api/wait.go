package api

import (
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/stack"
)

// waits reads the query parameter wait; ?wait alone means true.
func waits(c *fiber.Ctx) (bool, error) {
	args := c.Context().QueryArgs()
	if !args.Has("wait") {
		return false, nil
	}
	text := c.Query("wait", "true")
	wait, err := strconv.ParseBool(text)
	if err != nil {
		return false, invalid("wait must be true or false, not %q", shorten(text))
	}
	return wait, nil
}

// settled holds the response until nothing of the stack is being built or
// restored, and returns the stack as it is then, or when the time is up, the
// client has gone or the server shuts down.
func (a *API) settled(c *fiber.Ctx, s *stack.Stack) (*stack.Stack, error) {
	wake, stop := a.Store.Watch(s.ID)
	defer stop()
	timeout := time.NewTimer(a.Wait)
	defer timeout.Stop()
	gone := a.hangup(c.Context())
	for {
		s, err := a.find(s.ID)
		if err != nil || s.Settled() {
			return s, err
		}
		select {
		case <-wake:
		case <-timeout.C:
			return s, nil
		case <-gone:
			return s, nil
		case <-a.released:
			return s, nil
		}
	}
}
