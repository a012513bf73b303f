package api

import (
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/appserver"
	"github.com/berth-host/berth/internal/stack"
)

// wantsWait reads the query parameter wait.
func wantsWait(c *fiber.Ctx) (bool, error) { return queryFlag(c, "wait") }

// queryFlag reads a query parameter that is true or false; its name alone means true.
func queryFlag(c *fiber.Ctx, name string) (bool, error) {
	if !c.Context().QueryArgs().Has(name) {
		return false, nil
	}
	return parseFlag(name, c.Query(name, "true"))
}

func parseFlag(name, text string) (bool, error) {
	set, err := strconv.ParseBool(text)
	if err != nil {
		return false, invalid("%s must be true or false, not %q", name, shorten(text))
	}
	return set, nil
}

// wantsOutcome reads the query parameters wait and, if the operation has it, fail.
func (o operation) wantsOutcome(c *fiber.Ctx) (wait, fail bool, err error) {
	if wait, err = wantsWait(c); err != nil || !o.fails {
		return wait, false, err
	}
	if fail, err = queryFlag(c, "fail"); err == nil && fail && !wait {
		err = invalid("fail=true says how the deploy ended, so it needs wait=true as well")
	}
	return wait, fail, err
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
	a.cfg.Held(appserver.RequestID(c.Context()))
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

// ended returns the stack as it is. With wait it first holds the response until the
// attempt mine has ended, as long as hold does.
func (a *API) ended(c *fiber.Ctx, s *stack.Stack, mine stack.Deploy, wait bool) (now *stack.Stack, err error) {
	if !wait {
		return s, nil
	}
	err = a.hold(c, s.ID, func() (bool, error) {
		now, err = a.gate.find(s.ID)
		return err == nil && (now.Settled() || now.DeployOf(mine).Outcome != stack.Underway), err
	})
	return now, err
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
