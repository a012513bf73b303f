package web

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/gofiber/fiber/v2"
)

// tokenField is the name of the hidden field of every form.
const tokenField = "token"

// formToken returns the token for the forms on a page. It is bound to the session, or
// for a visitor to a cookie that is set with the page.
func (w *pages) formToken(c *fiber.Ctx) string {
	tie := w.tie(c)
	if tie == "" {
		tie = rand.Text()
		w.setCookie(c, visitorCookie, tie, 0)
		c.Context().SetUserValue(visitorCookie, tie)
	}
	return w.cfg.Key.FormToken(tie)
}

// tie returns the cookie that the browser's forms are bound to.
func (w *pages) tie(c *fiber.Ctx) string {
	if session := w.cookie(c, sessionCookie); session != "" {
		return session
	}
	if fresh, ok := c.Context().UserValue(visitorCookie).(string); ok {
		return fresh
	}
	return w.cookie(c, visitorCookie)
}

// errForged is the answer to a form that did not come from a page of this browser.
var errForged = fiber.NewError(fiber.StatusForbidden, "forged")

// checkForm lets a form through if it came from a page that this browser got.
func (w *pages) checkForm(next fiber.Handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		tie := w.tie(c)
		want := w.cfg.Key.FormToken(tie)
		if tie == "" || subtle.ConstantTimeCompare([]byte(c.FormValue(tokenField)), []byte(want)) != 1 {
			return errForged
		}
		return next(c)
	}
}

// notice is a message that the page after a form shows once.
type notice struct {
	Text  string `json:"text,omitempty"`
	Fault bool   `json:"fault,omitempty"` // something did not work
	Key   string `json:"key,omitempty"`   // a new API key
}

// role tells screen readers how urgent the notice is.
func (n notice) role() string {
	if n.Fault {
		return "alert"
	}
	return "status"
}

// noticeAge is how long a notice waits for the page that shows it.
const noticeAge = 5 * time.Minute

// leaveNotice leaves a notice for the next page, in a cookie that only this server can
// read.
func (w *pages) leaveNotice(c *fiber.Ctx, n notice) {
	text, err := json.Marshal(n)
	if err != nil {
		panic(err) // strings always encode
	}
	w.setCookie(c, noticeCookie, base64.RawURLEncoding.EncodeToString(w.sealer.Seal(text, "notice", "")), noticeAge)
}

// takeNotice returns and clears the notice for this page.
func (w *pages) takeNotice(c *fiber.Ctx) notice {
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

// redirectWithNotice leaves a notice and redirects to a page.
func (w *pages) redirectWithNotice(c *fiber.Ctx, to, text string) error {
	w.leaveNotice(c, notice{Text: text})
	return c.Redirect(to, fiber.StatusSeeOther)
}
