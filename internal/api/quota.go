package api

import (
	"context"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/appserver"
	"github.com/berth-host/berth/internal/stack"
)

// The headers with what is left of a limit.
const (
	headerRateLimit     = "RateLimit-Limit"
	headerRateRemaining = "RateLimit-Remaining"
	headerRateReset     = "RateLimit-Reset" // seconds until more is left
)

// The Retry-After of the limits (docs/api.md, "Errors").
const (
	createRetry = time.Hour   // on anonymous creates
	limitRetry  = time.Minute // on all else
)

// quotas are the limits on what a caller's network may do.
type quotas struct {
	creates, refusals Limiter // of anonymous creates
	callerHeader      string
	base              context.Context
}

// network returns the caller's network, by which the anonymous limits count.
func (q quotas) network(c *fiber.Ctx) string { return stack.NetworkOf(c.Get(q.callerHeader)) }

// show writes to the answer's headers what is left of a limit for key, a network or
// whatever else the limit counts by.
func (q quotas) show(c *fiber.Ctx, l Limiter, key string) {
	limit, remaining, reset := l.Quota(q.base, key)
	c.Set(headerRateLimit, strconv.Itoa(limit))
	c.Set(headerRateRemaining, strconv.Itoa(remaining))
	c.Set(headerRateReset, appserver.Seconds(reset))
}

// count counts a request of the caller's network, and refuses it if the limit is
// reached.
func (q quotas) count(c *fiber.Ctx, l Limiter) error {
	allowed := l.Allow(q.base, q.network(c))
	q.show(c, l, q.network(c))
	if !allowed {
		return stack.NewTooMany(limitRetry)
	}
	return nil
}

// takeCreate counts an anonymous create. The caller calls settle once with the result.
func (q quotas) takeCreate(c *fiber.Ctx, owner string) (settle func(error), err error) {
	if owner != "" {
		return func(error) {}, nil
	}
	if err := q.checkRefusals(c, owner); err != nil {
		return nil, err
	}
	giveBack, ok := q.creates.Take(q.base, q.network(c))
	if !ok {
		q.show(c, q.creates, q.network(c))
		return nil, stack.NewTooMany(createRetry)
	}
	return func(err error) {
		q.countRefusal(c, owner, err)
		if err != nil {
			giveBack()
		}
		q.show(c, q.creates, q.network(c))
	}, nil
}

// checkRefusals fails for an anonymous create whose network has had too many refused.
// It does not count creates under way, which may be in order.
func (q quotas) checkRefusals(c *fiber.Ctx, owner string) error {
	if owner != "" {
		return nil
	}
	if _, remaining, _ := q.refusals.Quota(q.base, q.network(c)); remaining > 0 {
		return nil
	}
	q.show(c, q.refusals, q.network(c))
	err := stack.NewTooMany(createRetry)
	err.Detail += "; too many creates from your network were refused with 413 or 422 in the last hour; check a project with POST /v0/validate before you create it"
	return err
}

// countRefusal counts an anonymous create that ended in err if it was refused because
// of its content.
func (q quotas) countRefusal(c *fiber.Ctx, owner string, err error) {
	if owner == "" && (stack.KindOf(err) == stack.TooLarge || stack.KindOf(err) == stack.Unprocessable) {
		q.refusals.Allow(q.base, q.network(c))
	}
}
