package web

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/a-h/templ"
	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/account"
	"github.com/berth-host/berth/internal/docs"
	"github.com/berth-host/berth/internal/store"
)

// home answers GET /.
func (w *pages) home(c *fiber.Ctx, s store.Session) error {
	if signedIn(s) {
		return c.Redirect("/dashboard", fiber.StatusSeeOther)
	}
	p := w.newPage(c, s, "Hosting for what agents build", "", "")
	for _, link := range docs.Links {
		c.Append(fiber.HeaderLink, link)
	}
	c.Vary(fiber.HeaderAccept)
	base := strings.TrimSuffix(w.cfg.URLs.Base.String(), "/")
	return w.render(c, fiber.StatusOK, homePage(p, base, deployCommand(base, "")))
}

// signInPage answers GET /signin.
func (w *pages) signInPage(c *fiber.Ctx, s store.Session) error {
	return w.openEntry(c, s, "Sign in", signInPage)
}

// signUpPage answers GET /signup.
func (w *pages) signUpPage(c *fiber.Ctx, s store.Session) error {
	return w.openEntry(c, s, "Create account", signUpPage)
}

// signIn answers POST /signin.
func (w *pages) signIn(c *fiber.Ctx) error {
	e, err := w.cfg.Accounts.SignIn(w.server.Context(), w.visitor(c), c.FormValue("email"), c.FormValue("password"))
	if err != nil {
		return w.refuseEntry(c, err, "Sign in", signInPage)
	}
	return w.enterDashboard(c, e)
}

// signUp answers POST /signup.
func (w *pages) signUp(c *fiber.Ctx) error {
	e, err := w.cfg.Accounts.SignUp(w.server.Context(), w.visitor(c), c.FormValue("email"), c.FormValue("password"))
	if err != nil {
		return w.refuseEntry(c, err, "Create account", signUpPage)
	}
	return w.enterDashboard(c, e)
}

// enterDashboard signs a browser in and redirects to the page that it asked for.
func (w *pages) enterDashboard(c *fiber.Ctx, e account.Entry) error {
	if err := w.startSession(c, e); err != nil {
		return err
	}
	if e.APIKey != "" {
		w.leaveNotice(c, notice{Text: w.welcome(), Key: e.APIKey})
	}
	return c.Redirect(safeNext(c.FormValue("next")), fiber.StatusSeeOther)
}

// welcome returns what somebody with a new account reads first.
func (w *pages) welcome() string {
	text := "Welcome to Berth. Your account is ready."
	if w.cfg.Accounts.Mails() {
		text += " To confirm your address, open the link in the mail to it; if none comes, the account page sends it again."
	}
	return text
}

// signOut answers POST /signout.
func (w *pages) signOut(c *fiber.Ctx) error {
	if token := w.cookie(c, sessionCookie); token != "" {
		if err := w.cfg.Accounts.SignOut(w.server.Context(), token); err != nil {
			return fmt.Errorf("sign out: %w", err)
		}
	}
	w.setCookie(c, sessionCookie, "", -1)
	return w.redirectWithNotice(c, "/signin", "You are signed out.")
}

// accountPage answers GET /dashboard/account.
func (w *pages) accountPage(c *fiber.Ctx, s store.Session) error {
	return w.showAccount(c, s, fiber.StatusOK, "")
}

// rotateKey answers POST /dashboard/account/key.
func (w *pages) rotateKey(c *fiber.Ctx, s store.Session) error {
	key, err := w.cfg.Accounts.RotateKey(w.server.Context(), s.Account.ID)
	if err != nil {
		return fmt.Errorf("rotate the API key: %w", err)
	}
	w.leaveNotice(c, notice{Text: "The API key was rotated. The old one no longer works.", Key: key})
	return c.Redirect("/dashboard/account", fiber.StatusSeeOther)
}

// changePassword answers POST /dashboard/account/password.
func (w *pages) changePassword(c *fiber.Ctx, s store.Session) error {
	err := w.cfg.Accounts.ChangePassword(w.server.Context(), w.visitor(c), s, c.FormValue("current"), c.FormValue("next"))
	if text, code, ok := refusal(c, err); ok {
		return w.showAccount(c, s, code, text)
	}
	if err != nil {
		return fmt.Errorf("change the password: %w", err)
	}
	return w.redirectWithNotice(c, "/dashboard/account", "The password was changed, and all other sessions were signed out.")
}

// deleteAccountPage answers GET /dashboard/account/delete.
func (w *pages) deleteAccountPage(c *fiber.Ctx, s store.Session) error {
	return w.showDeleteAccount(c, s, fiber.StatusOK, "")
}

// deleteAccount answers POST /dashboard/account/delete.
func (w *pages) deleteAccount(c *fiber.Ctx, s store.Session) error {
	stacks, err := w.cfg.Accounts.Delete(w.server.Context(), w.visitor(c), s, c.FormValue("email"), c.FormValue("current"), c.FormValue("stacks"))
	if text, code, ok := refusal(c, err); ok {
		return w.showDeleteAccount(c, s, code, text)
	}
	if err != nil {
		return fmt.Errorf("delete the account: %w", err)
	}
	w.setCookie(c, sessionCookie, "", -1)
	text := "Your account was deleted."
	if stacks > 0 {
		text = "Your account was deleted, and " + count(stacks, "stack") + " with it."
	}
	return w.redirectWithNotice(c, "/", text)
}

// showDeleteAccount shows what is deleted with the account, and, after a refused
// attempt, the reason.
func (w *pages) showDeleteAccount(c *fiber.Ctx, s store.Session, code int, fault string) error {
	stacks, err := w.cfg.Accounts.Stacks(w.server.Context(), s.Account.ID)
	if err != nil {
		return fmt.Errorf("read the stacks: %w", err)
	}
	p := w.newPage(c, s, "Delete account", "middle", "account")
	return w.render(c, code, deleteAccountPage(p, w.showStacks(stacks), account.Digest(stacks), fault))
}

// endSession answers POST /dashboard/account/sessions/{session}.
func (w *pages) endSession(c *fiber.Ctx, s store.Session) error {
	id, err := strconv.ParseInt(c.Params("session"), 10, 64)
	if err != nil {
		return fiber.ErrNotFound
	}
	if err := w.cfg.Accounts.EndSession(w.server.Context(), s.Account.ID, id); err != nil {
		return fmt.Errorf("end a session: %w", err)
	}
	return w.redirectWithNotice(c, "/dashboard/account", "The session was signed out.")
}

// endOtherSessions answers POST /dashboard/account/sessions.
func (w *pages) endOtherSessions(c *fiber.Ctx, s store.Session) error {
	if err := w.cfg.Accounts.EndOtherSessions(w.server.Context(), s); err != nil {
		return fmt.Errorf("end the other sessions: %w", err)
	}
	return w.redirectWithNotice(c, "/dashboard/account", "All other sessions were signed out.")
}

// showAccount shows the account's settings, and, after a refused change of the password,
// the reason.
func (w *pages) showAccount(c *fiber.Ctx, s store.Session, code int, fault string) error {
	sessions, err := w.cfg.Accounts.Sessions(w.server.Context(), s.Account.ID)
	if err != nil {
		return fmt.Errorf("read the sessions: %w", err)
	}
	quotas, err := w.showQuotas(s.Account.ID)
	if err != nil {
		return err
	}
	p := w.newPage(c, s, "Account", "middle", "account")
	return w.render(c, code, accountPage(p, s.Account, account.MaskedKey(s.Account), quotas, sessions, s.ID, fault))
}

// quotaView is a quota of an account, in words.
type quotaView struct{ Name, Used, Allowed string }

// showQuotas returns the quotas that the operator has set.
func (w *pages) showQuotas(accountID string) (views []quotaView, err error) {
	q := w.cfg.Quota
	if q.Stacks == 0 && q.Memory == 0 && q.Disk == 0 {
		return nil, nil
	}
	has, err := w.cfg.Store.Holdings(w.server.Context(), accountID)
	if err != nil {
		return nil, fmt.Errorf("read what the account has: %w", err)
	}
	size := func(bytes int64) string { return inBytes(float64(bytes)) }
	used := q.Sum(has)
	if q.Stacks > 0 {
		views = append(views, quotaView{"Stacks", strconv.Itoa(used.Stacks), strconv.Itoa(q.Stacks)})
	}
	if q.Memory > 0 {
		views = append(views, quotaView{"Memory", size(used.Memory), size(q.Memory)})
	}
	if q.Disk > 0 {
		views = append(views, quotaView{"Disk space", size(used.Disk), size(q.Disk)})
	}
	return views, nil
}

// entryPage is the page of sign-in or sign-up.
type entryPage func(page, entryForm) templ.Component

// openEntry shows an empty form, or redirects a person who is already signed in.
func (w *pages) openEntry(c *fiber.Ctx, s store.Session, title string, content entryPage) error {
	f := entryForm{Next: safeNext(c.Query("next"))}
	if signedIn(s) {
		return c.Redirect(f.Next, fiber.StatusSeeOther)
	}
	return w.showEntry(c, fiber.StatusOK, title, f, content)
}

// showEntry shows a form as it was filled in.
func (w *pages) showEntry(c *fiber.Ctx, code int, title string, f entryForm, content entryPage) error {
	s, err := w.session(c)
	if err != nil {
		return err
	}
	return w.render(c, code, content(w.newPage(c, s, title, "narrow", "signin"), f))
}

// refuseEntry shows the form again with the reason of the refusal.
func (w *pages) refuseEntry(c *fiber.Ctx, err error, title string, content entryPage) error {
	text, code, ok := refusal(c, err)
	if !ok {
		return err
	}
	f := entryForm{Email: c.FormValue("email"), Next: safeNext(c.FormValue("next")), Fault: text}
	return w.showEntry(c, code, title, f, content)
}

// deployCommand returns a command that deploys the folder it is run in.
func deployCommand(base, header string) string {
	return fmt.Sprintf("tar -cz . | curl -sS %s-F source=@- '%s/v0/stacks?wait=true'", header, base)
}
