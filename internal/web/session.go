package web

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/account"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// The cookies, without the prefix that they get under https.
const (
	sessionCookie = "berth_session"
	visitorCookie = "berth_visitor" // what forms are tied to before anyone is signed in
	noticeCookie  = "berth_notice"
)

// cookieName is the name that a cookie has here. With the prefix a browser takes
// the cookie only from this very host, over https and for all its paths.
func (w *Web) cookieName(name string) string {
	if w.https {
		return "__Host-" + name
	}
	return name
}

// cookie reads a cookie. One that comes twice is not ours alone to set, and
// counts as none.
func (w *Web) cookie(c *fiber.Ctx, name string) string {
	name = w.cookieName(name)
	value, found := "", 0
	for _, line := range c.Request().Header.PeekAll(fiber.HeaderCookie) {
		for part := range strings.SplitSeq(string(line), ";") {
			if key, text, ok := strings.Cut(strings.TrimSpace(part), "="); ok && key == name {
				value = text
				found++
			}
		}
	}
	if found != 1 {
		return ""
	}
	return value
}

// setCookie sets a cookie for this host alone, out of reach of scripts. Without
// an age it ends with the browser; with a negative one, at once.
func (w *Web) setCookie(c *fiber.Ctx, name, value string, age time.Duration) {
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

// session is who is signed in; the zero Session for nobody.
func (w *Web) session(c *fiber.Ctx) (store.Session, error) {
	if known, ok := c.Context().UserValue(sessionKey{}).(store.Session); ok {
		return known, nil
	}
	var s store.Session
	if token := w.cookie(c, sessionCookie); token != "" {
		found, ok, err := w.Accounts.Session(w.base, token)
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

// signedIn tells whether anyone is.
func signedIn(s store.Session) bool { return s.Account.ID != "" }

// enter signs a browser in with a session of its own; the one that it had is
// over.
func (w *Web) enter(c *fiber.Ctx, e account.Entry) error {
	if old := w.cookie(c, sessionCookie); old != "" {
		if err := w.Accounts.SignOut(w.base, old); err != nil {
			return fmt.Errorf("end the session before: %w", err)
		}
	}
	w.setCookie(c, sessionCookie, e.Token, time.Until(e.Expires))
	w.setCookie(c, visitorCookie, "", -1)
	return nil
}

// owner lets a signed-in person through, and sends everyone else to sign in.
func (w *Web) owner(next func(*fiber.Ctx, store.Session) error) fiber.Handler {
	return func(c *fiber.Ctx) error {
		s, err := w.session(c)
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

// owned is the stack of the path, if the person owns it.
func (w *Web) owned(c *fiber.Ctx, s store.Session) (*stack.Stack, error) {
	id := c.Params("id")
	st, err := w.Accounts.Stack(w.base, s.Account.ID, id)
	var known *stack.Error
	if errors.As(err, &known) && known.Kind == stack.NotFound {
		return nil, fiber.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("read stack %s: %w", id, err)
	}
	return st, nil
}

// safeNext is where to go after signing in: a page of the dashboard, whatever
// else was asked for.
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

// visitor is who sends the request, for limits and the list of sessions.
func (w *Web) visitor(c *fiber.Ctx) account.Visitor {
	return account.Visitor{IP: c.Get(w.ClientHeader), UserAgent: c.Get(fiber.HeaderUserAgent)}
}
