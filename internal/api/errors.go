package api

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/berth-host/berth/internal/safetext"
	"github.com/berth-host/berth/internal/slowbody"
	"github.com/berth-host/berth/internal/stack"
)

// statuses maps the kinds of a *stack.Error (docs/api.md, "Errors").
var statuses = map[stack.Kind]int{
	stack.Invalid:         fiber.StatusBadRequest,
	stack.Unauthenticated: fiber.StatusUnauthorized,
	stack.Forbidden:       fiber.StatusForbidden,
	stack.NotFound:        fiber.StatusNotFound,
	stack.Conflict:        fiber.StatusConflict,
	stack.TooLarge:        fiber.StatusRequestEntityTooLarge,
	stack.Unprocessable:   fiber.StatusUnprocessableEntity,
	stack.TooMany:         fiber.StatusTooManyRequests,
	stack.Unavailable:     fiber.StatusServiceUnavailable,
}

// answerError is Fiber's error handler: every error of a handler and of the
// router ends here.
func (a *API) answerError(c *fiber.Ctx, err error) error {
	var known *stack.Error
	var framework *fiber.Error
	switch {
	case errors.As(err, &known) && statuses[known.Kind] != 0:
		a.refuse(c.Context(), known)
	case errors.As(err, &framework):
		a.answerRouter(c, framework)
	case errors.Is(err, syscall.ENOSPC):
		a.Log.Error("request failed: the disk is full", "error", err, "method", c.Method(), "path", c.Path())
		answer(c.Context(), fiber.StatusInsufficientStorage,
			"the disk of this host is full, so nothing of the request was kept; try again later, or tell the operator")
	default:
		a.Log.Error("request failed", "error", err, "method", c.Method(), "path", c.Path(),
			"request", requestID(c.Context()))
		answerInternal(c.Context())
	}
	return nil
}

// refuse writes an error that was worded for the client.
func (a *API) refuse(ctx *fasthttp.RequestCtx, err *stack.Error) {
	if err.Kind == stack.Unauthenticated {
		ctx.Response.Header.Set(fiber.HeaderWWWAuthenticate, "Bearer")
	}
	if err.RetryAfter > 0 {
		ctx.Response.Header.Set(fiber.HeaderRetryAfter, seconds(err.RetryAfter))
	}
	answer(ctx, statuses[err.Kind], err.Detail)
}

// answerRouter words what Fiber itself refuses.
func (a *API) answerRouter(c *fiber.Ctx, err *fiber.Error) {
	detail := err.Message
	switch err.Code {
	case fiber.StatusNotFound:
		detail = a.noSuchRoute(c.Method(), c.Path())
	case fiber.StatusMethodNotAllowed:
		allow := a.allowed(c.Path())
		c.Set(fiber.HeaderAllow, allow)
		detail = fmt.Sprintf("%s is not allowed on %s; it takes %s", c.Method(), shorten(c.Path()), allow)
	}
	answer(c.Context(), err.Code, detail)
}

// answerMalformed answers what fasthttp could not read as a request; the
// connection is closed afterwards.
func (a *API) answerMalformed(ctx *fasthttp.RequestCtx, err error) {
	var small *fasthttp.ErrSmallBuffer
	switch {
	case errors.As(err, &small):
		answer(ctx, fiber.StatusRequestHeaderFieldsTooLarge,
			fmt.Sprintf("the request line and headers are longer than %d bytes; send less in them", maxHead))
	case slowbody.Stalled(err) && errors.Unwrap(err) == nil: // an error of the headers comes wrapped
		answer(ctx, fiber.StatusBadRequest, stalledDetail(0))
	case slowbody.Stalled(err):
		answer(ctx, fiber.StatusRequestTimeout,
			fmt.Sprintf("the request's headers did not arrive within %s", headTimeout))
	case errors.Is(err, io.ErrUnexpectedEOF):
		answer(ctx, fiber.StatusBadRequest, "the request ended before all of it had arrived; send it again")
	default:
		a.Log.Debug("malformed request", "error", err)
		answer(ctx, fiber.StatusBadRequest, "this is not a well-formed HTTP/1.1 request: check the request line and the headers")
	}
}

// answerInternal hides what went wrong and names the request, under which the
// log has it.
func answerInternal(ctx *fasthttp.RequestCtx) {
	answer(ctx, fiber.StatusInternalServerError, fmt.Sprintf(
		"an internal error; try again, and if it stays tell the operator the request id %s", requestID(ctx)))
}

// answer writes the one shape that every error has. The detail may quote what
// the client sent, and is read on terminals.
func answer(ctx *fasthttp.RequestCtx, status int, detail string) {
	body, err := encodeJSON(struct {
		Detail string `json:"detail"`
	}{safetext.String(detail)})
	if err != nil {
		status = fiber.StatusInternalServerError
	}
	ctx.Response.SetStatusCode(status)
	ctx.Response.Header.SetContentType(fiber.MIMEApplicationJSON)
	ctx.Response.SetBodyRaw(body)
}

// requestID is the id that the edge gave the request, or a new one for a
// request that came without.
func requestID(ctx *fasthttp.RequestCtx) string {
	if id := ctx.Request.Header.Peek(fiber.HeaderXRequestID); len(id) > 0 {
		return shorten(string(id))
	}
	id := rand.Text()
	ctx.Request.Header.Set(fiber.HeaderXRequestID, id)
	return id
}

// encodeJSON is json.Marshal without the escapes that only HTML needs.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode the response: %w", err)
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

func invalid(format string, args ...any) error {
	return stack.NewError(stack.Invalid, fmt.Sprintf(format, args...))
}

func unprocessable(format string, args ...any) error {
	return stack.NewError(stack.Unprocessable, fmt.Sprintf(format, args...))
}
