package web

import (
	"fmt"
	"net/url"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/account"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// forgotPage answers GET /signin/forgot.
func (w *pages) forgotPage(c *fiber.Ctx, s store.Session) error {
	if !w.cfg.Accounts.Mails() {
		return fiber.ErrNotFound
	}
	return w.render(c, fiber.StatusOK, forgotPage(w.newPage(c, s, "Forgot your password?", "narrow", "signin"), entryForm{}))
}

// forgot answers POST /signin/forgot.
func (w *pages) forgot(c *fiber.Ctx, s store.Session) error {
	email := c.FormValue("email")
	err := w.cfg.Accounts.Forgot(w.server.Context(), w.visitor(c), email)
	if text, code, ok := refusal(c, err); ok {
		p := w.newPage(c, s, "Forgot your password?", "narrow", "signin")
		return w.render(c, code, forgotPage(p, entryForm{Email: email, Fault: text}))
	}
	if err != nil {
		return fmt.Errorf("ask for a new password: %w", err)
	}
	return w.render(c, fiber.StatusOK, forgotSentPage(w.newPage(c, s, "Look at your mail", "narrow", "signin"), email))
}

// resetPage answers GET /signin/reset/{link}.
func (w *pages) resetPage(c *fiber.Ctx, s store.Session) error {
	return w.showReset(c, s, fiber.StatusOK, "")
}

// showReset shows the form for a new password, and, after a refused attempt, the reason.
func (w *pages) showReset(c *fiber.Ctx, s store.Session, code int, problem string) error {
	link, err := w.cfg.Accounts.Linked(w.server.Context(), store.MailReset, c.Params("link"))
	if text, code, ok := refusal(c, err); ok {
		p := w.newPage(c, s, "This link does not work", "narrow", "signin")
		return w.render(c, code, brokenLinkPage(p, text, "/signin/forgot", "Ask for another link"))
	}
	if err != nil {
		return fmt.Errorf("look up a link: %w", err)
	}
	p := w.newPage(c, s, "Choose a new password", "narrow", "signin")
	return w.render(c, code, resetPage(p, c.Params("link"), link.Account, problem))
}

// reset answers POST /signin/reset/{link}.
func (w *pages) reset(c *fiber.Ctx, s store.Session) error {
	keyReplaced, err := w.cfg.Accounts.ResetPassword(w.server.Context(), w.visitor(c), c.Params("link"), c.FormValue("password"))
	if text, code, ok := refusal(c, err); ok {
		return w.showReset(c, s, code, text)
	}
	if err != nil {
		return fmt.Errorf("choose a new password: %w", err)
	}
	text := "The password was changed, and all sessions were signed out. Sign in with the new one."
	if keyReplaced {
		text += " The API key was replaced, too; for a new one, press “Rotate key” on the account page."
	}
	return w.redirectWithNotice(c, "/signin", text)
}

// confirmForm is what the page of a link that confirms an address shows.
type confirmForm struct {
	Link   string
	Email  string
	SignIn bool       // it asks for the password
	Stack  *stackView // what the mail was about; nil for none
	Fault  string     // why it was refused
}

// confirmPage answers GET /signup/confirm/{link}.
func (w *pages) confirmPage(c *fiber.Ctx, s store.Session) error {
	return w.showConfirm(c, s, fiber.StatusOK, "")
}

// showConfirm shows the form that confirms an address, and, after a refused attempt, the reason.
func (w *pages) showConfirm(c *fiber.Ctx, s store.Session, code int, problem string) error {
	link, err := w.cfg.Accounts.Linked(w.server.Context(), store.MailConfirm, c.Params("link"))
	if text, code, ok := refusal(c, err); ok {
		p := w.newPage(c, s, "This link does not work", "narrow", "signin")
		return w.render(c, code, brokenLinkPage(p, text, "/dashboard/account", "Go to your account"))
	}
	if err != nil {
		return fmt.Errorf("look up a link: %w", err)
	}
	f := confirmForm{Link: c.Params("link"), Email: link.Account.Email, SignIn: account.NeedsPassword(link, s.Account), Fault: problem}
	if link.StackID != "" {
		st, err := w.cfg.Store.Get(w.server.Context(), link.StackID)
		if err != nil && stack.KindOf(err) != stack.NotFound {
			return err
		}
		if err == nil {
			v := w.showStack(st)
			f.Stack = &v
		}
	}
	return w.render(c, code, confirmPage(w.newPage(c, s, "Confirm your address", "narrow", "signin"), f))
}

// confirm answers POST /signup/confirm/{link}. It signs in only who gives the password.
func (w *pages) confirm(c *fiber.Ctx, s store.Session) error {
	e, st, err := w.cfg.Accounts.Confirm(w.server.Context(), w.visitor(c), s.Account, c.Params("link"), c.FormValue("password"))
	if text, code, ok := refusal(c, err); ok && e.Account.ID == "" {
		return w.showConfirm(c, s, code, text)
	}
	if e.Token != "" {
		if err := w.startSession(c, e); err != nil {
			return err
		}
		s.Account = e.Account
	}
	n, to := notice{Text: "Your address is confirmed."}, "/dashboard"
	if refused, _, ok := refusal(c, err); ok {
		w.leaveNotice(c, notice{Text: n.Text + " The stack was not claimed: " + refused, Fault: true})
		return c.Redirect(w.entryFor(s, e.Account, to), fiber.StatusSeeOther)
	}
	if err != nil {
		return fmt.Errorf("confirm an address: %w", err)
	}
	if st != nil {
		n.Text, to = "Your address is confirmed, and the stack is yours.", string(stackURL(st.ID, "claimed"))
		if c.FormValue("revoke") != "" {
			w.revokeClaimed(st, &n)
		}
	}
	w.leaveNotice(c, n)
	return c.Redirect(w.entryFor(s, e.Account, to), fiber.StatusSeeOther)
}

// entryFor returns where to go for a page of an account: to it, or to sign in first.
func (w *pages) entryFor(s store.Session, who store.Account, to string) string {
	if s.Account.ID == who.ID {
		return to
	}
	return "/signin?next=" + url.QueryEscape(to)
}

// sendConfirmation answers POST /dashboard/account/confirm.
func (w *pages) sendConfirmation(c *fiber.Ctx, s store.Session) error {
	err := w.cfg.Accounts.SendConfirmation(w.server.Context(), w.visitor(c), s.Account)
	if text, _, ok := refusal(c, err); ok {
		w.leaveNotice(c, notice{Text: text, Fault: true})
		return c.Redirect("/dashboard/account", fiber.StatusSeeOther)
	}
	if err != nil {
		return fmt.Errorf("send a confirmation: %w", err)
	}
	return w.redirectWithNotice(c, "/dashboard/account", "A letter was sent to "+s.Account.Email+". Open the link in it within 30 minutes.")
}

// setNotices answers POST /dashboard/account/mails.
func (w *pages) setNotices(c *fiber.Ctx, s store.Session) error {
	on := c.FormValue("notices") != ""
	if err := w.cfg.Accounts.SetNotices(w.server.Context(), s.Account.ID, on); err != nil {
		return fmt.Errorf("set what is mailed: %w", err)
	}
	text := "You get mails about your stacks."
	if !on {
		text = "You get no more mails about your stacks."
	}
	return w.redirectWithNotice(c, "/dashboard/account", text)
}
