package api

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
)

func (e *env) patch(id, token, body string) reply {
	e.t.Helper()
	return e.send("PATCH", "/v0/stacks/"+id, token, strings.NewReader(body))
}

func TestExtend_ReplacesTheExpiry(t *testing.T) {
	e := newEnv(t)
	m := e.creates("")
	e.change(m.id, (*stack.Stack).Notice)
	r := e.patch(m.id, m.token, `{"ttl": "2h30m"}`)
	require.Equal(t, 200, r.status, r.body)
	v := r.json()
	require.ElementsMatch(t, stackFields, keys(v))
	require.InDelta(t, float64(time.Now().Add(150*time.Minute).Unix()), v["expires_at"], 60)
	s, err := e.store.Get(t.Context(), m.id)
	require.NoError(t, err)
	require.False(t, s.Noticed, "stack.expiring is re-armed")
	events := e.send("GET", "/v0/stacks/"+m.id+"/events", m.token, nil).json()["events"].([]any)
	last := events[len(events)-1].(map[string]any)
	require.Equal(t, "stack.extended", last["type"])
	require.Equal(t, map[string]any{"expires_at": v["expires_at"]}, last["data"])
	kept, err := e.store.LatestEvents(t.Context(), m.id, 1)
	require.NoError(t, err)
	require.Equal(t, s.ExpiresAt.Add(-150*time.Minute), kept[0].CreatedAt, "the event has another now than the stack")
}

func TestExtend_WhileBuildingAndAfterAFailure(t *testing.T) {
	e := newEnv(t)
	v := e.create("")
	id, token := v["id"].(string), v["manage_token"].(string)
	require.Equal(t, "building", e.patch(id, token, `{"ttl":"20h"}`).json()["status"])
	e.fail(id)
	require.Equal(t, "failed", e.patch(id, token, `{"ttl":"21h"}`).json()["status"])
}

func TestExtend_RefusesWithWhatToDo(t *testing.T) {
	e := newEnv(t)
	m := e.creates("")
	for body, want := range map[string]struct {
		status int
		detail string
	}{
		``:                                {400, `no ttl: the body must be a JSON object like this: {"ttl": "1h"}`},
		`ttl=1h`:                          {400, "JSON object"},
		`{"ttl":"1h"`:                     {400, "JSON object"},
		`{"ttl":"1h"} {}`:                 {400, "JSON object"},
		`[{"ttl":"1h"}]`:                  {400, "JSON object"},
		`null`:                            {400, "JSON object"},
		`"1h"`:                            {400, "JSON object"},
		`{}`:                              {400, "no ttl in the body"},
		`{"ttl":null}`:                    {400, "no ttl in the body"},
		`{"TTL":"1h"}`:                    {400, "no ttl in the body"},
		`{"ttl":"1h","name":"x"}`:         {400, `unknown field "name"`},
		`{"ttl":""}`:                      {422, "1h30m"},
		`{"ttl":"1"}`:                     {422, "1h30m"},
		`{"ttl":3600}`:                    {422, "1h30m"},
		`{"ttl":["1h"]}`:                  {422, "1h30m"},
		`{"ttl":"-1h"}`:                   {422, "1h30m"},
		`{"ttl":"14m59s"}`:                {422, "at least 15m"},
		`{"ttl":"24h1m"}`:                 {422, "latest possible expiry is "},
		`{"ttl":"9000000000d"}`:           {422, "1h30m"},
		strings.Repeat(" ", mostObject+1): {413, "16 KiB"},
	} {
		r := e.patch(m.id, m.token, body)
		require.Equal(t, want.status, r.status, "%.80s: %s", body, r.body)
		require.Contains(t, r.detail(), want.detail, "%.80s", body)
	}
	s, err := e.store.Get(t.Context(), m.id)
	require.NoError(t, err)
	require.Equal(t, s.CreatedAt.Add(time.Hour), s.ExpiresAt)
}

func TestExtend_RefusesWhereTheStateDoesNotAllowIt(t *testing.T) {
	e := newEnv(t)
	_, key := e.account("ana@example.com")
	owned, expired := e.creates(key), e.creates("")
	e.expire(expired.id)
	for token, id := range map[string]string{key: owned.id, owned.token: owned.id, expired.token: expired.id} {
		r := e.patch(id, token, `{"ttl":"1h"}`)
		require.Equal(t, 409, r.status)
		require.Regexp(t, "claim", r.detail())
	}
	require.Equal(t, 403, e.patch(owned.id, expired.token, `{"ttl":"1h"}`).status)
	require.Equal(t, 401, e.patch(owned.id, "", `{"ttl":"1h"}`).status)
	require.Equal(t, 404, e.patch("stk_000000000000", key, `{"ttl":"1h"}`).status)
}

func TestShow_AnExpiredStack(t *testing.T) {
	e := newEnv(t)
	m := e.creates("")
	e.expire(m.id)
	v := e.send("GET", "/v0/stacks/"+m.id, m.token, nil).json()
	require.Equal(t, "expired", v["status"])
	require.NotNil(t, v["expires_at"])
	require.NotNil(t, v["expired_at"])
	require.InDelta(t, v["expired_at"].(float64)+7*24*3600, v["retained_until"], 1e-3)
	require.Equal(t, "stopped", v["services"].([]any)[0].(map[string]any)["status"])
}

func FuzzOnlyField(f *testing.F) {
	for _, text := range []string{``, `{}`, `{"ttl":"1h"}`, `{"ttl":1}`, `{"ttl":"1h","x":{}}`, `[`, `{"ttl":"\ud800"}`, `null`, "\xff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := onlyField(strings.NewReader(text), "ttl", `{"ttl": "1h"}`); err != nil {
			requireClientFault(t, err)
		}
	})
}

func TestExtend_IsLimitedForEachStack(t *testing.T) {
	e := newEnv(t)
	_, key := e.account("ana@example.com")
	m, claimed := e.creates(""), e.creates(key)
	e.longer.left = 2
	require.Equal(t, 422, e.patch(m.id, m.token, `{"ttl":"x"}`).status)
	require.Equal(t, 422, e.patch(m.id, m.token, `{"ttl":"30d"}`).status)
	require.Equal(t, 409, e.patch(claimed.id, claimed.token, `{"ttl":"1h"}`).status)
	for left := range 2 {
		r := e.patch(m.id, m.token, `{"ttl":"1h"}`)
		require.Equal(t, 200, r.status, "a refused extension was counted: %s", r.body)
		require.Equal(t, strconv.Itoa(1-left), r.header.Get("RateLimit-Remaining"))
	}
	r := e.patch(m.id, m.token, `{"ttl":"1h"}`)
	require.Equal(t, 429, r.status)
	require.Equal(t, "too many requests; slow down and retry in a minute", r.detail())
	require.Equal(t, "60", r.header.Get("Retry-After"))
	require.Equal(t, "0", r.header.Get("RateLimit-Remaining"))
	require.Equal(t, 403, e.patch(m.id, claimed.token, `{"ttl":"1h"}`).status, "who asks comes first")
	require.Equal(t, []string{m.id, claimed.id, m.id, m.id}, e.longer.networks, "it counts by stack")
	events := e.send("GET", "/v0/stacks/"+m.id+"/events", m.token, nil).body
	require.Equal(t, 2, strings.Count(events, "stack.extended"))
}
