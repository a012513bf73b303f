package api

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

// border is what every request passes on its way to the Fiber app and back:
// it survives panics and leaves the connection at the start of the next
// request, or closed.
func (a *API) border(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		b := newBody(ctx)
		ctx.SetUserValue(bodyKey{}, b)
		a.guard(ctx, next)
		if !b.drain(a.drainLimit()) {
			ctx.SetConnectionClose()
		}
	}
}

// drainLimit is how much of a refused upload is read and thrown away before
// the answer: a client that only reads once its body is sent gets to see the
// answer up to here, and a reset connection beyond.
func (a *API) drainLimit() int64 { return 4*a.MaxUpload + formOverhead }

// guard runs the app; a panic is a 500 that ends the connection.
func (a *API) guard(ctx *fasthttp.RequestCtx, next fasthttp.RequestHandler) {
	defer func() {
		if v := recover(); v != nil {
			a.Log.Error("request panicked", "error", fmt.Sprint(v), "method", string(ctx.Method()),
				"path", string(ctx.Path()), "request", requestID(ctx), "trace", string(debug.Stack()))
			ctx.Response.Reset()
			answerInternal(ctx)
			ctx.SetConnectionClose()
		}
	}()
	if method := string(ctx.Method()); !knownMethod(method) {
		ctx.Response.Header.Set(fiber.HeaderAllow, strings.Join(used, ", "))
		answer(ctx, fiber.StatusMethodNotAllowed,
			fmt.Sprintf("the method %s is not known here; the API uses %s", shorten(method), strings.Join(used, ", ")))
		return
	}
	next(ctx)
}

// used are the methods that routes of the specification have.
var used = []string{fiber.MethodGet, fiber.MethodPost, fiber.MethodPatch, fiber.MethodDelete}

// knownMethod tells whether Fiber routes the method; it answers others in
// plain text.
func knownMethod(method string) bool {
	for _, m := range fiber.DefaultMethods {
		if m == method {
			return true
		}
	}
	return false
}
