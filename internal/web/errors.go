package web

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/berth-host/berth/internal/appserver"
)

// failed is an error as a page shows it.
type failed struct{ heading, text string }

// answerError is Fiber's error handler: every error of a handler and of the router
// becomes a page.
func (w *pages) answerError(c *fiber.Ctx, err error) error {
	protect(&c.Response().Header) // fasthttp's own errors do not come through around
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
	w.cfg.Log.Error("page failed", "error", err, "method", c.Method(), "route", c.Route().Path, "request", appserver.RequestID(c.Context()))
	w.answerBroken(c.Context())
	return nil
}

// around sets the headers of every answer, and survives panics.
func (w *pages) around(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		appserver.Recover(ctx, func(ctx *fasthttp.RequestCtx) {
			protect(&ctx.Response.Header)
			next(ctx)
		}, func(reason, trace string) {
			w.cfg.Log.Error("page panicked", "error", reason, "request", appserver.RequestID(ctx), "trace", trace)
			w.answerBroken(ctx)
		})
	}
}

// answerBroken hides the cause and gives the request's id, by which to find it in the
// log. It needs nothing of the rest of the server.
func (w *pages) answerBroken(ctx *fasthttp.RequestCtx) {
	const heading = "Something went wrong on our side"
	text := "Try again. If it happens again, tell the operator the request id " + appserver.RequestID(ctx) + "."
	var b bytes.Buffer
	if err := failure(page{Title: heading, Width: "narrow"}, heading, text).Render(w.server.Context(), &b); err != nil {
		w.cfg.Log.Error("error page failed", "error", err)
	}
	protect(&ctx.Response.Header)
	ctx.SetStatusCode(fiber.StatusInternalServerError)
	ctx.SetContentType(fiber.MIMETextHTMLCharsetUTF8)
	ctx.SetBody(b.Bytes())
}

// headings are the titles of pages that say why something was refused.
var headings = map[int]string{
	fiber.StatusBadRequest:            "Bad request",
	fiber.StatusUnauthorized:          "Sign in first",
	fiber.StatusForbidden:             "Not allowed",
	fiber.StatusNotFound:              "Not found",
	fiber.StatusConflict:              "Not possible right now",
	fiber.StatusRequestEntityTooLarge: "Too large",
	fiber.StatusUnprocessableEntity:   "Not accepted",
	fiber.StatusTooManyRequests:       "Too many requests",
	fiber.StatusBadGateway:            "Temporarily unavailable",
	fiber.StatusServiceUnavailable:    "Temporarily unavailable",
	fiber.StatusInsufficientStorage:   "No room",
}

// routerFailure returns the words for a refusal by Fiber or by a form's check.
func routerFailure(c *fiber.Ctx, err *fiber.Error) failed {
	switch {
	case errors.Is(err, errForged):
		return failed{"This form is out of date", "It was sent from a page that no longer belongs to this browser, for example after signing in or out in another tab. Go back, reload the page and send it again. Your browser must accept cookies."}
	case err.Code == fiber.StatusNotFound:
		return failed{headings[err.Code], "There is no such page. The address may be mistyped, or the stack or page was deleted."}
	case err.Code == fiber.StatusMethodNotAllowed:
		return failed{"Not supported here", fmt.Sprintf("This address supports only %s.", c.GetRespHeader(fiber.HeaderAllow))}
	case err.Code == fiber.StatusRequestEntityTooLarge:
		return failed{headings[err.Code], "The form is larger than this server accepts."}
	}
	return failed{"The request was not understood", sentence(err.Message)}
}

// fail answers with a page for what went wrong.
func (w *pages) fail(c *fiber.Ctx, code int, f failed) error {
	s, err := w.session(c)
	if err != nil {
		return err
	}
	return w.render(c, code, failure(w.newPage(c, s, f.heading, "narrow", ""), f.heading, f.text))
}
