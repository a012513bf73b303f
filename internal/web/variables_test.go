package web

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

func (h *fakeHost) Configure(ctx context.Context, id string, change stack.EnvChange, receipt *store.Receipt) (*stack.Stack, error) {
	var next stack.Generation
	_, err := h.store.Update(ctx, id, func(s *stack.Stack) (events []stack.Event, err error) {
		next, events, err = s.Configure(change, stack.URLs{Base: &url.URL{Scheme: "http", Host: "localhost:8080"}, AppsDomain: "localhost"}, stack.Now())
		return events, err
	}, store.WithReceipt(receipt))
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next = next
	return h.store.Get(ctx, id)
}

// configurable makes a live stack with a manifest's variable, whose services were built.
func (e *env) configurable(b *visitor) (id, page string) {
	e.t.Helper()
	id = e.owned(b, "guestbook")
	e.change(id, func(s *stack.Stack) ([]stack.Event, error) {
		s.Generation.Source.Folder = "kept"
		s.Generation.Services[0].Site, s.Generation.Services[1].Image = 1, "image"
		s.Generation.Services[1].Spec.Env = map[string]stack.Env{"LEVEL": {Value: "hush"}, "SESSION_KEY": {Generate: true}}
		return nil, nil
	})
	return id, "/dashboard/stacks/" + id + "/env"
}

// goesLive ends the build that a change of variables began.
func (e *env) goesLive(id string) {
	e.t.Helper()
	e.change(id, func(s *stack.Stack) ([]stack.Event, error) { return s.Deployed(e.host.next, e.urls, stack.Now()) })
}

func TestVariables_AreSetAndUnsetAndNeverShown(t *testing.T) {
	e := newEnv(t)
	b := e.signedUp(ana)
	id, page := e.configurable(b)
	require.Contains(t, b.get("/dashboard/stacks/"+id).body, page)
	require.Regexp(t, `(?s)LEVEL.*api, from the manifest.*SESSION_KEY.*api, generated`, b.get(page).body)

	r := b.post(page, url.Values{"service": {"api"}, "name": {" CERT "}, "value": {"hush\r\nhush\r\n"}})
	require.Equal(t, http.StatusSeeOther, r.status, r.body)
	require.Contains(t, b.get(r.header.Get("Location")).body, "Generation 2 is starting with the change of CERT.")
	e.goesLive(id)
	s, err := e.store.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, "hush\nhush\n", s.Generation.Variables["api"]["CERT"].Value)
	body := b.get(page).body
	require.Regexp(t, `(?s)CERT.*api, set.*Unset`, body)
	require.NotContains(t, body, "hush")

	r = b.post(page, url.Values{"unset": {"yes"}, "service": {"api"}, "name": {"CERT"}})
	require.Equal(t, http.StatusSeeOther, r.status)
	e.goesLive(id)
	require.NotContains(t, b.get(page).body, ">CERT<")
	b.post(page, url.Values{"unset": {"yes"}, "service": {""}, "name": {"CERT"}})
	require.Contains(t, b.get(page).body, "Nothing has changed: CERT was like that before.")
}

func TestVariables_ThatAreRefusedStayInTheForm(t *testing.T) {
	e := newEnv(t)
	b := e.signedUp(ana)
	id, page := e.configurable(b)
	r := b.post(page, url.Values{"service": {"api"}, "name": {"1-2"}, "value": {"<mine>"}, "asis": {"yes"}})
	require.Equal(t, http.StatusUnprocessableEntity, r.status)
	require.Contains(t, r.body, "is not the name of a variable")
	require.Regexp(t, `(?s)<option value="api" selected>.*value="1-2".*&lt;mine&gt;.*value="yes" checked`, r.body)

	require.Equal(t, http.StatusSeeOther, b.post(page, url.Values{"service": {""}, "name": {"KEY"}, "value": {strings.Repeat("ä", stack.MaxEnvValue/2)}}).status)
	r = b.post(page, url.Values{"service": {""}, "name": {"KEY"}, "value": {"x"}})
	require.Equal(t, http.StatusConflict, r.status)
	require.Contains(t, r.body, "already running")
	require.Equal(t, http.StatusNotFound, e.signedUp(bob).get(page).status)
	require.NotEmpty(t, id)
}

func TestVariables_SayWhoCanReadThemAndRevokeTheAgentInOneClick(t *testing.T) {
	e := newEnv(t)
	b := e.signedUp(ana)
	id, page := e.configurable(b)
	for _, path := range []string{page, "/dashboard/stacks/" + id + "/claimed"} {
		body := b.get(path).body
		require.Contains(t, body, "Whoever may deploy to this stack can read its data and variables")
		require.Contains(t, body, `action="/dashboard/stacks/`+id+`/revoke"`)
	}
	require.Equal(t, http.StatusSeeOther, b.post("/dashboard/stacks/"+id+"/revoke", nil).status)
	require.NotContains(t, b.get(page).body, "/revoke")
	s, err := e.store.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, 1, s.CachesDropped, "what its builds left goes with it")
}

func TestClaimPage_ClaimsAndRevokesTheAgentOfWhoIsSignedIn(t *testing.T) {
	e := newEnv(t)
	id, code := e.stack("guestbook")
	b := e.signedUp(ana)
	require.Contains(t, b.get("/claim/"+code).body, "Claim and revoke the agent&#39;s access")
	r := b.post("/claim/"+code, url.Values{"revoke": {"yes"}})
	require.Equal(t, http.StatusSeeOther, r.status, r.body)
	require.Contains(t, b.get(r.header.Get("Location")).body, "The agent&#39;s access was revoked.")
	s, err := e.store.Get(t.Context(), id)
	require.NoError(t, err)
	require.True(t, s.Claimed())
	require.Empty(t, s.ManageTokenHash)
	require.Equal(t, 1, s.CachesDropped)

	other, code := e.stack("shop")
	require.Equal(t, http.StatusSeeOther, b.post("/claim/"+code, nil).status)
	s, err = e.store.Get(t.Context(), other)
	require.NoError(t, err)
	require.True(t, s.Claimed())
	require.NotEmpty(t, s.ManageTokenHash, "of a claim alone")
}

func TestClaimPage_ClaimsAndRevokesTheAgentInOneClick(t *testing.T) {
	e := newEnv(t)
	id, code := e.stack("guestbook")
	body := e.visitor().get("/claim/" + code).body
	require.Contains(t, body, "Whoever may deploy to a stack can read its data and")
	require.Contains(t, body, "Sign up, claim and revoke the agent&#39;s access")

	b := e.visitor()
	r := b.post("/claim/"+code, url.Values{"way": {"signup"}, "email": {ana}, "password": {password}, "revoke": {"yes"}})
	require.Equal(t, http.StatusSeeOther, r.status, r.body)
	page := b.get(r.header.Get("Location")).body
	require.Contains(t, page, "The agent&#39;s access was revoked.")
	require.Contains(t, page, "as_live_")
	s, err := e.store.Get(t.Context(), id)
	require.NoError(t, err)
	require.True(t, s.Claimed())
	require.Empty(t, s.ManageTokenHash)
	require.Equal(t, 1, s.CachesDropped, "what its builds left goes with it")
}
