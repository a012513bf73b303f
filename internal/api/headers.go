package api

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

// What pages of other origins may send and see. They come with a token in
// Authorization or with nothing: no cookie opens the API, so any origin may ask.
var (
	allowedHeaders = strings.Join([]string{
		fiber.HeaderAuthorization, fiber.HeaderContentType, headerIdempotencyKey, headerLastEventID, fiber.HeaderXRequestID,
	}, ", ")
	exposedHeaders = strings.Join([]string{
		fiber.HeaderLocation, fiber.HeaderRetryAfter, fiber.HeaderXRequestID, headerReplayed,
		headerRateLimit, headerRateRemaining, headerRateReset,
	}, ", ")
)

const preflightAge = "86400" // seconds that a browser may remember a preflight

// share lets pages of any origin read the answer.
func share(ctx *fasthttp.RequestCtx) {
	ctx.Response.Header.Set(fiber.HeaderAccessControlAllowOrigin, "*")
	ctx.Response.Header.Set(fiber.HeaderAccessControlExposeHeaders, exposedHeaders)
}

// methods are those that routes have, in the order of an Allow header.
var methods = []string{fiber.MethodGet, fiber.MethodHead, fiber.MethodPost, fiber.MethodPatch, fiber.MethodDelete, fiber.MethodOptions}

// allowed lists the methods of a path; "" for one that no route has. The path *
// is the whole API.
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

// The headers that tell how much of a limit is left.
const (
	headerRateLimit     = "RateLimit-Limit"
	headerRateRemaining = "RateLimit-Remaining"
	headerRateReset     = "RateLimit-Reset" // seconds until more is left
)

// showQuota tells what a client network, or what else the limit counts by, has
// left of it, whatever the answer is.
func (a *API) showQuota(c *fiber.Ctx, l Limiter, key string) {
	limit, remaining, reset := l.Quota(a.base, key)
	c.Set(headerRateLimit, strconv.Itoa(limit))
	c.Set(headerRateRemaining, strconv.Itoa(remaining))
	c.Set(headerRateReset, seconds(reset))
}

// seconds rounds up.
func seconds(d time.Duration) string { return strconv.Itoa(int(math.Ceil(d.Seconds()))) }
