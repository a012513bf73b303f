package web

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/gofiber/fiber/v2"
)

// tokenField is the hidden field of every form.
const tokenField = "token"

// formToken is the token of the forms on a page. It is tied to the session, or
// for a visitor to a cookie that is set with the page.
func (w *Web) formToken(c *fiber.Ctx) string {
	tie := w.tie(c)
	if tie == "" {
		tie = rand.Text()
		w.setCookie(c, visitorCookie, tie, 0)
		c.Context().SetUserValue(visitorCookie, tie)
	}
	return w.Key.FormToken(tie)
}

// tie is the cookie that the browser's forms are tied to.
func (w *Web) tie(c *fiber.Ctx) string {
	if session := w.cookie(c, sessionCookie); session != "" {
		return session
	}
	if fresh, ok := c.Context().UserValue(visitorCookie).(string); ok {
		return fresh
	}
	return w.cookie(c, visitorCookie)
}

// errForged is the answer to a form that was not on a page of this browser's.
var errForged = fiber.NewError(fiber.StatusForbidden, "forged")

// form lets a form through that was on a page which this browser was given.
func (w *Web) form(next fiber.Handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		tie := w.tie(c)
		want := w.Key.FormToken(tie)
		if tie == "" || subtle.ConstantTimeCompare([]byte(c.FormValue(tokenField)), []byte(want)) != 1 {
			return errForged
		}
		return next(c)
	}
}

// notice is what the page after a form tells, once.
type notice struct {
	Text  string `json:"text,omitempty"`
	Fault bool   `json:"fault,omitempty"` // it tells of something that did not work
	Key   string `json:"key,omitempty"`   // a new API key
}

// role tells a screen reader how urgent the notice is.
func (n notice) role() string {
	if n.Fault {
		return "alert"
	}
	return "status"
}

// noticeAge is how long a notice waits for the page that tells it.
const noticeAge = 5 * time.Minute

// tell leaves a notice for the next page. It travels in a cookie that only this
// server can read.
func (w *Web) tell(c *fiber.Ctx, n notice) {
	text, err := json.Marshal(n)
	if err != nil {
		panic(err) // strings always encode
	}
	w.setCookie(c, noticeCookie, base64.RawURLEncoding.EncodeToString(w.sealer.Seal(text, "notice", "")), noticeAge)
}

// told takes the notice that waits for this page.
func (w *Web) told(c *fiber.Ctx) notice {
	value := w.cookie(c, noticeCookie)
	if value == "" {
		return notice{}
	}
	w.setCookie(c, noticeCookie, "", -1)
	var n notice
	sealed, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil {
		return notice{}
	}
	if text, err := w.sealer.Open(sealed, "notice", ""); err != nil || json.Unmarshal(text, &n) != nil {
		return notice{}
	}
	return n
}

// done leaves a notice and goes on to a page.
func (w *Web) done(c *fiber.Ctx, to, text string) error {
	w.tell(c, notice{Text: text})
	return c.Redirect(to, fiber.StatusSeeOther)
}
