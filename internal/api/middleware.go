package api

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/berth-host/berth/internal/appserver"
)

// around handles every request on its way to the Fiber app and back: it recovers from
// panics, leaves the connection at the start of the next request or closes it, and logs
// and counts the request.
func (a *API) around(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		begun := time.Now()
		b := newBody(ctx, a.drainLimit())
		ctx.SetUserValue(bodyKey{}, b)
		appserver.Recover(ctx, func(ctx *fasthttp.RequestCtx) { a.dispatch(ctx, next) }, func(reason, trace string) {
			a.cfg.Log.Error("request panicked", "error", reason, "method", string(ctx.Method()),
				"path", string(ctx.Path()), "request", requestID(ctx), "trace", trace)
			answerInternal(ctx)
		})
		allowAnyOrigin(ctx)
		a.logRequest(ctx, time.Since(begun))
		if !b.discard() {
			ctx.SetConnectionClose()
		}
	}
}

// drainLimit returns how many bytes of a refused upload are read and discarded before
// the answer. A caller that reads only after sending its body sees the answer up to
// this size, and a reset connection beyond.
func (a *API) drainLimit() int64 { return 4*a.cfg.MaxUpload + formOverhead }

// dispatch runs the app, or answers what Fiber would not.
func (a *API) dispatch(ctx *fasthttp.RequestCtx, next fasthttp.RequestHandler) {
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

// The keys of values that a handler leaves for the log.
type (
	routeKey struct{}
	stackKey struct{}
)

// noteStack adds the stack to the request's log line.
func noteStack(c *fiber.Ctx, id string) { c.Context().SetUserValue(stackKey{}, id) }

// noted returns the handler of a route and names the route to the log and the metrics.
func noted(r route) fiber.Handler {
	path := r.pattern()
	return func(c *fiber.Ctx) error {
		c.Context().SetUserValue(routeKey{}, path)
		return r.handle(c)
	}
}

// logRequest logs and counts an answered request. The route is "" if none matched.
func (a *API) logRequest(ctx *fasthttp.RequestCtx, took time.Duration) {
	path, _ := ctx.UserValue(routeKey{}).(string)
	status := ctx.Response.StatusCode()
	a.cfg.Observe(path, string(ctx.Method()), status, took)
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
	a.cfg.Log.Log(a.server.Context(), level, "request", fields...)
}

// The headers that pages of other origins may send and see. Their requests carry a
// token in Authorization or nothing: no cookie opens the API, so any origin may ask.
var (
	allowedHeaders = strings.Join([]string{
		fiber.HeaderAuthorization, fiber.HeaderContentType, headerIdempotencyKey, headerLastEventID, fiber.HeaderXRequestID,
		fiber.HeaderIfMatch, fiber.HeaderIfNoneMatch,
	}, ", ")
	exposedHeaders = strings.Join([]string{
		fiber.HeaderLocation, fiber.HeaderRetryAfter, fiber.HeaderXRequestID, fiber.HeaderETag, headerReplayed,
		headerRateLimit, headerRateRemaining, headerRateReset,
	}, ", ")
)

const preflightAge = "86400" // seconds that a browser may remember a preflight

// allowAnyOrigin lets pages of any origin read the answer.
func allowAnyOrigin(ctx *fasthttp.RequestCtx) {
	ctx.Response.Header.Set(fiber.HeaderAccessControlAllowOrigin, "*")
	ctx.Response.Header.Set(fiber.HeaderAccessControlExposeHeaders, exposedHeaders)
}

// methods are the methods of the routes, in the order of an Allow header.
var methods = []string{fiber.MethodGet, fiber.MethodHead, fiber.MethodPost, fiber.MethodPut, fiber.MethodPatch, fiber.MethodDelete, fiber.MethodOptions}

// allowed returns the methods of a path, "" if no route has it. The path * means the
// whole API.
func (a *API) allowed(path string) string {
	if path == "*" {
		return strings.Join(methods, ", ")
	}
	if len(path) > 1 {
		path = strings.TrimSuffix(path, "/") // as Fiber does
	}
	there := map[string]bool{}
	for _, r := range a.routes {
		if fiber.RoutePatternMatch(path, r.path, fiber.Config{CaseSensitive: true}) {
			there[r.method], there[fiber.MethodOptions] = true, true
			there[fiber.MethodHead] = there[fiber.MethodHead] || r.method == fiber.MethodGet
		}
	}
	return strings.Join(slices.DeleteFunc(slices.Clone(methods), func(m string) bool { return !there[m] }), ", ")
}

// answerOptions answers OPTIONS, a browser's preflight among them.
func (a *API) answerOptions(ctx *fasthttp.RequestCtx) {
	path := string(ctx.Path())
	if string(ctx.RequestURI()) == "*" {
		path = "*"
	}
	allow := a.allowed(path)
	if allow == "" {
		answer(ctx, fiber.StatusNotFound, a.noSuchRoute(fiber.MethodOptions, path))
		return
	}
	ctx.Response.Header.Set(fiber.HeaderAllow, allow)
	if len(ctx.Request.Header.Peek(fiber.HeaderAccessControlRequestMethod)) > 0 {
		ctx.Response.Header.Set(fiber.HeaderAccessControlAllowMethods, allow)
		ctx.Response.Header.Set(fiber.HeaderAccessControlAllowHeaders, allowedHeaders)
		ctx.Response.Header.Set(fiber.HeaderAccessControlMaxAge, preflightAge)
	}
	ctx.SetStatusCode(fiber.StatusNoContent)
}
