package integration

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The people of these tests, and the password that they all have.
const (
	ana      = "ana@example.com"
	bob      = "bob@example.com"
	password = "correct horse"
)

// easy lets a test fill in more forms in a minute than a person would.
func easy(h *Host) {
	with("BERTH_FORMS_PER_MINUTE", "1000")(h)
	with("BERTH_CLAIMS_PER_MINUTE", "1000")(h)
}

// guestbook is a program and a site, as guestbookManifest runs them.
func guestbook(t *testing.T) Tree {
	t.Helper()
	return program(t).plus(Tree{"site/index.html": "the site"})
}

const guestbookManifest = `name: guestbook
services:
  - {name: web, runtime: static, root: site}
  - {name: api, runtime: node, start: node server.js}`

// signUp makes an account in the browser and returns its API key.
func (b *Tab) signUp(email string) (key string) {
	b.t.Helper()
	b.open("/signup")
	b.fill("email", email, "password", password)
	b.press("Create account")
	b.is(http.StatusOK, "/dashboard")
	return b.shownKey()
}

// shownKey is the API key that the page shows this once.
func (b *Tab) shownKey() string {
	b.t.Helper()
	b.sees("Your API key", "as_live_")
	for word := range strings.FieldsSeq(b.text()) {
		if strings.HasPrefix(word, "as_live_") && !strings.Contains(word, "•") {
			return word
		}
	}
	b.t.Fatal("the page shows no API key")
	return ""
}

func claimPath(st *Stack) string { return "/claim/" + st.ClaimCode }

func TestWeb_ClaimsWithANewAccountInOneGo(t *testing.T) {
	t.Parallel()
	h := start(t, easy)
	st := h.live(t, guestbook(t), manifest(guestbookManifest))
	b := h.browser(t)
	b.open(strings.TrimPrefix(st.ClaimURL, h.base()))
	b.is(http.StatusOK, claimPath(st))
	b.sees("Claim guestbook", st.ClaimCode, st.URLs["web"], st.URLs["api"], "live")
	require.Regexp(t, "[45][0-9] minutes left", b.text())
	b.look("claim-live-signed-out")
	require.False(t, h.show(t, st, "").Claimed, "opening the link claims nothing")
	b.seesNot("Sign out")

	b.fill("new-email", ana, "new-password", password)
	b.press("Sign up and claim")
	b.is(http.StatusOK, "/dashboard/stacks/"+st.ID+"/claimed")
	b.sees("guestbook is yours", st.URLs["web"], "Welcome to Berth")
	b.look("claimed-live-new-account")
	key := b.shownKey()
	now := h.show(t, st, "")
	require.True(t, now.Claimed)
	require.Nil(t, now.ExpiresAt)
	require.Equal(t, map[string]any{"by": ana}, last(t, h.events(t, st), "stack.claimed").Data)
	require.Equal(t, "owner", h.getAs(t, key, "/v0/stacks/"+st.ID).json(t)["role"], "the key that was shown works")

	b.press(st.URLs["web"])
	require.Equal(t, "the site", strings.TrimSpace(b.text()), "the link leads to the service")
	b.open("/dashboard/stacks/" + st.ID + "/claimed")
	b.seesNot("as_live_", "Welcome")
	b.open(claimPath(st))
	b.is(http.StatusOK, "/dashboard/stacks/"+st.ID)
	b.sees("already yours")
}

func TestWeb_ClaimsSigningIn(t *testing.T) {
	t.Parallel()
	h := start(t, easy)
	st := h.live(t, guestbook(t), manifest(guestbookManifest))
	known := h.browser(t)
	known.signUp(ana)

	b := h.browser(t)
	b.open(claimPath(st))
	b.unfold("Have an account? Sign in")
	b.fill("email", ana, "password", "not the password")
	b.press("Sign in and claim")
	b.is(http.StatusUnauthorized, claimPath(st))
	b.sees("The email or the password is wrong.")
	b.look("claim-wrong-password")
	require.False(t, h.show(t, st, "").Claimed)
	b.fill("password", password)
	b.press("Sign in and claim")
	b.is(http.StatusOK, "/dashboard/stacks/"+st.ID+"/claimed")
	b.seesNot("Your API key")
	require.True(t, h.show(t, st, "").Claimed)
}

func TestWeb_ClaimsWithOneButtonWhenSignedIn(t *testing.T) {
	t.Parallel()
	h := start(t, easy)
	st := h.live(t, guestbook(t), manifest(guestbookManifest))
	b := h.browser(t)
	b.signUp(ana)
	b.menu("Claim")
	b.is(http.StatusOK, "/claim")
	b.look("claim-entry")
	b.fill("code", "hello")
	b.press("Continue")
	b.is(http.StatusUnprocessableEntity, "/claim")
	b.sees("This is not a claim code.")
	b.look("claim-entry-refused")
	b.fill("code", strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(st.ClaimCode, "CLM-"), "-", " ")))
	b.press("Continue")
	b.is(http.StatusOK, claimPath(st))
	b.sees("Claim guestbook", "You are signed in as "+ana)
	require.False(t, h.show(t, st, "").Claimed, "looking it up claims nothing")
	b.look("claim-live-signed-in")
	b.press("Claim guestbook")
	b.is(http.StatusOK, "/dashboard/stacks/"+st.ID+"/claimed")
	require.True(t, h.show(t, st, "").Claimed)
}

func TestWeb_TakesAnySpellingOfTheCode(t *testing.T) {
	t.Parallel()
	h := start(t, easy)
	st := h.live(t, page("x"), nil)
	bare := strings.ReplaceAll(strings.TrimPrefix(st.ClaimCode, "CLM-"), "-", "")
	b := h.browser(t)
	for _, spelling := range []string{bare, strings.ToLower(bare), strings.ToLower(st.ClaimCode), "clm" + bare, "%20" + st.ClaimCode + "%20"} {
		b.open("/claim/" + spelling)
		require.EqualValues(t, http.StatusOK, b.status, spelling)
		b.sees(st.ClaimCode, st.URLs["web"])
	}
	b.fill("new-email", ana, "new-password", password)
	b.press("Sign up and claim")
	b.sees("is yours")
}

func TestWeb_SaysPlainlyWhyACodeClaimsNothing(t *testing.T) {
	t.Parallel()
	h := start(t, easy)
	used := h.live(t, page("x"), nil)
	forBob := h.live(t, page("x"), Fields{"claim_email": bob, "name": "secret-plans"})
	a := h.browser(t)
	a.signUp(ana)
	a.open(claimPath(used))
	a.press("Claim stack")

	b := h.browser(t)
	b.open(claimPath(used))
	b.is(http.StatusNotFound, claimPath(used))
	b.sees("This claim code has already been used")
	b.seesNot(ana, used.URLs["web"])
	b.look("claim-used")
	b.open("/claim/CLM-0000-0000-0000")
	b.is(http.StatusNotFound, "/claim/CLM-0000-0000-0000")
	b.sees("No stack has this claim code")
	b.look("claim-unknown")
	b.open("/claim/hello")
	b.is(http.StatusNotFound, "/claim/hello")
	b.sees("This is not a claim code")

	b.open(claimPath(forBob))
	b.sees("Only the email address that the stack was created for")
	b.seesNot(bob)
	b.fill("new-email", "eve@example.com", "new-password", password)
	b.press("Sign up and claim")
	b.is(http.StatusForbidden, claimPath(forBob))
	b.sees("can only be claimed by the email address it was created for")
	b.seesNot(bob)
	b.look("claim-bound-refused")
	b.open("/signin")
	b.fill("email", "eve@example.com", "password", password)
	b.press("Sign in")
	b.is(http.StatusUnauthorized, "/signin")

	a.open(claimPath(forBob))
	a.is(http.StatusForbidden, claimPath(forBob))
	a.sees("This stack is for another email address", ana)
	a.seesNot(bob, "secret-plans")
	a.look("claim-bound-signed-in")
	a.press("Sign out")
	a.sees("You are signed out.")
	a.open(claimPath(forBob))
	a.fill("new-email", "Bob@Example.com", "new-password", password)
	a.press("Sign up and claim")
	a.sees("secret-plans is yours")
}

// startsOnASignal serves at once the first time, and from then on only after a signal.
const startsOnASignal = `const fs = require('fs'), began = process.env.DATA_DIR + '/began';
const serve = () => require('http').createServer((req, res) => res.end('here again')).listen(process.env.PORT);
if (fs.existsSync(began)) {
  process.on('SIGUSR2', serve);
  setInterval(() => {}, 1000);
  console.log('it waits');
} else {
  fs.writeFileSync(began, '');
  serve();
}`

func TestWeb_ShowsARestoreUntilItRuns(t *testing.T) {
	t.Parallel()
	for name, scripts := range map[string]bool{"with scripts": true, "without scripts": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := start(t, short, easy, with("BERTH_HEALTH_TIMEOUT", "5m"))
			st := h.live(t, Tree{"server.js": startsOnASignal}, manifest(`{name: guestbook, services: [{name: web, runtime: node, start: node server.js}]}`))
			h.expire(t, st)
			b := h.browser(t)
			if !scripts {
				b.withoutScripts()
			}
			b.open(claimPath(st))
			b.sees("Claim guestbook", "expired", "It is kept with its data for another 6 days")
			b.look("claim-expired-signed-out")
			b.fill("new-email", ana, "new-password", password)
			b.press("Sign up and claim")
			b.is(http.StatusOK, "/dashboard/stacks/"+st.ID+"/claimed")
			b.sees("Restoring guestbook", "restoring")
			b.look("claimed-restoring")
			if !scripts {
				// A key that is shown once is not reloaded away.
				b.sees("as_live_")
				b.open("/dashboard/stacks/" + st.ID + "/claimed")
				b.sees("Restoring guestbook")
			}
			h.logged(t, st, "service=web", "it waits")
			require.NoError(t, h.killProcess(t, st, "web", "SIGUSR2"))
			b.sees("guestbook is yours", "It is running, no longer has a time limit")
			b.look("claimed-restored")
			b.press(st.URLs["web"])
			require.Equal(t, "here again", strings.TrimSpace(b.text()))
		})
	}
}

// Guessing is slow; a link that is right can be opened as often as one likes.
func TestWeb_CodesCannotBeGuessedFast(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_CLAIMS_PER_MINUTE", "3"))
	st := h.live(t, page("x"), nil)
	b := h.browser(t)
	for range 6 {
		b.open(claimPath(st))
		b.is(http.StatusOK, claimPath(st))
	}
	for range 3 {
		b.open("/claim/CLM-0000-0000-0000")
		require.EqualValues(t, http.StatusNotFound, b.status)
	}
	b.open("/claim/CLM-0000-0000-0000")
	b.is(http.StatusTooManyRequests, "/claim/CLM-0000-0000-0000")
	b.sees("Too many requests; slow down and retry in a minute.")
	require.Equal(t, "60", b.header("Retry-After"))
	b.look("too-many")
}
