package api

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// route is one line of the table of endpoints.
type route struct {
	method, path string
	handle       fiber.Handler
}

const healthPath = "/healthz"

// table lists every route in the order of docs/api.md, "Endpoints".
func (a *API) table() []route {
	return []route{
		{fiber.MethodPost, "/v0/stacks", a.create},
		{fiber.MethodGet, "/v0/stacks/:id", a.onStack(a.show)},
		{fiber.MethodPatch, "/v0/stacks/:id", a.onStack(a.extend)},
		{fiber.MethodPost, "/v0/stacks/:id/deploy", a.onStack(a.deploy)},
		{fiber.MethodGet, "/v0/stacks/:id/source", a.onStack(a.showSource)},
		{fiber.MethodGet, "/v0/stacks/:id/source/*", a.onStack(a.showSourceFile)},
		{fiber.MethodDelete, "/v0/stacks/:id", a.onStack(a.removeStack)},
		{fiber.MethodPost, "/v0/stacks/:id/restart", a.onStack(a.restart)},
		{fiber.MethodGet, "/v0/stacks/:id/logs", a.onStack(a.logs)},
		{fiber.MethodGet, "/v0/stacks/:id/events", a.onStack(a.events)},
		{fiber.MethodGet, "/v0/stacks/:id/metrics", a.onStack(a.metrics)},
		{fiber.MethodGet, "/v0/stacks/:id/env", a.onStack(a.variables)},
		{fiber.MethodPatch, "/v0/stacks/:id/env", a.onStack(a.configure)},
		{fiber.MethodPost, "/v0/stacks/:id/services/:name/exec", a.onStack(a.exec)},
		{fiber.MethodGet, "/v0/stacks/:id/services/:name/data", a.onStack(a.readData)},
		{fiber.MethodPut, "/v0/stacks/:id/services/:name/data", a.onStack(a.replaceData)},
		{fiber.MethodGet, "/v0/stacks/:id/domains", a.onDomains(a.domains)},
		{fiber.MethodPost, "/v0/stacks/:id/domains", a.onDomains(a.addDomain)},
		{fiber.MethodGet, "/v0/stacks/:id/domains/:host", a.onDomains(a.showDomain)},
		{fiber.MethodPatch, "/v0/stacks/:id/domains/:host", a.onDomains(a.markDomain)},
		{fiber.MethodDelete, "/v0/stacks/:id/domains/:host", a.onDomains(a.removeDomain)},
		{fiber.MethodPost, "/v0/stacks/:id/domains/:host/check", a.onDomains(a.checkDomain)},
		{fiber.MethodPost, "/v0/claim", a.byOwner(a.claim)},
		{fiber.MethodGet, "/v0/me", a.byOwner(a.me)},
		{fiber.MethodPost, "/v0/validate", a.validate},
		{fiber.MethodGet, healthPath, a.health},
	}
}

// onStack makes a handler of one for the stack in the path, and for the role in which
// the caller has access to it.
func (a *API) onStack(handle func(c *fiber.Ctx, s *stack.Stack, role string) error) fiber.Handler {
	return func(c *fiber.Ctx) error {
		s, role, err := a.gate.open(c)
		if err != nil {
			return err
		}
		return handle(c, s, role)
	}
}

// byOwner makes a handler of one for the account whose API key the caller sends.
func (a *API) byOwner(handle func(c *fiber.Ctx, account store.Account) error) fiber.Handler {
	return func(c *fiber.Ctx) error {
		account, err := a.gate.owner(c)
		if err != nil {
			return err
		}
		return handle(c, account)
	}
}

// addRoutes adds the routes to the app, each GET also as a HEAD.
func (a *API) addRoutes(app *fiber.App) {
	for _, r := range a.routes {
		app.Add(r.method, r.path, noted(r))
		if r.method == fiber.MethodGet {
			app.Add(fiber.MethodHead, r.path, noted(r))
		}
	}
}

// Has reports whether a path belongs to the API, that is, begins as one of the routes
// does.
func (a *API) Has(path string) bool {
	first := firstSegment(path)
	return slices.ContainsFunc(a.routes, func(r route) bool { return firstSegment(r.path) == first })
}

func firstSegment(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return first
}

// String returns the route as the documentation writes it: GET /v0/stacks/{id}.
func (r route) String() string { return r.method + " " + r.pattern() }

var parameter = regexp.MustCompile(`:(\w+)`)

// pattern returns the path with its parameters in braces.
func (r route) pattern() string {
	return strings.Replace(parameter.ReplaceAllString(r.path, "{$1}"), "*", "{path}", 1)
}

// health answers GET /healthz.
func (a *API) health(c *fiber.Ctx) error {
	if err := a.cfg.Ready(); err != nil {
		return err
	}
	return c.JSON(fiber.Map{"ok": true})
}

// noSuchRoute returns the text of an error that lists the routes, or names the one that
// was probably meant.
func (a *API) noSuchRoute(method, path string) string {
	if near := a.nearest(path); len(near) > 0 {
		return fmt.Sprintf("there is no %s %s; did you mean %s?", method, shorten(path), join(near, " or "))
	}
	return fmt.Sprintf("there is no %s %s; the API has %s", method, shorten(path), join(a.routes, ", "))
}

// nearest returns the routes that match a path without its first segments, which other
// services put before theirs (/api, /v1).
func (a *API) nearest(path string) []route {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	for skip := range min(3, len(segments)) {
		rest := strings.Join(segments[skip:], "/")
		for _, candidate := range []string{"/v0/" + rest, "/" + rest} {
			near := slices.DeleteFunc(slices.Clone(a.routes), func(r route) bool {
				return !fiber.RoutePatternMatch(candidate, r.path, fiber.Config{CaseSensitive: true})
			})
			if len(near) > 0 {
				return near
			}
		}
	}
	return nil
}

// join lists items in a sentence.
func join[T fmt.Stringer](items []T, sep string) string {
	texts := make([]string, len(items))
	for i, item := range items {
		texts[i] = item.String()
	}
	return strings.Join(texts, sep)
}

// shorten limits how much of the request an error repeats.
func shorten(s string) string {
	const most = 120
	if len(s) <= most {
		return strings.ToValidUTF8(s, "?")
	}
	return strings.ToValidUTF8(s[:most], "?") + "…"
}
