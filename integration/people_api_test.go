package integration

import (
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/events"
	"github.com/stretchr/testify/require"
)

// Person is somebody with a browser, as far as forms and cookies go.
type Person struct {
	h      *Host
	client *http.Client
	email  string
	key    string // API key; "" when it is not known
}

const personsPassword = "correct horse battery"

// visitor is somebody who is not signed in.
func (h *Host) visitor(t *testing.T) *Person {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	client := h.newClient()
	client.Jar = jar
	t.Cleanup(client.CloseIdleConnections)
	return &Person{h: h, client: client}
}

// person is somebody with an account, signed in.
func (h *Host) person(t *testing.T, email string) *Person {
	t.Helper()
	p := h.visitor(t)
	p.email, p.key = email, h.accountCreate(t, email)
	h.setPassword(t, email, personsPassword)
	require.Equal(t, http.StatusSeeOther, p.signIn(t, email, personsPassword).status)
	return p
}

// setPassword sets a password as an operator does, beside the running server.
func (h *Host) setPassword(t *testing.T, email, password string) {
	t.Helper()
	_, err := h.berthd(t, password+"\n", "account", "password", email)
	require.NoError(t, err)
}

func (p *Person) do(t *testing.T, req *http.Request) Reply {
	t.Helper()
	res, err := p.client.Do(req)
	require.NoError(t, err)
	return read(t, res)
}

// open opens a page.
func (p *Person) open(t *testing.T, path string) Reply {
	t.Helper()
	return p.do(t, p.h.request(t, http.MethodGet, path, nil, "Accept", "text/html"))
}

var formToken = regexp.MustCompile(`name="token" value="([^"]*)"`)

// submit sends a form of a page. The headers are as in request.
func (p *Person) submit(t *testing.T, page, action string, fields Fields, headers ...string) Reply {
	t.Helper()
	return p.do(t, p.form(t, page, action, fields, headers...))
}

// form is the request that submit sends.
func (p *Person) form(t *testing.T, page, action string, fields Fields, headers ...string) *http.Request {
	t.Helper()
	token := formToken.FindStringSubmatch(p.open(t, page).body)
	require.NotNil(t, token, "%s has no form", page)
	values := url.Values{"token": {html.UnescapeString(token[1])}}
	for name, value := range fields {
		values.Set(name, value)
	}
	headers = append([]string{"Content-Type", "application/x-www-form-urlencoded", "Accept", "text/html", "Origin", p.h.base()}, headers...)
	return p.h.request(t, http.MethodPost, action, strings.NewReader(values.Encode()), headers...)
}

func (p *Person) signIn(t *testing.T, email, password string, headers ...string) Reply {
	t.Helper()
	return p.submit(t, "/signin", "/signin", Fields{"email": email, "password": password}, headers...)
}

// act presses a button on the page of a stack.
func (p *Person) act(t *testing.T, st *Stack, action string) Reply {
	t.Helper()
	page := "/dashboard/stacks/" + st.ID
	return p.submit(t, page, page+"/"+action, nil)
}

// awaitRestart waits for the n-th service.restarted that was requested.
func (h *Host) awaitRestart(t *testing.T, st *Stack, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("requested restart %d", n), func() error {
		found := 0
		for _, e := range h.events(t, st) {
			if e.Type == "service.restarted" && e.Data["requested"] == true {
				found++
			}
		}
		if found != n {
			return fmt.Errorf("there are %d: %v\n%s", found, types(h.events(t, st)), h.logs(t, st, ""))
		}
		return nil
	})
}

func TestOwner_RestartsAServiceAndNoRequestFails(t *testing.T) {
	t.Parallel()
	h := start(t)
	ana := h.person(t, "ana@example.com")
	st := h.owned(t, ana.key, program(t))
	before := h.inspect(t, st, "web").ID
	began := time.Now()
	users := &load{h: h, service: "web", st: st}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 4 {
		users.constantly(ctx, &all, users.get)
		users.constantly(ctx, &all, users.post)
	}
	for n := range 2 {
		require.Equal(t, http.StatusSeeOther, ana.act(t, st, "restart/web").status)
		h.awaitRestart(t, st, n+1)
	}
	answered := users.requests.Load()
	eventually(t, "requests after the restarts", func() error {
		if users.requests.Load() < answered+20 {
			return fmt.Errorf("%d of them", users.requests.Load()-answered)
		}
		return nil
	})
	cancel()
	all.Wait()
	if first := users.first.Load(); first != nil {
		t.Errorf("%d of %d requests failed, the first with: %v", users.failed.Load(), users.requests.Load(), *first)
	}
	events := h.events(t, st)
	require.Equal(t, map[string]any{"service": "web", "requested": true}, events[len(events)-1].Data)
	require.Equal(t, map[string]string{"web": "running"}, h.show(t, st, "").statuses())
	require.Equal(t, 1, h.show(t, st, "").Generation)
	h.keeps(t, st, "container web-g1-r2", "image web", "volume web-data", "network g1")
	// An engine that renames one while another joins or leaves its network may keep
	// the network for ever.
	require.Empty(t, h.renamed(t, began), "containers were renamed")
	after := h.inspect(t, st, "web")
	require.NotEqual(t, before, after.ID)
	h.restart(t)
	now := h.inspect(t, st, "web")
	require.Equal(t, after.ID+after.State.StartedAt, now.ID+now.State.StartedAt, "the next server adopts the process that took over")
	require.Equal(t, "hello from web", h.get(t, st.url("web", "/")).body)
}

// renamed returns the names that containers of the installation were given after a
// time, besides those with which they were made.
func (h *Host) renamed(t *testing.T, since time.Time) []string {
	t.Helper()
	docker, err := h.docker()
	require.NoError(t, err)
	defer docker.Close()
	with := byLabel(h.instance)
	with.Add("type", "container")
	with.Add("event", "rename")
	found, ended := docker.Events(t.Context(), events.ListOptions{
		Since: since.Format(time.RFC3339Nano), Until: time.Now().Format(time.RFC3339Nano), Filters: with,
	})
	var names []string
	for {
		select {
		case event := <-found:
			names = append(names, event.Actor.Attributes["name"])
		case err := <-ended:
			require.ErrorIs(t, err, io.EOF)
			return names
		}
	}
}

func TestOwner_RestartIsRefusedWhereThereIsNothingToRestart(t *testing.T) {
	t.Parallel()
	h := start(t)
	ana, bob := h.person(t, "ana@example.com"), h.person(t, "bob@example.com")
	site := h.owned(t, ana.key, page("x"))
	before := len(h.events(t, site))
	ana.act(t, site, "restart/web")
	ana.act(t, site, "restart/other")
	require.Equal(t, http.StatusNotFound, bob.open(t, "/dashboard/stacks/"+site.ID).status)
	r := bob.submit(t, "/dashboard/account", "/dashboard/stacks/"+site.ID+"/restart/web", nil)
	require.Equal(t, http.StatusNotFound, r.status)
	for _, action := range []string{"revoke", "delete"} {
		r := bob.submit(t, "/dashboard/account", "/dashboard/stacks/"+site.ID+"/"+action, Fields{"name": site.Name})
		require.Equal(t, http.StatusNotFound, r.status, action)
	}
	require.Len(t, h.events(t, site), before)
	require.Equal(t, "agent", h.show(t, site, "").Role)
}

func TestOwner_RevokesTheManageToken(t *testing.T) {
	t.Parallel()
	h := start(t)
	ana := h.person(t, "ana@example.com")
	st := h.live(t, page("x"), nil)
	require.Equal(t, http.StatusOK, h.claim(t, ana.key, st.ClaimCode, "").status)
	require.Equal(t, http.StatusSeeOther, ana.act(t, st, "revoke").status)
	for _, path := range []string{"", "/logs", "/events"} {
		detail := h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID+path).refused(t, http.StatusForbidden)
		require.Contains(t, detail, "the owner of the stack revoked its manage_token")
	}
	h.postDeploy(t, st, page("y"), nil).refused(t, http.StatusForbidden)
	require.Equal(t, http.StatusForbidden, h.delete(t, st).status)
	require.Equal(t, "x", h.get(t, st.url("web", "/")).body)
	st.ManageToken = ana.key // from here on, and for the test's end
	h.forgetStack(st.ID)
	h.adoptStack(st)
	events := h.events(t, st)
	require.Equal(t, "stack.agent_revoked", events[len(events)-1].Type)
	require.Empty(t, events[len(events)-1].Data)
	ana.submit(t, "/dashboard/account", "/dashboard/stacks/"+st.ID+"/revoke", nil)
	require.Equal(t, 1, count(h.events(t, st), "stack.agent_revoked"))
}

func TestOwner_RotatesTheKeyAndTheNextRequestNeedsTheNewOne(t *testing.T) {
	t.Parallel()
	h := start(t)
	ana := h.person(t, "ana@example.com")
	require.Equal(t, http.StatusOK, h.getAs(t, ana.key, "/v0/me").status)
	require.Contains(t, ana.open(t, "/dashboard/account").body, ana.key[len(ana.key)-4:], "the end of the key tells which one it is")
	require.Equal(t, http.StatusSeeOther, ana.submit(t, "/dashboard/account", "/dashboard/account/key", nil).status)
	h.getAs(t, ana.key, "/v0/me").refused(t, http.StatusUnauthorized)
	shown := ana.open(t, "/dashboard/account").body
	fresh := regexp.MustCompile(`as_live_[0-9A-Za-z]{32}`).FindString(shown)
	require.NotEmpty(t, fresh)
	require.Equal(t, http.StatusOK, h.getAs(t, fresh, "/v0/me").status)
	require.NotContains(t, ana.open(t, "/dashboard/account").body, fresh, "it is shown once")
}

func TestSession_IsKeptAsAHashAndEndsWithThePassword(t *testing.T) {
	t.Parallel()
	h := start(t)
	ana := h.person(t, "ana@example.com")
	base, err := url.Parse(h.base())
	require.NoError(t, err)
	cookies := ana.client.Jar.Cookies(base)
	token := ""
	for _, c := range cookies {
		if c.Name == "berth_session" {
			token = c.Value
		}
	}
	require.Regexp(t, `^ses_[0-9A-Za-z]{32}$`, token)
	h.restart(t)
	require.Equal(t, http.StatusOK, ana.open(t, "/dashboard").status, "a session outlives the server")
	files, err := filepath.Glob(filepath.Join(h.dir, "berth.db*"))
	require.NoError(t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NotContains(t, string(content), token)
		require.NotContains(t, string(content), personsPassword)
		require.NotContains(t, string(content), ana.key)
	}
	h.setPassword(t, "ana@example.com", "another password")
	require.Equal(t, http.StatusSeeOther, ana.open(t, "/dashboard").status, "sent to sign in")
	require.Equal(t, http.StatusSeeOther, h.visitor(t).signIn(t, "ana@example.com", "another password").status)
}

func TestSession_NeverReachesATenantNorIsSetByOne(t *testing.T) {
	t.Parallel()
	h := start(t)
	tenant := Tree{"server.js": `require('http').createServer((req, res) => {
  res.setHeader('Set-Cookie', ['berth_session=evil', 'berth_session=evil; Domain=localhost; Path=/', 'mine=1; Domain=localhost', 'mine=2']);
  res.end(JSON.stringify(req.headers.cookie || ''));
}).listen(process.env.PORT);`}
	st := h.live(t, tenant, manifest(programManifest))
	r := h.get(t, st.url("web", "/"), "Cookie", "berth_session=secret; theirs=1; __Host-berth_session=secret", "Cookie", "berth_visitor=secret")
	require.Equal(t, `"theirs=1"`, r.body)
	require.Equal(t, []string{"mine=2"}, r.header.Values("Set-Cookie"))
}

func TestPages_RefuseFormsOfOtherOrigins(t *testing.T) {
	t.Parallel()
	h := start(t)
	ana := h.person(t, "ana@example.com")
	st := h.owned(t, ana.key, page("x"))
	tenant := "http://" + st.host("web")
	for _, headers := range [][]string{
		{"Origin", tenant, "Sec-Fetch-Site", "same-site"},
		{"Origin", "https://evil.example.com", "Sec-Fetch-Site", "cross-site"},
	} {
		// The form is complete, its token is right and the cookie is there.
		req := ana.h.request(t, http.MethodPost, "/signout", strings.NewReader(""), headers...)
		require.NotEmpty(t, ana.do(t, req).refused(t, http.StatusForbidden))
	}
	require.Equal(t, http.StatusOK, ana.open(t, "/dashboard").status)
	// The API uses no cookies, and accepts requests from any origin.
	r := h.get(t, "/v0/me", "Authorization", "Bearer "+ana.key, "Origin", tenant, "Sec-Fetch-Site", "same-site")
	require.Equal(t, http.StatusOK, r.status)
	body := strings.NewReader(`{"claim_code": "CLM-0000-0000-0000"}`)
	h.do(t, h.request(t, http.MethodPost, "/v0/claim", body, "Authorization", "Bearer "+ana.key, "Origin", tenant, "Sec-Fetch-Site", "same-site")).
		refused(t, http.StatusNotFound)
}
