package appserver

import (
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// statuses maps the kinds of a *stack.Error (docs/api.md, "Errors").
var statuses = map[stack.Kind]int{
	stack.Invalid:         fiber.StatusBadRequest,
	stack.Unauthenticated: fiber.StatusUnauthorized,
	stack.Forbidden:       fiber.StatusForbidden,
	stack.NotFound:        fiber.StatusNotFound,
	stack.Conflict:        fiber.StatusConflict,
	stack.Changed:         fiber.StatusPreconditionFailed,
	stack.TooLarge:        fiber.StatusRequestEntityTooLarge,
	stack.Unprocessable:   fiber.StatusUnprocessableEntity,
	stack.TooMany:         fiber.StatusTooManyRequests,
	stack.Unreachable:     fiber.StatusBadGateway,
	stack.Unavailable:     fiber.StatusServiceUnavailable,
	stack.NoRoom:          fiber.StatusInsufficientStorage,
}

// Refuse finds the error in err that is meant for the caller and its HTTP status, and
// sets the answer's Retry-After if the error has one. A status of 0 means that err is
// not meant for the caller.
func Refuse(h *fasthttp.ResponseHeader, err error) (refusal *stack.Error, status int) {
	if errors.Is(err, store.ErrUnavailable) {
		err = errNoDatabase
	}
	if !errors.As(err, &refusal) || statuses[refusal.Kind] == 0 {
		return nil, 0
	}
	if refusal.RetryAfter > 0 {
		h.Set(fiber.HeaderRetryAfter, Seconds(refusal.RetryAfter))
	}
	return refusal, statuses[refusal.Kind]
}

// errNoDatabase answers whatever needs the database while it is away.
var errNoDatabase = &stack.Error{
	Kind: stack.Unavailable, RetryAfter: 5 * time.Second,
	Detail: "the server's database is not available at the moment; try again in a few seconds",
}

// Seconds formats d for a header: in whole seconds, rounded up.
func Seconds(d time.Duration) string { return strconv.Itoa(int(math.Ceil(d.Seconds()))) }
