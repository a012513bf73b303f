package api

import (
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/stack"
)

// wantsWait reads the query parameter wait; ?wait alone means true.
func wantsWait(c *fiber.Ctx) (bool, error) {
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

// hold holds the response: it calls look at once and after each commit that touches the
// stack, until look is done or fails, the time is up, the caller hangs up or the server
// shuts down.
func (a *API) hold(c *fiber.Ctx, id string, look func() (done bool, err error)) error {
	wake, stop := a.cfg.Store.Watch(id)
	defer stop()
	timeout := time.NewTimer(a.cfg.Wait)
	defer timeout.Stop()
	gone := hangup(c.Context())
	for {
		if done, err := look(); done || err != nil {
			return err
		}
		select {
		case <-wake:
		case <-timeout.C:
			return nil
		case <-gone:
			return nil
		case <-a.server.Released():
			return nil
		}
	}
}

// settled returns the stack as it is. With wait it first holds the response until
// nothing of the stack is being built or restored, as long as hold does.
func (a *API) settled(c *fiber.Ctx, s *stack.Stack, wait bool) (now *stack.Stack, err error) {
	if !wait {
		return s, nil
	}
	err = a.hold(c, s.ID, func() (bool, error) {
		now, err = a.gate.find(s.ID)
		return err == nil && now.Settled(), err
	})
	return now, err
}
