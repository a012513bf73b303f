package web

import (
	"bytes"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

// failed is an error in words.
type failed struct{ heading, text string }

// answerError is Fiber's error handler: every error of a handler and of the
// router becomes a page here.
func (w *Web) answerError(c *fiber.Ctx, err error) error {
	protect(&c.Response().Header) // fasthttp's own errors come without the guard
	var framework *fiber.Error
	text, code, known := refusal(c, err)
	switch {
	case known:
		err = w.fail(c, code, failed{headings[code], text})
	case errors.As(err, &framework):
		err = w.fail(c, framework.Code, routerFailure(c, framework))
	}
	if err == nil {
		return nil
	}
	// The route instead of the path, which may hold a claim code.
	w.Log.Error("page failed", "error", err, "method", c.Method(), "route", c.Route().Path, "request", requestID(c.Context()))
	w.answerBroken(c.Context())
	return nil
}

// guard sets the headers of every answer, and survives panics.
func (w *Web) guard(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		defer func() {
			if v := recover(); v != nil {
				w.Log.Error("page panicked", "error", fmt.Sprint(v), "request", requestID(ctx), "trace", string(debug.Stack()))
				ctx.Response.Reset()
				w.answerBroken(ctx)
				ctx.SetConnectionClose()
			}
		}()
		protect(&ctx.Response.Header)
		next(ctx)
	}
}

// answerBroken hides what went wrong and names the request, under which the log
// has it. It asks nothing of the rest of the server.
func (w *Web) answerBroken(ctx *fasthttp.RequestCtx) {
	const heading = "Something broke on our side"
	text := "Try again. If it stays, tell the operator the request id " + requestID(ctx) + "."
	var b bytes.Buffer
	if err := failure(page{Title: heading, Width: "narrow"}, heading, text).Render(w.base, &b); err != nil {
		w.Log.Error("error page failed", "error", err)
	}
	protect(&ctx.Response.Header)
	ctx.SetStatusCode(fiber.StatusInternalServerError)
	ctx.SetContentType(fiber.MIMETextHTMLCharsetUTF8)
	ctx.SetBody(b.Bytes())
}

// requestID is the id that the edge gave the request.
func requestID(ctx *fasthttp.RequestCtx) string {
	return string(ctx.Request.Header.Peek(fiber.HeaderXRequestID))
}

// headings are the titles of pages that say why something was refused.
var headings = map[int]string{
	fiber.StatusBadRequest:          "Bad request",
	fiber.StatusUnauthorized:        "Sign in first",
	fiber.StatusForbidden:           "That is not allowed",
	fiber.StatusNotFound:            "Not found",
	fiber.StatusConflict:            "Not possible right now",
	fiber.StatusUnprocessableEntity: "That was not understood",
	fiber.StatusTooManyRequests:     "Too many requests",
	fiber.StatusServiceUnavailable:  "Temporarily unavailable",
}

// routerFailure words what Fiber or a form's check refused.
func routerFailure(c *fiber.Ctx, err *fiber.Error) failed {
	switch {
	case errors.Is(err, errForged):
		return failed{"This form is out of date", "It was sent from a page that no longer belongs to this browser, for example after signing in or out in another tab. Go back, reload the page and send it again. Cookies have to be allowed."}
	case err.Code == fiber.StatusNotFound:
		return failed{headings[err.Code], "There is no such page. The address may be mistyped, or what was here is deleted."}
	case err.Code == fiber.StatusMethodNotAllowed:
		return failed{"That cannot be done here", fmt.Sprintf("This address takes %s.", c.GetRespHeader(fiber.HeaderAllow))}
	case err.Code == fiber.StatusRequestEntityTooLarge:
		return failed{"That is too much", "No form here takes that much text."}
	}
	return failed{"The request was not understood", sentence(err.Message)}
}

// fail answers with a page for what went wrong.
func (w *Web) fail(c *fiber.Ctx, code int, f failed) error {
	p, err := w.newPage(c, f.heading, "narrow", "")
	if err != nil {
		return err
	}
	return w.render(c, code, failure(p, f.heading, f.text))
}
