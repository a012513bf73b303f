package web

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/account"
	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// mailing makes the pages those of an installation that sends mails.
func mailing(c *Config) {
	c.Accounts = account.New(account.Config{
		Store: c.Store, Passwords: auth.NewPasswords(2), Forms: unlimited{}, Codes: unlimited{},
		Claims: account.Claims{
			Stacks: c.Store, Host: c.Host.(account.Host), Key: c.Key,
			Mails: &account.Mails{Store: c.Store, Addresses: unlimited{}, Networks: unlimited{}},
		},
	})
}

// link makes the token that a mail of the kind to ana would have.
func (e *env) link(kind store.MailKind, stackID string) (token string) {
	e.t.Helper()
	who, _, ok, err := e.store.AccountByEmail(e.t.Context(), ana)
	require.NoError(e.t, err)
	require.True(e.t, ok)
	token = auth.NewMailToken()
	require.NoError(e.t, e.store.AddMailToken(e.t.Context(), auth.Hash(token), store.MailToken{Kind: kind, Account: who, StackID: stackID}, stack.Now().Add(time.Hour)))
	return token
}

func TestReset_SaysWhatBecomesOfTheKey(t *testing.T) {
	e := newEnv(t, mailing)
	e.signedUp(ana)
	b := e.visitor()
	for _, says := range []struct{ before, after string }{
		{"Its API key stops working", "press “Rotate key” on the account page"},
		{"Its API key keeps working", "Sign in with the new one.<"}, // now that the address is confirmed
	} {
		path := "/signin/reset/" + e.link(store.MailReset, "")
		require.Contains(t, b.get(path).body, says.before)
		require.Equal(t, "/signin", b.post(path, url.Values{"password": {password}}).header.Get("Location"))
		require.Contains(t, b.get("/signin").body, says.after)
	}
}

func TestConfirm_AsksAnotherBrowserForThePassword(t *testing.T) {
	e := newEnv(t, mailing)
	b := e.signedUp(ana)
	id, _ := e.stack("guestbook")
	path := "/signup/confirm/" + e.link(store.MailConfirm, id)
	require.NotContains(t, b.get(path).body, `name="password"`)
	other := e.visitor()
	require.Contains(t, other.get(path).body, "Sign in, confirm and claim")
	for _, wrong := range []string{"", "a wrong one"} {
		r := other.post(path, url.Values{"password": {wrong}})
		require.Equal(t, 401, r.status)
		require.Contains(t, r.body, "password is wrong")
		require.NotContains(t, other.cookies, sessionCookie)
		require.Empty(t, e.owner(id))
	}
	r := other.post(path, url.Values{"password": {password}})
	require.Equal(t, "/dashboard/stacks/"+id+"/claimed", r.header.Get("Location"))
	require.Equal(t, 200, other.get(r.header.Get("Location")).status, "it is signed in")
	require.Equal(t, 200, b.get("/dashboard").status)
	require.Equal(t, 404, other.get(path).status)
}

func TestConfirm_AsksForNoPasswordOnceTheAddressIsConfirmed(t *testing.T) {
	e := newEnv(t, mailing)
	b, other := e.signedUp(ana), e.visitor()
	id, _ := e.stack("guestbook")
	letter := "/signup/confirm/" + e.link(store.MailConfirm, id)
	require.Equal(t, "/dashboard", b.post("/signup/confirm/"+e.link(store.MailConfirm, ""), nil).header.Get("Location"))
	require.NotContains(t, other.get(letter).body, `name="password"`)
	require.Equal(t, "/signin?next="+url.QueryEscape("/dashboard/stacks/"+id+"/claimed"), other.post(letter, nil).header.Get("Location"))
	require.NotEmpty(t, e.owner(id))
}
