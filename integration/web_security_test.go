package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// script runs a script on the page and returns its text.
func (b *Tab) script(text string) string {
	b.t.Helper()
	result, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](text, chromedp.EvalAwaitPromise))
	require.NoError(b.t, err)
	return result
}

// A stack's page shares the site with the dashboard, so SameSite cookies come
// along with what it sends. It can still do nothing there, nor learn or set the
// session.
func TestWeb_APageOfATenantCannotAct(t *testing.T) {
	t.Parallel()
	h := start(t, easy)
	b := h.browser(t)
	key := b.signUp(ana)
	st := h.deployAs(t, key, guestbook(t), manifest(guestbookManifest))
	b.open(st.url("api", "/request"))
	require.NotContains(t, b.text(), "berth_", "the service sees the session")
	require.Empty(t, b.script(`document.cookie`))

	for _, path := range []string{"/signout", "/dashboard/account/key", stackPath(st) + "/delete"} {
		b.open(st.url("web", "/"))
		b.loads(chromedp.Steps(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(
			`{ const form = document.createElement('form'); form.method = 'post'; form.action = %q; document.body.append(form); form.submit() }`, h.base()+path))))
		b.is(http.StatusForbidden, path)
	}
	for _, domain := range []string{"", "; domain=localhost"} {
		b.open(st.url("web", "/"))
		b.script(fmt.Sprintf(`document.cookie = 'berth_session=ses_of_somebody_else; path=/%s', ''`, domain))
	}
	b.open("/dashboard")
	b.is(http.StatusOK, "/dashboard")
	b.sees("guestbook")
	require.Equal(t, http.StatusOK, h.getAs(t, key, "/v0/stacks/"+st.ID).status)

	frame := h.deployAs(t, key, page(`<iframe src="`+h.base()+`/dashboard/account"></iframe>`), nil)
	b.open(frame.url("web", "/"))
	eventually(t, "the browser refuses to frame the dashboard", func() error {
		if said := b.said.String(); !strings.Contains(said, "frame-ancestors 'none'") {
			return fmt.Errorf("its console says:\n%s", said)
		}
		return nil
	})
}

// Over plain http to a name that browsers do not trust they send neither
// Sec-Fetch-Site nor, from pages without a referrer, an origin.
func TestWeb_WorksOverPlainHTTPUnderAName(t *testing.T) {
	t.Parallel()
	h := start(t, easy, func(h *Host) {
		h.env["BERTH_BASE_URL"] = fmt.Sprintf("http://%s:%d", plainHost, h.port)
	})
	st := h.live(t, page("x"), nil)
	b := h.browser(t)
	require.True(t, strings.HasPrefix(st.ClaimURL, "http://"+plainHost))
	b.open(claimPath(st))
	b.fill("new-email", ana, "new-password", password)
	b.press("Sign up and claim")
	b.is(http.StatusOK, stackPath(st)+"/claimed")
	b.sees("is yours")
	b.menu("Sign out")
	b.sees("You are signed out.")
	b.signIn(ana, password)
	b.is(http.StatusOK, "/dashboard")
}

func TestWeb_ErrorsArePagesForPeopleAndJSONForPrograms(t *testing.T) {
	t.Parallel()
	h := start(t, easy)
	b := h.browser(t)
	b.open("/no/such/page")
	b.is(http.StatusNotFound, "/no/such/page")
	b.sees("Not found")
	require.NotEmpty(t, h.get(t, "/no/such/page").refused(t, http.StatusNotFound))
	require.NotEmpty(t, h.get(t, "/v0/nothing", "Accept", "text/html").refused(t, http.StatusNotFound))

	b.open("/signin")
	b.do(chromedp.SetAttributeValue(chromedp.CSS("main input[name=token]"), "value", "forged"))
	b.fill("email", ana, "password", password)
	b.press("Sign in")
	b.is(http.StatusForbidden, "/signin")
	b.sees("This form is out of date")
	b.look("form-out-of-date")
}
