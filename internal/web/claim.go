package web

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/account"
	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// claimEntry answers GET /claim.
func (w *pages) claimEntry(c *fiber.Ctx) error {
	return w.askForCode(c, fiber.StatusOK, "", "")
}

// claimTyped answers POST /claim: it redirects to the page of the typed code, and
// claims nothing.
func (w *pages) claimTyped(c *fiber.Ctx) error {
	typed := c.FormValue("code")
	code, ok := auth.NormalizeClaimCode(typed)
	if !ok {
		return w.askForCode(c, fiber.StatusUnprocessableEntity, typed, "This is not a claim code. One looks like CLM-XXXX-XXXX-XXXX: twelve letters and digits after CLM.")
	}
	return c.Redirect("/claim/"+code, fiber.StatusSeeOther)
}

func (w *pages) askForCode(c *fiber.Ctx, status int, typed, problem string) error {
	s, err := w.session(c)
	if err != nil {
		return err
	}
	return w.render(c, status, claimEntryPage(w.newPage(c, s, "Claim a stack", "narrow", "claim"), typed, problem))
}

// claimPage answers GET /claim/{code}.
func (w *pages) claimPage(c *fiber.Ctx, s store.Session) error {
	return w.showClaim(c, s, fiber.StatusOK, claimForm{})
}

// showClaim shows the visitor what the code of the path can claim. The status is for a
// code that can be claimed.
func (w *pages) showClaim(c *fiber.Ctx, s store.Session, status int, f claimForm) error {
	code, err := w.cfg.Accounts.LookUp(w.server.Context(), w.visitor(c), s.Account, typedCode(c))
	if err != nil {
		return err
	}
	if code.State == account.Used && code.Stack != nil {
		return w.redirectWithNotice(c, string(stackURL(code.Stack.ID)), "This stack is already yours.")
	}
	if code.State == account.Claimable {
		p := w.newPage(c, s, "Claim "+code.Stack.Name, "", "claim")
		return w.render(c, status, claimPage(p, code, w.showStack(code.Stack), f))
	}
	p := w.newPage(c, s, "Claim a stack", "narrow", "claim")
	if code.State == account.ForOther {
		return w.render(c, fiber.StatusForbidden, otherClaimPage(p))
	}
	why := worthless[code.State]
	return w.render(c, fiber.StatusNotFound, noClaimPage(p, why.heading, why.text, code.Typed))
}

// worthless says why a code of each state cannot be claimed.
var worthless = map[account.CodeState]failed{
	account.Malformed: {"This is not a claim code", "A claim code looks like CLM-XXXX-XXXX-XXXX: twelve letters and digits after CLM. A part of it may be missing."},
	account.Unknown:   {"No stack has this claim code", "A character may be wrong, or the stack was deleted. Ask your agent for the link that came with the deploy."},
	account.Used:      {"This claim code has already been used", "Its stack belongs to an account. If it is yours, sign in and find it among your stacks."},
	account.Over:      {"This stack is gone", "It expired, nobody claimed it in time, and its snapshot is being deleted. Ask your agent to deploy it again."},
}

// typedCode returns the code of the path, in any spelling.
func typedCode(c *fiber.Ctx) string {
	code := c.Params("code")
	if plain, err := url.PathUnescape(code); err == nil {
		return plain
	}
	return code
}

// claim answers POST /claim/{code}: it claims for the signed-in person, or signs a
// person in or up first.
func (w *pages) claim(c *fiber.Ctx, s store.Session) error {
	if _, err := w.enabledSession(c); err != nil {
		return err
	}
	var err error
	var e account.Entry
	var st *stack.Stack
	if signedIn(s) {
		st, err = w.cfg.Accounts.Claim(w.server.Context(), w.visitor(c), s.Account, typedCode(c))
	} else {
		e, st, err = w.claimAsVisitor(c)
	}
	if e.Token != "" {
		if err := w.startSession(c, e); err != nil {
			return err
		}
	}
	if err != nil {
		return w.refuseClaim(c, s, e, err)
	}
	n := notice{Key: e.APIKey}
	if e.APIKey != "" {
		n.Text = w.welcome()
	}
	if c.FormValue("revoke") != "" {
		w.revokeClaimed(st, &n)
	}
	if n != (notice{}) {
		w.leaveNotice(c, n)
	}
	return c.Redirect(string(stackURL(st.ID, "claimed")), fiber.StatusSeeOther)
}

// revokeClaimed revokes the manage token of a stack that was just claimed, and says so in
// the notice. The claim holds whatever comes of it.
func (w *pages) revokeClaimed(st *stack.Stack, n *notice) {
	_, err := w.cfg.Store.Update(w.server.Context(), st.ID, (*stack.Stack).RevokeAgent)
	text := "The agent's access was revoked."
	if err != nil {
		w.cfg.Log.Error("agent's access not revoked with the claim", "stack", st.ID, "error", err)
		text, n.Fault = "The agent's access could not be revoked; do it on the stack's page.", true
	}
	n.Text = strings.TrimSpace(n.Text + " " + text)
}

func (w *pages) claimAsVisitor(c *fiber.Ctx) (account.Entry, *stack.Stack, error) {
	email, password := c.FormValue("email"), c.FormValue("password")
	if c.FormValue("way") == "signin" {
		return w.cfg.Accounts.SignInAndClaim(w.server.Context(), w.visitor(c), email, password, typedCode(c))
	}
	return w.cfg.Accounts.SignUpAndClaim(w.server.Context(), w.visitor(c), email, password, typedCode(c))
}

// refuseClaim shows the claim page again with the reason of a refusal. If the person
// was signed in all the same, or a mail was sent, it redirects to the page as they now see
// it.
func (w *pages) refuseClaim(c *fiber.Ctx, s store.Session, e account.Entry, err error) error {
	text, code, ok := refusal(c, err)
	if !ok {
		return fmt.Errorf("claim: %w", err)
	}
	if sent := errors.Is(err, account.ErrUnconfirmed); e.Token != "" || sent {
		if sent && c.FormValue("revoke") != "" {
			text += " The agent's access is not revoked yet; the link's page has a button for that, too."
		}
		w.leaveNotice(c, notice{Text: text, Fault: !sent, Key: e.APIKey})
		return c.Redirect("/claim/"+url.PathEscape(typedCode(c)), fiber.StatusSeeOther)
	}
	f := claimForm{Way: c.FormValue("way"), Email: c.FormValue("email"), Fault: text}
	if !signedIn(s) && f.Way != "signin" {
		f.Way = "signup"
	}
	return w.showClaim(c, s, code, f)
}

// claimedPage answers GET /dashboard/stacks/{id}/claimed: the way from a claim
// to the running stack.
func (w *pages) claimedPage(c *fiber.Ctx, s store.Session, st *stack.Stack) error {
	p := w.newPage(c, s, st.Name+" is yours", "middle", "stacks")
	if !st.Settled() {
		p.Stream = c.Path() + "/stream"
		p.Reload = p.Notice.Key == "" // a key is shown once, so the page stays until the person leaves it
	}
	return w.render(c, fiber.StatusOK, claimedPage(p, w.showStack(st)))
}

// claimedStream answers GET /dashboard/stacks/{id}/claimed/stream.
func (w *pages) claimedStream(c *fiber.Ctx, s store.Session, st *stack.Stack) error {
	return w.stream(c, s, feed{watch: st.ID, parts: func() ([]part, error) {
		now, err := w.cfg.Accounts.Stack(w.server.Context(), s.Account.ID, st.ID)
		if err != nil {
			return nil, err
		}
		return []part{{"progress", progress(w.showStack(now))}}, nil
	}})
}
