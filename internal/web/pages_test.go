package web

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/account"
	"github.com/berth-host/berth/internal/docs"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

func TestPages_AllHaveTheSameProtection(t *testing.T) {
	e := newEnv(t)
	b := e.signedUp(ana)
	id := e.owned(b, "guestbook")
	_, code := e.stack("other")
	for path, status := range map[string]int{
		"/claim": 200, "/claim/" + code: 200, "/claim/CLM-0000-0000-0000": 404, "/signin": 303, "/dashboard": 200,
		"/dashboard/account": 200, "/dashboard/account/delete": 200, "/dashboard/stacks/" + id: 200, "/dashboard/stacks/" + id + "/delete": 200,
		"/dashboard/stacks/" + id + "/claimed": 200, "/dashboard/stacks/stk_000000000000": 404, "/nothing": 404, "/signout": 405, "/": 303,
	} {
		r := b.get(path)
		require.Equal(t, status, r.status, path)
		require.Equal(t, policy, r.header.Get("Content-Security-Policy"), path)
		require.Equal(t, "no-referrer", r.header.Get("Referrer-Policy"), path)
		require.Equal(t, "no-store", r.header.Get("Cache-Control"), path)
		require.Equal(t, "nosniff", r.header.Get("X-Content-Type-Options"), path)
		if status != 303 {
			require.Equal(t, "text/html; charset=utf-8", r.header.Get("Content-Type"), path)
		}
	}
	for _, path := range []string{"/", "/signin", "/signup", "/claim"} {
		require.Equal(t, 200, e.visitor().get(path).status, path)
	}
	for _, forbidden := range []string{"unsafe", "*", "http:", "data:"} {
		require.NotContains(t, policy, forbidden)
	}
}

func TestAssets_MayBeKeptUntilTheyChange(t *testing.T) {
	e := newEnv(t)
	b := e.visitor()
	for _, file := range []string{"style.css", "script.js", "favicon.svg"} {
		r := b.get(assetURL(file))
		require.Equal(t, 200, r.status)
		require.Contains(t, r.header.Get("Cache-Control"), "immutable")
		require.NotEmpty(t, r.body)
	}
	require.Equal(t, "text/css; charset=utf-8", b.get(assetURL("style.css")).header.Get("Content-Type"))
	require.Equal(t, 404, b.get("/assets/style.css").status)
	require.Equal(t, 200, b.get("/favicon.ico").status)
}

func TestForms_NeedTheTokenOfTheirBrowser(t *testing.T) {
	e := newEnv(t)
	b, other := e.signedUp(ana), e.visitor()
	id := e.owned(b, "guestbook")
	before := e.visitor()
	unsigned := before.token()
	for _, token := range []string{"", "x", other.token(), unsigned} {
		r := b.postAs(token, "/dashboard/stacks/"+id+"/delete", nil)
		require.Equal(t, 403, r.status)
		require.Contains(t, r.body, "This form is out of date")
	}
	require.Equal(t, 403, e.visitor().postAs("", "/signin", url.Values{"email": {ana}, "password": {password}}).status, "without any cookie")
	require.Equal(t, 200, b.get("/dashboard/stacks/"+id).status)

	// A token from before signing in is worth nothing after it.
	require.Equal(t, 303, before.postAs(unsigned, "/signin", url.Values{"email": {ana}, "password": {password}}).status)
	require.Equal(t, 403, before.postAs(unsigned, "/dashboard/account/key", nil).status)
	require.Equal(t, 303, before.post("/dashboard/account/key", nil).status)
}

func (b *visitor) cookie(name string) *http.Cookie {
	b.t.Helper()
	for _, c := range b.set {
		if c.Name == name {
			return c
		}
	}
	b.t.Fatalf("no cookie %s among %v", name, b.set)
	return nil
}

func TestSession_IsForThisHostAlone(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change []func(*Config)
		cookie string
		secure bool
	}{
		{"http", nil, "berth_session", false},
		{"https", []func(*Config){secure}, "__Host-berth_session", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newEnv(t, tt.change...).signedUp(ana)
			c := b.cookie(tt.cookie)
			require.True(t, c.HttpOnly)
			require.Equal(t, tt.secure, c.Secure)
			require.Equal(t, http.SameSiteLaxMode, c.SameSite)
			require.Equal(t, "/", c.Path)
			require.Empty(t, c.Domain)
			require.InDelta(t, (30 * 24 * time.Hour).Seconds(), c.MaxAge, 60)
			require.Equal(t, 200, b.get("/dashboard").status)
		})
	}
}

func TestSession_IsANewOneAtEachSignIn(t *testing.T) {
	e := newEnv(t)
	b := e.signedUp(ana)
	first := b.cookies[sessionCookie]
	require.Equal(t, 303, b.post("/signin", url.Values{"email": {ana}, "password": {password}}).status)
	second := b.cookies[sessionCookie]
	require.NotEqual(t, first, second)
	old := e.visitor()
	old.cookies[sessionCookie] = first
	require.Equal(t, "/signin?next=%2Fdashboard", old.get("/dashboard").header.Get("Location"), "the first one is over")
	require.Equal(t, 303, b.post("/signout", nil).status)
	require.NotContains(t, b.cookies, sessionCookie)
	old.cookies[sessionCookie] = second
	require.Equal(t, 303, old.get("/dashboard").status)
}

// A cookie of this name that another site managed to set does not choose the account.
func TestSession_ThatComesTwiceCountsAsNone(t *testing.T) {
	e := newEnv(t)
	b, other := e.signedUp(ana), e.signedUp(bob)
	req := b.request(http.MethodGet, "/dashboard", nil)
	req.AddCookie(&http.Cookie{Name: sessionCookie, Value: other.cookies[sessionCookie]})
	require.Equal(t, 303, b.do(req).status)
}

func TestSignIn_GoesOnOnlyToPagesOfTheDashboard(t *testing.T) {
	for next, want := range map[string]string{
		"":                            "/dashboard",
		"/dashboard":                  "/dashboard",
		"/dashboard/account":          "/dashboard/account",
		"/dashboardx":                 "/dashboard",
		"//evil.example":              "/dashboard",
		"https://evil.example":        "/dashboard",
		"/\\evil.example":             "/dashboard",
		"/dashboard/\\evil":           "/dashboard",
		"/dashboard/\r\nSet-Cookie:x": "/dashboard",
		"javascript:alert(1)":         "/dashboard",
		"/signout":                    "/dashboard",
	} {
		require.Equal(t, want, safeNext(next), next)
	}
}

func TestAPIKey_IsShownOnceAndByNobodyElse(t *testing.T) {
	e := newEnv(t)
	b := e.signedUp(ana)
	notice := b.cookies[noticeCookie]
	require.NotContains(t, notice, "as_live_")
	require.Contains(t, b.get("/dashboard").body, "as_live_")
	require.NotContains(t, b.get("/dashboard").body, "as_live_")
	forged := e.signedUp(bob)
	forged.cookies[noticeCookie] = "bm90IHNlYWxlZA"
	require.NotContains(t, forged.get("/dashboard").body, "as_live_")
}

func TestAccount_IsDeletedWithItsStacks(t *testing.T) {
	e := newEnv(t)
	b, elsewhere, other := e.signedUp(ana), e.visitor(), e.signedUp(bob)
	id, kept := e.owned(b, "guestbook"), e.owned(other, "shop")
	require.Equal(t, 303, elsewhere.post("/signin", url.Values{"email": {ana}, "password": {password}}).status)
	page := b.get("/dashboard/account/delete").body
	require.Contains(t, page, "guestbook")
	require.NotContains(t, page, "shop")

	const path = "/dashboard/account/delete"
	right := url.Values{"email": {ana}, "current": {password}, "stacks": {stacksIn(t, page)}}
	require.Equal(t, 403, b.postAs(other.token(), path, right).status, "a form of another browser's")
	require.Equal(t, 303, e.visitor().post(path, right).status, "nobody is signed in")
	r := b.post(path, url.Values{"email": {bob}, "current": {password}})
	require.Equal(t, 422, r.status)
	require.Contains(t, r.body, "Nothing was deleted: type "+ana)
	r = b.post(path, url.Values{"email": {ana}, "current": {"not the password"}})
	require.Equal(t, 403, r.status)
	require.Contains(t, r.body, "The current password is wrong.")
	require.Equal(t, 200, b.get("/dashboard/stacks/"+id).status)

	r = b.post(path, right)
	require.Equal(t, 303, r.status, r.body)
	require.Equal(t, "/", r.header.Get("Location"))
	require.Empty(t, b.cookies[sessionCookie])
	require.Contains(t, b.get("/").body, "Your account was deleted, and 1 stack with it.")
	require.Equal(t, 303, elsewhere.get("/dashboard").status)
	require.Equal(t, 401, b.post("/signin", url.Values{"email": {ana}, "password": {password}}).status)
	require.Equal(t, 200, other.get("/dashboard/stacks/"+kept).status)
}

// stacksIn returns the digest of the stacks in the form that deletes an account.
func stacksIn(t *testing.T, page string) string {
	t.Helper()
	found := regexp.MustCompile(`name="stacks" value="([^"]+)"`).FindStringSubmatch(page)
	require.NotNil(t, found, page)
	return found[1]
}

func TestAccount_IsNotDeletedWithAStackThatThePageDidNotShow(t *testing.T) {
	e := newEnv(t)
	b := e.signedUp(ana)
	e.owned(b, "guestbook")
	const path = "/dashboard/account/delete"
	form := url.Values{"email": {ana}, "current": {password}, "stacks": {stacksIn(t, b.get(path).body)}}
	later := e.owned(b, "shop")

	r := b.post(path, form)
	require.Equal(t, 409, r.status, r.body)
	require.Contains(t, r.body, "Nothing was deleted: the account&#39;s stacks changed in the meantime")
	require.Contains(t, r.body, later)
	require.Equal(t, 200, b.get("/dashboard/stacks/"+later).status)

	form.Set("stacks", stacksIn(t, r.body))
	require.Equal(t, 303, b.post(path, form).status)
	require.Contains(t, b.get("/").body, "Your account was deleted, and 2 stacks with it.")
}

func TestPages_EscapeWhatComesFromOutside(t *testing.T) {
	e := newEnv(t)
	b := e.signedUp(ana)
	id := e.owned(b, "<script>alert(1)</script>")
	e.change(id, func(s *stack.Stack) ([]stack.Event, error) {
		s.DeployError = "<img src=x onerror=alert(2)>"
		return nil, nil
	})
	for _, path := range []string{"/dashboard", "/dashboard/stacks/" + id, "/dashboard/stacks/" + id + "/delete", "/claim/%3Cscript%3Ealert(3)%3C%2Fscript%3E"} {
		body := b.get(path).body
		require.Contains(t, body, "&lt;", path)
		require.NotContains(t, body, "<script>alert", path)
		require.NotContains(t, body, "<img src=x", path)
	}
}

func TestPages_ShowLogsAndErrorsWithoutTheirColours(t *testing.T) {
	e := newEnv(t)
	b := e.signedUp(ana)
	id := e.owned(b, "guestbook")
	e.change(id, func(s *stack.Stack) ([]stack.Event, error) {
		return s.Deploy(s.Generation.Services, stack.Now())
	})
	e.change(id, func(s *stack.Stack) ([]stack.Event, error) {
		return s.DeployFailed("\x1b[1;31mError:\x1b[m no key", stack.Now())
	})
	body := b.get("/dashboard/stacks/" + id + "?service=api&kind=run").body
	require.Contains(t, body, ">from the run log of api\n<")
	require.Equal(t, 2, strings.Count(body, ">Error: no key<"), "of the stack and of its event")
	require.NotContains(t, body, "x1b")
	require.NotContains(t, body, "[3")
}

func TestStackPage_ShowsWhatADeployIsDoingAndItsProblem(t *testing.T) {
	e := newEnv(t)
	b := e.signedUp(ana)
	id := e.owned(b, "guestbook")
	e.change(id, func(s *stack.Stack) ([]stack.Event, error) {
		return s.Deploy(s.Generation.Services, stack.Now())
	})
	for phase, want := range map[stack.Phase]string{
		stack.PhaseQueued: "it waits for its turn", stack.PhaseInstall: "installing api", stack.PhaseBuild: "building api",
		stack.PhaseRelease: "running the release command of api", stack.PhaseStart: "starting api", stack.PhaseHealth: "waiting until api is healthy",
	} {
		e.change(id, func(s *stack.Stack) ([]stack.Event, error) {
			return nil, s.Progressed(s.Attempt, stack.Progress{Phase: phase, Service: "api", Problem: "it listens <elsewhere>"})
		})
		body := b.get("/dashboard/stacks/" + id).body
		require.Contains(t, body, "generation 2 is being built: "+want)
		require.Contains(t, body, "Service api is not healthy yet.")
		require.Contains(t, body, ">it listens &lt;elsewhere&gt;<")
		require.Contains(t, b.get("/dashboard").body, want)
	}
	e.change(id, func(s *stack.Stack) ([]stack.Event, error) { return s.DeployFailed("no", stack.Now()) })
	body := b.get("/dashboard/stacks/" + id).body
	require.NotContains(t, body, "not healthy yet")
	require.NotContains(t, body, "is being built")
}

// broken are accounts whose every look for a session fails.
type broken struct{ Accounts }

func (broken) Session(context.Context, string) (store.Session, bool, error) {
	panic("secret of the inside")
}

func TestPages_HideWhatBroke(t *testing.T) {
	e := newEnv(t, func(c *Config) { c.Accounts = broken{c.Accounts} })
	b := e.visitor()
	b.cookies[sessionCookie] = "x"
	req := b.request(http.MethodGet, "/claim/CLM-0000-0000-0000", nil)
	req.Header.Set("X-Request-Id", "req-7")
	r := b.do(req)
	require.Equal(t, 500, r.status)
	require.Contains(t, r.body, "req-7")
	require.NotContains(t, r.body, "secret")
	require.Contains(t, e.logged.String(), "secret of the inside")
	require.NotContains(t, e.logged.String(), "CLM-0000", "a claim code is not for the log")
}

func TestPages_RefuseWhatNoFormSends(t *testing.T) {
	e := newEnv(t)
	rest, end := io.Pipe() // nothing more is sent, so that the server cannot close while something is
	defer end.Close()
	req := e.visitor().request(http.MethodPost, "/signin", io.MultiReader(strings.NewReader(strings.Repeat("x", 8<<10)), rest))
	req.ContentLength = maxBody + 1
	r := e.visitor().do(req)
	require.Equal(t, 413, r.status)
	require.Contains(t, r.body, "Too large")
}

// The claim page also shows a code that is about to end.
func TestClaimPage_OfAnExpiredStack(t *testing.T) {
	e := newEnv(t)
	id, code := e.stack("guestbook")
	e.change(id, func(s *stack.Stack) ([]stack.Event, error) {
		s.ExpiresAt = stack.Now()
		return s.Expire(e.urls, stack.Limits{Retention: 7 * 24 * time.Hour}, stack.Now())
	})
	b := e.visitor()
	body := b.get("/claim/" + code).body
	require.Contains(t, body, "kept with its data for another 6 days")
	r := b.post("/claim/"+code, url.Values{"email": {ana}, "password": {password}, "way": {"signup"}})
	require.Equal(t, "/dashboard/stacks/"+id+"/claimed", r.header.Get("Location"))
	first := b.get("/dashboard/stacks/" + id + "/claimed").body
	require.Contains(t, first, "Restoring guestbook")
	require.Contains(t, first, "as_live_")
	require.NotContains(t, first, "http-equiv", "the key is not reloaded away")
	require.Contains(t, b.get("/dashboard/stacks/"+id+"/claimed").body, `<noscript><meta http-equiv="refresh"`)
	e.change(id, func(s *stack.Stack) ([]stack.Event, error) { return s.Restored(e.urls) })
	last := b.get("/dashboard/stacks/" + id + "/claimed").body
	require.NotContains(t, last, "http-equiv")
	require.Contains(t, last, e.urls.All(&stack.Stack{ID: id, Generation: stack.Generation{Services: []stack.Service{{Spec: stack.Spec{Name: "web"}}}}})["web"])
}

func TestClaimedPage_OfARestoreThatFailed(t *testing.T) {
	e := newEnv(t)
	id, code := e.stack("guestbook")
	e.change(id, func(s *stack.Stack) ([]stack.Event, error) {
		s.ExpiresAt = stack.Now()
		return s.Expire(e.urls, stack.Limits{Retention: time.Hour}, stack.Now())
	})
	b := e.signedUp(ana)
	require.Equal(t, 303, b.post("/claim/"+code, nil).status)
	f := b.follow("/dashboard/stacks/" + id + "/claimed/stream")
	f.part("progress", "Restoring guestbook")
	e.change(id, func(s *stack.Stack) ([]stack.Event, error) {
		return s.RestoreFailed("service api: it exited with code 6")
	})
	f.part("progress", "service api: it exited with code 6")
	body := b.get("/dashboard/stacks/" + id + "/claimed").body
	require.Contains(t, body, "but it is not running")
	require.Contains(t, body, "a new deploy starts it again")
}

func TestWorthless_CodesAllHaveTheirWords(t *testing.T) {
	for _, state := range []account.CodeState{account.Malformed, account.Unknown, account.Used, account.Over} {
		require.NotEmpty(t, worthless[state].heading)
	}
}

func TestHas_KnowsThePagesPaths(t *testing.T) {
	for path, want := range map[string]bool{
		"/": true, "/claim": true, "/claim/CLM-1": true, "/dashboard/stacks/x": true, "/assets/style.css": true, "/signout": true,
		"/v0/stacks": false, "/healthz": false, "/v0/claim": false, "/claims": false, "": false,
	} {
		require.Equal(t, want, Has(path), path)
	}
}

func TestReference_SeparatesTheStatusesOfErrors(t *testing.T) {
	e := newEnv(t, func(c *Config) {
		c.Reference.Groups = []docs.Group{{Operations: []docs.Operation{{
			ID: "validate", Responses: []docs.Response{{Status: "200"}, {Status: "400", Schema: "Error"}, {Status: "413", Schema: "Error"}},
		}}}}
	})
	require.Contains(t, e.visitor().get("/docs").body, "Errors: 400, 413<")
}

func TestStackPage_ShowsWherePathsLead(t *testing.T) {
	e := newEnv(t)
	b := e.signedUp(ana)
	id := e.owned(b, "guestbook")
	e.change(id, func(s *stack.Stack) ([]stack.Event, error) {
		s.Generation.Services[0].Spec.Paths = map[string]stack.Path{"/<b>": {Service: "api"}, "/api": {Service: "api", Strip: true}}
		return nil, nil
	})
	for _, page := range []string{"/dashboard", "/dashboard/stacks/" + id} {
		body := b.get(page).body
		require.Contains(t, body, `<code>/&lt;b&gt;</code> <span class="soft">leads to api</span>`)
		require.Contains(t, body, `<code>/api</code> <span class="soft">leads to api, without /api</span>`)
	}
}
