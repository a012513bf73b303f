package integration

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/mail/mailtest"
)

// mailing starts a server that sends mails, and the mailbox that they come to.
func mailing(t *testing.T) (*Host, *mailtest.Mailbox) {
	t.Helper()
	box := mailtest.Start(t, "secret")
	h := start(t, easy, with("BERTH_SMTP_URL", box.URL), with("BERTH_MAIL_FROM", "Berth <berth@host.example>"))
	return h, box
}

// awaitMail returns the next mail, and checks that it is the only one.
func awaitMail(t *testing.T, box *mailtest.Mailbox) mailtest.Mail {
	t.Helper()
	var mails []mailtest.Mail
	eventually(t, "a mail comes", func() error {
		if mails = append(mails, box.Take()...); len(mails) == 0 {
			return errors.New("none did")
		}
		return nil
	})
	require.Len(t, mails, 1)
	return mails[0]
}

// linkIn returns the path of the link in a mail that leads to this server.
func (h *Host) linkIn(t *testing.T, m mailtest.Mail) string {
	t.Helper()
	found := regexp.MustCompile(regexp.QuoteMeta(h.base()) + `(/sign\S+)`).FindStringSubmatch(m.Body)
	require.NotNil(t, found, m.Body)
	return found[1]
}

func TestMail_ConfirmsAnAddressAndLetsAForgottenPasswordBeChosenAnew(t *testing.T) {
	t.Parallel()
	h, box := mailing(t)
	b := h.browser(t)
	b.signUp(ana)
	b.sees("open the link in the mail to it")
	m := awaitMail(t, box)
	require.Equal(t, ana, m.To)
	require.Equal(t, "Confirm your address", m.Header.Get("Subject"))
	b.open("/dashboard/account")
	b.sees("Your address is not confirmed", "Write to me when")
	b.look("account-mail")
	link := h.linkIn(t, m)
	scanner := h.browser(t)
	scanner.open(link)
	scanner.sees("Sign in and confirm", "Choose a new password")
	scanner.look("confirm")
	b.open("/dashboard/account")
	b.sees("Your address is not confirmed")
	b.open(link)
	b.press("Confirm address")
	b.is(http.StatusOK, "/dashboard")
	b.sees("Your address is confirmed.")
	b.open("/dashboard/account")
	b.seesNot("not confirmed")
	b.open(link)
	b.is(http.StatusNotFound, link)
	b.look("link-broken")

	other := h.browser(t)
	other.open("/signin")
	other.press("Forgot your password?")
	other.look("forgot")
	other.fill("email", "nobody@example.com")
	other.press("Send link")
	unknown := other.text()
	other.open("/signin/forgot")
	other.fill("email", ana)
	other.press("Send link")
	require.Equal(t, unknown, strings.ReplaceAll(other.text(), ana, "nobody@example.com"))
	other.look("forgot-sent")
	m = awaitMail(t, box)
	require.Equal(t, "Choose a new password", m.Header.Get("Subject"))
	_ = h.linkIn(t, m)
	// The link leads to the base URL, whatever the request says of its host.
	forged := h.visitor(t).submit(t, "/signin/forgot", "/signin/forgot", Fields{"email": ana},
		"X-Forwarded-Host", "evil.example.com", "Forwarded", "host=evil.example.com", "X-Forwarded-Proto", "https")
	require.Less(t, forged.status, 400, forged.body)
	m = awaitMail(t, box)
	require.NotContains(t, m.Body, "evil.example.com")
	link = h.linkIn(t, m)
	other.open(link)
	other.sees(ana)
	other.look("reset")
	other.fill("password", "another password")
	other.press("Change password")
	other.is(http.StatusOK, "/signin")
	b.open("/dashboard")
	b.is(http.StatusOK, "/signin")
	other.signIn(ana, "another password")
	other.is(http.StatusOK, "/dashboard")
	other.open(link)
	other.is(http.StatusNotFound, link)
}

func TestMail_FinishesAClaimThatIsForOneAddress(t *testing.T) {
	t.Parallel()
	h, box := mailing(t)
	st := h.live(t, page("x"), Fields{"claim_email": ana})
	b := h.browser(t)
	b.open(claimPath(st))
	b.fill("new-email", ana, "new-password", password)
	b.press("Sign up and claim")
	b.is(http.StatusOK, claimPath(st))
	b.sees("A letter was sent to " + ana)
	key := b.shownKey()
	b.open(claimPath(st))
	b.look("claim-unconfirmed")
	m := awaitMail(t, box)
	require.Contains(t, m.Header.Get("Subject"), st.ID)
	require.False(t, h.show(t, st, "").Claimed)
	detail := h.claim(t, key, st.ClaimCode, "").refused(t, http.StatusForbidden)
	require.Contains(t, detail, "open the link in it")
	m = awaitMail(t, box)
	b.open(h.linkIn(t, m))
	b.sees("Claim " + st.Name)
	b.look("confirm-claim")
	b.press("Confirm and claim")
	b.is(http.StatusOK, "/dashboard/stacks/"+st.ID+"/claimed")
	require.True(t, h.show(t, st, "").Claimed)
	m = awaitMail(t, box)
	require.Equal(t, "Stack "+st.ID+" was claimed", m.Header.Get("Subject"))
}

// TestMail_GivesNothingToWhoeverTookAnAddress has eve sign up with ana's address, and ana get in by mail.
func TestMail_GivesNothingToWhoeverTookAnAddress(t *testing.T) {
	t.Parallel()
	h, box := mailing(t)
	st := h.live(t, page("x"), Fields{"claim_email": ana})
	eve, owner := h.visitor(t), h.visitor(t)
	require.Equal(t, http.StatusSeeOther, eve.submit(t, claimPath(st), claimPath(st), Fields{"way": "signup", "email": ana, "password": password}).status)
	key := regexp.MustCompile(`as_live_[0-9A-Za-z]+`).FindString(eve.open(t, claimPath(st)).body)
	require.Equal(t, http.StatusOK, h.getAs(t, key, "/v0/me").status)
	letter := h.linkIn(t, awaitMail(t, box))
	require.Equal(t, http.StatusUnauthorized, owner.submit(t, letter, letter, nil).status, "the mail alone does not confirm what eve has")
	require.False(t, h.show(t, st, "").Claimed)

	require.Equal(t, http.StatusOK, owner.submit(t, "/signin/forgot", "/signin/forgot", Fields{"email": ana}).status)
	link := h.linkIn(t, awaitMail(t, box))
	require.Equal(t, http.StatusSeeOther, owner.submit(t, link, link, Fields{"password": personsPassword}).status)
	h.getAs(t, key, "/v0/me").refused(t, http.StatusUnauthorized)
	require.Equal(t, http.StatusSeeOther, eve.open(t, "/dashboard").status, "eve is signed out")
	require.Equal(t, http.StatusSeeOther, owner.submit(t, letter, letter, nil).status)
	require.True(t, h.show(t, st, "").Claimed)
	h.getAs(t, key, "/v0/stacks/"+st.ID).refused(t, http.StatusUnauthorized)
	require.Equal(t, http.StatusSeeOther, owner.signIn(t, ana, personsPassword).status)
	require.Equal(t, http.StatusOK, owner.open(t, "/dashboard/stacks/"+st.ID).status)
}

// An account from a time without mail has never confirmed its address, and does so on its next
// claim of a stack that is for one address.
func TestMail_ConfirmsAnAccountOfBeforeOnItsNextClaim(t *testing.T) {
	t.Parallel()
	h := start(t, easy)
	b := h.browser(t)
	key := b.signUp(ana)
	require.Equal(t, http.StatusOK, h.claim(t, key, h.live(t, page("x"), Fields{"claim_email": ana}).ClaimCode, "").status)
	box := mailtest.Start(t, "secret")
	h.stop(t)
	with("BERTH_SMTP_URL", box.URL)(h)
	with("BERTH_MAIL_FROM", "Berth <berth@host.example>")(h)
	h.run(t)
	require.Equal(t, http.StatusOK, h.claim(t, key, h.live(t, page("x"), nil).ClaimCode, "").status)
	require.Contains(t, awaitMail(t, box).Header.Get("Subject"), "was claimed", "a claim that is for nobody needs no address")
	for n := range 2 {
		st := h.live(t, page("x"), Fields{"claim_email": ana})
		if n == 0 {
			h.claim(t, key, st.ClaimCode, "").refused(t, http.StatusForbidden)
			b.open(h.linkIn(t, awaitMail(t, box)))
			b.press("Confirm, claim and revoke the agent's access")
			b.is(http.StatusOK, "/dashboard/stacks/"+st.ID+"/claimed")
			b.sees("The agent's access was revoked.")
			h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID).refused(t, http.StatusForbidden)
			st.ManageToken = key
			defer h.remove(t, st)
		} else {
			require.Equal(t, http.StatusOK, h.claim(t, key, st.ClaimCode, "").status)
		}
		require.True(t, h.show(t, st, "").Claimed)
	}
}

func TestMail_TellsTheOwnerOfAFailureUnlessItIsTurnedOff(t *testing.T) {
	t.Parallel()
	h, box := mailing(t)
	b := h.browser(t)
	key := b.signUp(ana)
	awaitMail(t, box)
	fail := func() *Stack {
		fails := manifest("name: shop\nservices: [{name: web, runtime: node, start: exit 3}]")
		return h.mustFail(t, h.post(t, archive(t, Tree{"server.js": ""}), fails, "", "Authorization", "Bearer "+key).stack(t))
	}
	st := fail()
	m := awaitMail(t, box)
	require.Equal(t, ana, m.To)
	require.Equal(t, "Stack "+st.ID+" failed", m.Header.Get("Subject"))
	require.Contains(t, m.Body, `"shop"`)
	require.Contains(t, m.Body, h.base()+"/dashboard/stacks/"+st.ID)
	require.NotContains(t, h.log.String(), "secret")

	notices := chromedp.CSS(`input[name="notices"]`)
	for _, turned := range []string{"You get no more mails about your stacks.", "You get mails about your stacks."} {
		b.open("/dashboard/account")
		b.do(chromedp.Click(notices))
		b.press("Save")
		b.sees(turned)
		st = fail()
	}
	require.Contains(t, awaitMail(t, box).Body, st.ID, "only of the last")
}

func TestMail_HasLimits(t *testing.T) {
	t.Parallel()
	h, box := mailing(t)
	key, v := h.accountCreate(t, ana), h.visitor(t)
	ask := func(email string) Reply {
		return v.submit(t, "/signin/forgot", "/signin/forgot", Fields{"email": email})
	}
	first := ask(ana)
	for range 9 {
		require.Equal(t, first.status, ask(ana).status)
	}
	require.Contains(t, ask("bob@example.com").body, "Your network has asked for too many mails")
	fails := manifest("services: [{name: web, runtime: node, start: exit 3}]")
	failed := h.post(t, archive(t, Tree{"server.js": ""}), fails, "", "Authorization", "Bearer "+key).stack(t)
	h.mustFail(t, failed)
	var subjects []string
	eventually(t, "the mails come", func() error { // side by side
		for _, m := range box.Take() {
			subjects = append(subjects, m.Header.Get("Subject"))
		}
		if len(subjects) < 4 {
			return fmt.Errorf("there are %q", subjects)
		}
		return nil
	})
	slices.Sort(subjects)
	require.Equal(t, "Choose a new password, Choose a new password, Choose a new password, Stack "+failed.ID+" failed", strings.Join(subjects, ", "))
}

func TestMail_ServerIsNotContactedAtTheStart(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	h := start(t, with("BERTH_SMTP_URL", "smtp://"+listener.Addr().String()), with("BERTH_MAIL_FROM", "berth@host.example"))
	h.restart(t)
	require.NoError(t, listener.(*net.TCPListener).SetDeadline(time.Now()))
	_, err = listener.Accept()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}
