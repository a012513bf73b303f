package web

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/account"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// The names of the cookies, without the prefix that they get under https.
const (
	sessionCookie = "berth_session"
	visitorCookie = "berth_visitor" // what forms are tied to before anyone is signed in
	noticeCookie  = "berth_notice"
)

// cookieName returns the name of a cookie on this server. With the prefix a browser
// accepts the cookie only from this very host, over https and for all its paths.
func (w *pages) cookieName(name string) string {
	if w.https {
		return "__Host-" + name
	}
	return name
}

// cookie returns the value of a cookie. A cookie that comes twice was not set by this
// server alone, and counts as missing.
func (w *pages) cookie(c *fiber.Ctx, name string) string {
	name = w.cookieName(name)
	var values []string
	for _, line := range c.Request().Header.PeekAll(fiber.HeaderCookie) {
		for part := range strings.SplitSeq(string(line), ";") {
			if key, text, ok := strings.Cut(strings.TrimSpace(part), "="); ok && key == name {
				values = append(values, text)
			}
		}
	}
	if len(values) != 1 {
		return ""
	}
	return values[0]
}

// setCookie sets a cookie for this host alone, hidden from scripts. Without an age it
// ends with the browser; with a negative one, at once.
func (w *pages) setCookie(c *fiber.Ctx, name, value string, age time.Duration) {
	cookie := &fiber.Cookie{
		Name:     w.cookieName(name),
		Value:    value,
		Path:     "/",
		HTTPOnly: true,
		Secure:   w.https,
		SameSite: fiber.CookieSameSiteLaxMode,
	}
	switch {
	case age < 0:
		cookie.Expires = time.Unix(1, 0)
	case age > 0:
		cookie.MaxAge = int(age.Seconds())
	}
	c.Cookie(cookie)
}

type sessionKey struct{}

// session returns the session of the signed-in person, the zero Session for a visitor.
func (w *pages) session(c *fiber.Ctx) (store.Session, error) {
	if known, ok := c.Context().UserValue(sessionKey{}).(store.Session); ok {
		return known, nil
	}
	var s store.Session
	if token := w.cookie(c, sessionCookie); token != "" {
		found, ok, err := w.cfg.Accounts.Session(w.server.Context(), token)
		if err != nil {
			return store.Session{}, fmt.Errorf("look up the session: %w", err)
		}
		if ok {
			s = found
		}
	}
	c.Context().SetUserValue(sessionKey{}, s)
	return s, nil
}

// signedIn reports whether a person is signed in.
func signedIn(s store.Session) bool { return s.Account.ID != "" }

// startSession signs a browser in with a new session and ends the one that it had.
func (w *pages) startSession(c *fiber.Ctx, e account.Entry) error {
	if old := w.cookie(c, sessionCookie); old != "" {
		if err := w.cfg.Accounts.SignOut(w.server.Context(), old); err != nil {
			return fmt.Errorf("end the session before: %w", err)
		}
	}
	w.setCookie(c, sessionCookie, e.Token, time.Until(e.Expires))
	w.setCookie(c, visitorCookie, "", -1)
	return nil
}

// anyone passes on the session of the signed-in person, the zero Session for a visitor and
// for a person whose account is disabled, who may look at what visitors do.
func (w *pages) anyone(next func(*fiber.Ctx, store.Session) error) fiber.Handler {
	return func(c *fiber.Ctx) error {
		s, err := w.session(c)
		if err != nil {
			return err
		}
		if s.Account.CheckEnabled() != nil {
			s = store.Session{}
		}
		return next(c, s)
	}
}

// enabledSession is session, but Forbidden if the account is disabled.
func (w *pages) enabledSession(c *fiber.Ctx) (store.Session, error) {
	s, err := w.session(c)
	if err == nil {
		err = s.Account.CheckEnabled()
	}
	return s, err
}

// signedInOnly lets a signed-in person through and sends everyone else to the sign-in
// page.
func (w *pages) signedInOnly(next func(*fiber.Ctx, store.Session) error) fiber.Handler {
	return func(c *fiber.Ctx) error {
		s, err := w.enabledSession(c)
		if err != nil {
			return err
		}
		if signedIn(s) {
			return next(c, s)
		}
		to := "/signin"
		if c.Method() == fiber.MethodGet && !strings.HasSuffix(c.Path(), "/stream") {
			to += "?next=" + url.QueryEscape(c.Path())
		}
		return c.Redirect(to, fiber.StatusSeeOther)
	}
}

// ownerOnly is signedInOnly for a page of the stack in the path: a person who does not
// own it is told that there is no such page.
func (w *pages) ownerOnly(next func(c *fiber.Ctx, s store.Session, st *stack.Stack) error) fiber.Handler {
	return w.signedInOnly(func(c *fiber.Ctx, s store.Session) error {
		id := c.Params("id")
		st, err := w.cfg.Accounts.Stack(w.server.Context(), s.Account.ID, id)
		if stack.KindOf(err) == stack.NotFound {
			return fiber.ErrNotFound
		}
		if err != nil {
			return fmt.Errorf("read stack %s: %w", id, err)
		}
		return next(c, s, st)
	})
}

// safeNext returns where to go after signing in: next if it is a page of the dashboard,
// else the dashboard.
func safeNext(next string) string {
	const home = "/dashboard"
	u, err := url.Parse(next)
	if err != nil || u.Host != "" || u.Scheme != "" || strings.ContainsAny(next, "\\\r\n") {
		return home
	}
	if next == home || strings.HasPrefix(next, home+"/") {
		return next
	}
	return home
}

// visitor returns the sender of the request, for limits and the list of sessions.
func (w *pages) visitor(c *fiber.Ctx) account.Visitor {
	return account.Visitor{IP: c.Get(w.cfg.CallerHeader), UserAgent: c.Get(fiber.HeaderUserAgent)}
}
