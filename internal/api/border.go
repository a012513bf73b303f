package api

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

// border is what every request passes on its way to the Fiber app and back:
// it survives panics, leaves the connection at the start of the next request,
// or closed, and is logged and counted.
func (a *API) border(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		begun := time.Now()
		b := newBody(ctx)
		ctx.SetUserValue(bodyKey{}, b)
		a.guard(ctx, next)
		share(ctx)
		a.note(ctx, time.Since(begun))
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
	method := string(ctx.Method())
	switch {
	case method == fiber.MethodOptions:
		a.answerOptions(ctx)
	case slices.Contains(fiber.DefaultMethods, method):
		next(ctx)
	default: // Fiber would answer in plain text
		allow := a.allowed("*")
		ctx.Response.Header.Set(fiber.HeaderAllow, allow)
		answer(ctx, fiber.StatusMethodNotAllowed, fmt.Sprintf("the method %s is not known here; the API uses %s", shorten(method), allow))
	}
}

// What a handler leaves for the log.
type (
	routeKey struct{}
	stackKey struct{}
)

// noteStack has the request's line in the log name the stack.
func noteStack(c *fiber.Ctx, id string) { c.Context().SetUserValue(stackKey{}, id) }

// named is the handler of a route, which the log and the metrics name.
func named(r route) fiber.Handler {
	path := strings.ReplaceAll(r.path, ":id", "{id}")
	return func(c *fiber.Ctx) error {
		c.Context().SetUserValue(routeKey{}, path)
		return r.handle(c)
	}
}

// note logs a request that was answered, and counts it. One that no route took
// has the route "".
func (a *API) note(ctx *fasthttp.RequestCtx, took time.Duration) {
	path, _ := ctx.UserValue(routeKey{}).(string)
	status := ctx.Response.StatusCode()
	a.Observe(path, string(ctx.Method()), status, took)
	level := slog.LevelInfo
	if path == healthPath {
		level = slog.LevelDebug
	}
	fields := []any{
		"method", shorten(string(ctx.Method())), "path", shorten(string(ctx.Path())), "status", status,
		"duration", took, "request", requestID(ctx),
	}
	if id, ok := ctx.UserValue(stackKey{}).(string); ok {
		fields = append(fields, "stack", id)
	}
	a.Log.Log(a.base, level, "request", fields...)
}
