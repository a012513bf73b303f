package api

import (
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/berth-host/berth/internal/appserver"
	"github.com/berth-host/berth/internal/plainjson"
	"github.com/berth-host/berth/internal/safetext"
	"github.com/berth-host/berth/internal/slowbody"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// answerError is Fiber's error handler: every error of a handler and of the
// router ends here.
func (a *API) answerError(c *fiber.Ctx, err error) error {
	if errors.Is(err, store.ErrUnavailable) {
		a.cfg.Log.Warn("request refused: the database is not available", "error", err, "method", c.Method(), "path", c.Path())
	}
	refusal, status := appserver.Refuse(&c.Response().Header, err)
	var framework *fiber.Error
	switch {
	case status != 0:
		if refusal.Kind == stack.Unauthenticated {
			c.Set(fiber.HeaderWWWAuthenticate, "Bearer")
		}
		answer(c.Context(), status, refusal.Detail)
	case errors.As(err, &framework):
		a.answerRouter(c, framework)
	case errors.Is(err, syscall.ENOSPC):
		a.cfg.Log.Error("request failed: the disk is full", "error", err, "method", c.Method(), "path", c.Path())
		answer(c.Context(), fiber.StatusInsufficientStorage,
			"the disk of this host is full, so nothing of the request was kept; try again later, or tell the operator")
	default:
		a.cfg.Log.Error("request failed", "error", err, "method", c.Method(), "path", c.Path(),
			"request", requestID(c.Context()))
		answerInternal(c.Context())
	}
	return nil
}

// answerRouter answers what Fiber itself refuses.
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
			fmt.Sprintf("the request line and headers are longer than %d bytes; send fewer or shorter ones", appserver.MaxHead))
	case slowbody.Stalled(err) && errors.Unwrap(err) == nil: // an error of the headers comes wrapped
		answer(ctx, fiber.StatusBadRequest, stalledDetail(0))
	case slowbody.Stalled(err):
		answer(ctx, fiber.StatusRequestTimeout,
			fmt.Sprintf("the request's headers did not arrive within %s", appserver.HeadTimeout))
	case errors.Is(err, io.ErrUnexpectedEOF):
		answer(ctx, fiber.StatusBadRequest, "the request ended before it was complete; send it again")
	default:
		a.cfg.Log.Debug("malformed request", "error", err)
		answer(ctx, fiber.StatusBadRequest, "this is not a well-formed HTTP/1.1 request: check the request line and the headers")
	}
}

// answerInternal hides the cause and gives the request's id, by which to find it in the
// log.
func answerInternal(ctx *fasthttp.RequestCtx) {
	answer(ctx, fiber.StatusInternalServerError, fmt.Sprintf(
		"internal error; try again, and if it happens again tell the operator the request id %s", requestID(ctx)))
}

// answer writes the form that every error has. The detail may quote what the caller
// sent, and is read on terminals.
func answer(ctx *fasthttp.RequestCtx, status int, detail string) {
	body, _ := plainjson.Marshal(fiber.Map{"detail": safetext.String(detail)}) // strings always encode
	ctx.Response.SetStatusCode(status)
	ctx.Response.Header.SetContentType(fiber.MIMEApplicationJSON)
	ctx.Response.SetBodyRaw(body)
}

// requestID returns the request's id.
func requestID(ctx *fasthttp.RequestCtx) string { return shorten(appserver.RequestID(ctx)) }

func invalid(format string, args ...any) error {
	return stack.NewError(stack.Invalid, fmt.Sprintf(format, args...))
}

func unprocessable(format string, args ...any) error {
	return stack.NewError(stack.Unprocessable, fmt.Sprintf(format, args...))
}
