package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/auth"
)

func (e *env) claim(key, body string) reply {
	e.t.Helper()
	return e.send("POST", "/v0/claim", key, strings.NewReader(body))
}

func claimBody(code string) string {
	text, _ := json.Marshal(map[string]string{"claim_code": code}) // strings always encode
	return string(text)
}

func TestClaim_MovesTheStackIntoTheAccount(t *testing.T) {
	e := newEnv(t)
	account, key := e.account("ana@example.com")
	m := e.creates("")
	r := e.claim(key, claimBody(m.code))
	require.Equal(t, 200, r.status, r.body)
	v := r.json()
	require.ElementsMatch(t, stackFields, keys(v))
	require.Equal(t, m.id, v["id"])
	require.Equal(t, true, v["claimed"])
	require.Equal(t, "live", v["status"])
	for _, null := range []string{"expires_at", "expired_at", "retained_until"} {
		require.Nil(t, v[null], null)
	}
	s, err := e.store.Get(t.Context(), m.id)
	require.NoError(t, err)
	require.Equal(t, account, s.Owner)

	for token, role := range map[string]string{key: "owner", m.token: "agent"} {
		require.Equal(t, role, e.send("GET", "/v0/stacks/"+m.id, token, nil).json()["role"])
	}
	events := e.send("GET", "/v0/stacks/"+m.id+"/events", key, nil).json()["events"].([]any)
	last := events[len(events)-1].(map[string]any)
	require.Equal(t, "stack.claimed", last["type"])
	require.Equal(t, map[string]any{"by": "ana@example.com"}, last["data"])

	again := e.claim(key, claimBody(m.code))
	require.Equal(t, 404, again.status)
	require.Equal(t, "this claim code has already been used: its stack, "+m.id+" (stack), is in your account", again.detail())
	_, other := e.account("bo@example.com")
	again = e.claim(other, claimBody(m.code))
	require.Equal(t, 404, again.status)
	require.Equal(t, "this claim code has already been used; its stack belongs to an account", again.detail())
}

func TestClaim_TakesAnySpellingOfTheCode(t *testing.T) {
	e := newEnv(t)
	_, key := e.account("ana@example.com")
	spell := []func(string) string{
		strings.ToLower,
		func(code string) string { return strings.ReplaceAll(code, "-", "") },
		func(code string) string { return strings.TrimPrefix(code, "CLM-") },
		func(code string) string {
			return " " + strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(code, "CLM"), "-", "")) + "\n"
		},
	}
	for _, spelling := range spell {
		m := e.creates("")
		r := e.claim(key, claimBody(spelling(m.code)))
		require.Equal(t, 200, r.status, r.body)
		require.Equal(t, m.id, r.json()["id"])
	}
}

func TestClaim_RefusesWithWhatToDo(t *testing.T) {
	e := newEnv(t)
	_, key := e.account("ana@example.com")
	m := e.creates("")
	gone := e.creates("")
	require.NoError(t, e.host.Delete(t.Context(), gone.id))
	forBo := e.creates("", sourcePart(site(t)), textPart("claim_email", "Bo@example.com"))
	for _, tt := range []struct {
		name, key, body string
		status          int
		detail          string
	}{
		{"no key", "", claimBody(m.code), 401, "as_live_"},
		{"unknown key", auth.NewAPIKey(), claimBody(m.code), 401, "as_live_"},
		{"manage token", m.token, claimBody(m.code), 401, "as_live_"},
		{"no body", key, "", 400, "claim_code"},
		{"no code", key, "{}", 400, "claim_code"},
		{"a form", key, "claim_code=" + m.code, 400, "JSON object"},
		{"no claim code", key, claimBody("hello"), 404, "CLM-XXXX-XXXX-XXXX"},
		{"a number", key, `{"claim_code": 7}`, 400, "must be a string"},
		{"unknown code", key, claimBody(auth.NewClaimCode()), 404, "a character is wrong"},
		{"code of a deleted stack", key, claimBody(gone.code), 404, "deleted"},
		{"made for another", key, claimBody(forBo.code), 403, "email"},
	} {
		r := e.claim(tt.key, tt.body)
		require.Equal(t, tt.status, r.status, "%s: %s", tt.name, r.body)
		require.Contains(t, r.detail(), tt.detail, tt.name)
	}
	_, bo := e.account("bo@EXAMPLE.com")
	require.Equal(t, 200, e.claim(bo, claimBody(forBo.code)).status)
}

func TestClaim_AnAddressThatOnlyUnicodeTakesForAnotherIsAnother(t *testing.T) {
	e := newEnv(t)
	forKim := e.creates("", sourcePart(site(t)), textPart("claim_email", "kim@example.com"))
	_, key := e.account("\u212aim@example.com") // the Kelvin sign, in a database from before
	require.Equal(t, 403, e.claim(key, claimBody(forKim.code)).status)
	_, key = e.account("KIM@example.com")
	require.Equal(t, 200, e.claim(key, claimBody(forKim.code)).status)

	for _, parts := range [][]part{
		{textPart("claim_email", "\u212aim@example.com")},
		{textPart("manifest", "claim_email: \u212aim@example.com")},
	} {
		detail := e.refusedUpload(422, append(parts, sourcePart(site(t)))...)
		require.Contains(t, detail, "claim_email")
		require.Contains(t, detail, "before the @ must be ASCII")
	}
}

func TestClaim_RateLimitByNetwork(t *testing.T) {
	e := newEnv(t)
	_, key := e.account("ana@example.com")
	m := e.creates("")
	e.claims.left = 2
	require.Equal(t, 401, e.claim(auth.NewAPIKey(), claimBody(m.code)).status, "does not count")
	require.Equal(t, 404, e.claim(key, claimBody(auth.NewClaimCode())).status, "counts")
	require.Equal(t, 400, e.claim(key, "").status, "counts")
	r := e.send("POST", "/v0/claim", key, strings.NewReader(claimBody(m.code)), "X-Test-Client", "192.0.2.7")
	require.Equal(t, 429, r.status)
	require.Equal(t, "60", r.header.Get("Retry-After"))
	require.JSONEq(t, `{"detail":"too many requests; slow down and retry in a minute"}`, r.body)
	e.claims.left = 1
	require.Equal(t, 200, e.send("POST", "/v0/claim", key, strings.NewReader(claimBody(m.code)), "X-Test-Client", "2001:db8::1").status)
	require.Equal(t, []string{"unknown", "unknown", "2001:db8::/64"}, e.claims.networks)
}

func TestClaim_OfOneCodeAtOnceSucceedsOnce(t *testing.T) {
	const claims = 100
	e := newEnv(t)
	m := e.creates("")
	var accounts []string
	for i := range claims {
		_, key := e.account(fmt.Sprintf("ana%d@example.com", i))
		accounts = append(accounts, key)
	}
	replies := make(chan reply, claims)
	for _, key := range accounts {
		req := newRequest(t, "POST", "/v0/claim", key, strings.NewReader(claimBody(m.code)))
		go func() {
			var r reply
			if res, err := e.client.Do(req); err == nil {
				r = readReply(t, res)
			}
			replies <- r
		}()
	}
	won := 0
	for range claims {
		r := <-replies
		if r.status == 200 {
			won++
			continue
		}
		require.Equal(t, 404, r.status, r.body)
	}
	require.Equal(t, 1, won)
	events, err := e.store.Events(t.Context(), m.id, 0, 200)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(fmt.Sprint(events), "stack.claimed"))
}

func TestClaim_AnExpiredStackComesBack(t *testing.T) {
	e := newEnv(t)
	_, key := e.account("ana@example.com")
	m := e.creates("")
	e.expire(m.id)
	changed, stop := e.store.Watch(m.id)
	defer stop()
	req := newRequest(t, "POST", "/v0/claim?wait=true", key, strings.NewReader(claimBody(m.code)))
	answered := make(chan reply, 1)
	go func() {
		var r reply
		if res, err := e.client.Do(req); err == nil {
			r = readReply(t, res)
		}
		answered <- r
	}()
	<-changed
	v := e.send("GET", "/v0/stacks/"+m.id, key, nil).json()
	require.Equal(t, "building", v["status"])
	require.Equal(t, true, v["claimed"])
	require.Nil(t, v["deploying"])
	require.Equal(t, "pending", v["services"].([]any)[0].(map[string]any)["status"])
	e.restored(m.id)
	r := <-answered
	require.Equal(t, 200, r.status)
	require.Equal(t, "live", r.json()["status"])
	require.EqualValues(t, 1, r.json()["generation"])
}

func TestMe_ListsTheAccountsStacksNewestFirst(t *testing.T) {
	e := newEnv(t)
	_, key := e.account("Ana@example.com")
	_, other := e.account("bo@example.com")
	require.JSONEq(t, `{"email":"Ana@example.com","stacks":[]}`, e.send("GET", "/v0/me", key, nil).body)
	first := e.creates("")
	second := e.creates(key)
	e.creates(other)
	deleted := e.creates(key)
	require.NoError(t, e.host.Delete(t.Context(), deleted.id))
	require.Equal(t, 200, e.claim(key, claimBody(first.code)).status)
	v := e.send("GET", "/v0/me", key, nil).json()
	require.ElementsMatch(t, []string{"email", "stacks"}, keys(v))
	stacks := v["stacks"].([]any)
	require.Len(t, stacks, 2)
	for i, id := range []string{second.id, first.id} {
		s := stacks[i].(map[string]any)
		require.Equal(t, id, s["id"])
		require.ElementsMatch(t, stackFields, keys(s))
	}
}

func TestMe_NeedsAnAPIKey(t *testing.T) {
	e := newEnv(t)
	m := e.creates("")
	for _, token := range []string{"", m.token, auth.NewAPIKey(), "nonsense"} {
		r := e.send("GET", "/v0/me", token, nil)
		require.Equal(t, 401, r.status)
		require.Equal(t, "Bearer", r.header.Get("WWW-Authenticate"))
		require.Contains(t, r.detail(), "as_live_")
	}
}

// The manage token of a stack does no more than the key of its owner, whom an operator has
// disabled: it reads.
func TestDisabledAccount_ItsAgentsOnlyRead(t *testing.T) {
	e := newEnv(t)
	account, key := e.account("ana@example.com")
	m := e.creates("")
	require.Equal(t, 200, e.claim(key, claimBody(m.code)).status)
	require.NoError(t, e.store.DisableAccount(t.Context(), account, "it sends spam"))
	path := "/v0/stacks/" + m.id
	for _, r := range []reply{
		e.redeploy(m.id, m.token),
		e.send("POST", path+"/restart", m.token, nil),
		e.send("PATCH", path+"/env", m.token, strings.NewReader("{}")),
		e.send("POST", path+"/services/web/exec", m.token, strings.NewReader("{}")),
		e.send("DELETE", path, m.token, nil),
	} {
		require.Equal(t, 403, r.status, r.body)
		require.Equal(t, "the operator of this host has disabled this account: it sends spam", r.detail())
	}
	require.Equal(t, 200, e.send("GET", path, m.token, nil).status)
	require.Equal(t, 403, e.send("GET", path, key, nil).status)
	require.NoError(t, e.store.DisableAccount(t.Context(), account, ""))
	require.Equal(t, 200, e.redeploy(m.id, m.token).status)
}
