package integration

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// signIn signs in to an account that is there.
func (b *Tab) signIn(email, word string) {
	b.t.Helper()
	b.open("/signin")
	b.fill("email", email, "password", word)
	b.press("Sign in")
}

func TestWeb_SignsUpOutAndIn(t *testing.T) {
	t.Parallel()
	h := start(t, easy)
	b := h.browser(t)
	b.open("/")
	b.is(http.StatusOK, "/")
	b.look("home")
	b.open("/dashboard/account")
	b.is(http.StatusOK, "/signin")
	b.look("signin")
	b.press("Create an account")
	b.is(http.StatusOK, "/signup")
	b.look("signup")
	b.fill("email", ana, "password", "сорок два") // nine characters
	b.press("Create account")
	b.is(http.StatusOK, "/dashboard")
	require.Equal(t, http.StatusOK, h.getAs(t, b.shownKey(), "/v0/me").status)
	b.open("/dashboard")
	b.seesNot("as_live_")
	b.open("/")
	b.is(http.StatusOK, "/dashboard")
	b.menu("Sign out")
	b.is(http.StatusOK, "/signin")
	b.sees("You are signed out.")

	b.signIn(ana, "not the password")
	b.is(http.StatusUnauthorized, "/signin")
	wrong := b.text()
	b.look("signin-refused")
	b.signIn(bob, "not the password")
	b.is(http.StatusUnauthorized, "/signin")
	require.Equal(t, wrong, b.text(), "an unknown email and a wrong password look the same")
	b.open("/dashboard/account")
	b.fill("email", "ANA@example.com", "password", "сорок два")
	b.press("Sign in")
	b.is(http.StatusOK, "/dashboard/account")

	other := h.browser(t)
	other.open("/signup")
	other.fill("email", "Ana@Example.COM", "password", password)
	other.press("Create account")
	other.is(http.StatusConflict, "/signup")
	other.sees("already has an account")
	other.look("signup-refused")
}

func TestWeb_RotatesTheAPIKey(t *testing.T) {
	t.Parallel()
	h := start(t, easy)
	b := h.browser(t)
	old := b.signUp(ana)
	b.menu("Account")
	b.is(http.StatusOK, "/dashboard/account")
	b.sees("as_live_••••" + old[len(old)-4:])
	b.seesNot(old)
	b.look("account")
	b.unfold("Rotate key…")
	b.press("Rotate key")
	b.is(http.StatusOK, "/dashboard/account")
	key := b.shownKey()
	b.look("account-new-key")
	require.NotEqual(t, old, key)
	require.Equal(t, http.StatusOK, h.getAs(t, key, "/v0/me").status)
	h.getAs(t, old, "/v0/me").refused(t, http.StatusUnauthorized)
	b.open("/dashboard/account")
	b.seesNot(key)
	b.sees("as_live_••••" + key[len(key)-4:])
}

func TestWeb_ChangesThePasswordAndEndsSessions(t *testing.T) {
	t.Parallel()
	h := start(t, easy)
	b, other := h.browser(t), h.browser(t)
	b.signUp(ana)
	other.signIn(ana, password)
	b.open("/dashboard/account")
	b.sees("Chrome on Linux", "current", "127.0.0.1")
	b.look("account-sessions")
	b.press("Sign out Chrome on Linux")
	b.sees("The session was signed out.")
	other.open("/dashboard")
	other.is(http.StatusOK, "/signin")
	other.signIn(ana, password)
	b.open("/dashboard/account")
	b.press("Sign out all other sessions")
	b.sees("All other sessions were signed out.")
	other.open("/dashboard")
	other.is(http.StatusOK, "/signin")
	other.signIn(ana, password)

	b.open("/dashboard/account")
	b.fill("current", "not the password", "next", "battery staple")
	b.press("Change password")
	b.is(http.StatusForbidden, "/dashboard/account/password")
	b.sees("The current password is wrong.")
	b.look("account-password-refused")
	b.fill("current", password, "next", "battery staple")
	b.press("Change password")
	b.is(http.StatusOK, "/dashboard/account")
	b.sees("The password was changed")
	other.open("/dashboard")
	other.is(http.StatusOK, "/signin")
	other.signIn(ana, password)
	other.is(http.StatusUnauthorized, "/signin")
	other.signIn(ana, "battery staple")
	other.is(http.StatusOK, "/dashboard")
	h.restart(t)
	other.open("/dashboard/account")
	other.is(http.StatusOK, "/dashboard/account")
}

func TestWeb_TheEleventhFormInAMinuteWaits(t *testing.T) {
	t.Parallel()
	withRedis(t, []int64{429, 429, 429}, func() (statuses []int64, servers []*Host) {
		h := start(t)
		return h.sendsTooManyForms(t), []*Host{h}
	})
}

// sendsTooManyForms has a browser send forms after ten others, up to the first that is taken, and
// returns the statuses.
func (h *Host) sendsTooManyForms(t *testing.T) (statuses []int64) {
	t.Helper()
	st := h.live(t, page("x"), nil)
	b, visitor := h.browser(t), h.visitor(t)
	b.open("/signup")
	for range 10 { // not in the browser, which takes longer
		require.Equal(t, http.StatusUnauthorized, visitor.signIn(t, ana, "not the password").status)
		h.holdForms(t)
	}
	taken := func(button string) bool {
		b.press(button)
		statuses = append(statuses, b.status)
		return b.status != http.StatusTooManyRequests
	}
	b.fill("email", ana, "password", password)
	if taken("Create account") {
		return statuses
	}
	b.is(http.StatusTooManyRequests, "/signup")
	b.open(claimPath(st))
	b.is(http.StatusOK, claimPath(st))
	b.fill("new-email", ana, "new-password", password)
	if taken("Sign up and claim") {
		return statuses
	}
	b.is(http.StatusTooManyRequests, claimPath(st))
	b.sees("Claim "+st.Name, "Too many requests; slow down and retry in a minute.")
	require.Equal(t, "60", b.header("Retry-After"))
	b.open("/signin")
	b.fill("email", ana, "password", "not the password")
	if taken("Sign in") {
		return statuses
	}
	b.is(http.StatusTooManyRequests, "/signin")
	b.sees("Too many requests; slow down and retry in a minute.")
	require.Equal(t, "60", b.header("Retry-After"))
	b.look("signin-too-many")
	require.False(t, h.show(t, st, "").Claimed)
	return statuses
}

func TestWeb_ShowsQuotasAndAStackThatIsTooLarge(t *testing.T) {
	t.Parallel()
	h := start(t, easy, with("BERTH_ACCOUNT_STACKS", "5"), with("BERTH_SERVICE_MEMORY", "256MB"), with("BERTH_ACCOUNT_MEMORY", "2GB"),
		with("BERTH_ACCOUNT_DISK", "1GB"), with("BERTH_STACK_DISK", "20MB"))
	b := h.browser(t)
	key := b.signUp(ana)
	st := h.deployAs(t, key, program(t), manifest(programManifest))
	r := h.runs(t, st, key, "head -c 21000000 /dev/urandom >$DATA_DIR/big", "1m")
	require.Equal(t, http.StatusOK, r.status, r.body)
	h.takes(t, st, 21e6, 22e6)
	b.open("/dashboard/account")
	b.sees("1 of 5")
	b.sees("256 MB of 2 GB")
	b.sees("21 MB of 1 GB")
	b.look("account-quotas")
	b.open(stackPath(st))
	b.sees("This stack takes too much of the disk.")
	b.look("stack-too-large")
	b.press("Build fresh")
	b.sees("so it takes no deploy")
}
