package web

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"

	"github.com/a-h/templ"
	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/stack"
)

// render answers with a page.
func (w *Web) render(c *fiber.Ctx, code int, content templ.Component) error {
	var b bytes.Buffer
	if err := content.Render(w.base, &b); err != nil {
		return fmt.Errorf("render %s: %w", c.Path(), err)
	}
	c.Type("html", "utf-8")
	return c.Status(code).Send(b.Bytes())
}

// stackURL is the address of a stack's page, or of something below it.
func stackURL(id string, below ...string) templ.SafeURL {
	path := "/dashboard/stacks/" + url.PathEscape(id)
	for _, part := range below {
		path += "/" + url.PathEscape(part)
	}
	return templ.SafeURL(path)
}

func sessionURL(s sessionView) templ.SafeURL {
	return templ.SafeURL("/dashboard/account/sessions/" + strconv.FormatInt(s.ID, 10))
}

// statuses maps the kinds of a *stack.Error that people meet.
var statuses = map[stack.Kind]int{
	stack.Invalid:         fiber.StatusBadRequest,
	stack.Unauthenticated: fiber.StatusUnauthorized,
	stack.Forbidden:       fiber.StatusForbidden,
	stack.NotFound:        fiber.StatusNotFound,
	stack.Conflict:        fiber.StatusConflict,
	stack.Unprocessable:   fiber.StatusUnprocessableEntity,
	stack.TooMany:         fiber.StatusTooManyRequests,
	stack.Unavailable:     fiber.StatusServiceUnavailable,
}

// refusal is what a person is told of an error, and the status that goes with
// it; false for an error that is not for people.
func refusal(c *fiber.Ctx, err error) (text string, code int, ok bool) {
	var known *stack.Error
	if !errors.As(err, &known) || statuses[known.Kind] == 0 {
		return "", 0, false
	}
	if known.RetryAfter > 0 {
		c.Set(fiber.HeaderRetryAfter, strconv.Itoa(int(math.Ceil(known.RetryAfter.Seconds()))))
	}
	return sentence(known.Detail), statuses[known.Kind], true
}
