package api

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
)

// serves makes a live stack whose services were built from a source that is kept: web by a
// command, and api as it was uploaded.
func (e *env) serves(key string) made {
	e.t.Helper()
	m := e.creates(key)
	e.change(m.id, func(s *stack.Stack) ([]stack.Event, error) {
		node := stack.Runtime{Name: "node", Version: "22"}
		s.Generation.Source.Folder = "first"
		s.Generation.Services = stack.Services([]stack.Spec{
			{Name: "web", Label: "node", Runtime: node, Builder: node, Build: "make", Env: map[string]stack.Env{"LEVEL": {Value: "info"}, "SECRET": {Generate: true}}},
			{Name: "api", Label: "node", Runtime: node},
		})
		for i := range s.Generation.Services {
			s.Generation.Services[i].Image, s.Generation.Services[i].Fingerprint = "image", "print"
		}
		return nil, nil
	})
	return m
}

func envPath(m made) string { return "/v0/stacks/" + m.id + "/env" }

func (e *env) sets(m made, token, body string, header ...string) reply {
	e.t.Helper()
	return e.send("PATCH", envPath(m), token, strings.NewReader(body), header...)
}

func TestVariables_AreListedWithoutTheirValues(t *testing.T) {
	e := newEnv(t)
	m := e.serves("")
	r := e.sets(m, m.token, `{"services": {"api": {"KEY": "hush"}}, "all": {"LEVEL": "hush"}}`)
	require.Equal(t, 200, r.status, r.body)
	require.ElementsMatch(t, stackFields, keys(r.json()))
	require.EqualValues(t, 2, r.json()["deploying"])
	e.live(m.id)

	r = e.send("GET", envPath(m), m.token, nil)
	require.Equal(t, 200, r.status)
	require.NotContains(t, r.body, "hush")
	all := r.json()["variables"].([]any)
	var seen []any
	for _, v := range all {
		variable := v.(map[string]any)
		require.ElementsMatch(t, []string{"service", "name", "from", "changed_at"}, keys(variable))
		seen = append(seen, []any{variable["service"], variable["name"], variable["from"]})
	}
	require.Equal(t, []any{[]any{nil, "LEVEL", "set"}, []any{"web", "SECRET", "generated"}, []any{"api", "KEY", "set"}}, seen)
	require.Positive(t, all[0].(map[string]any)["changed_at"])
	require.Nil(t, all[1].(map[string]any)["changed_at"], "of a manifest deployed before the time was recorded")
}

func TestVariables_OfAStackWithoutAnyAreAnEmptyList(t *testing.T) {
	e := newEnv(t)
	m := e.creates("")
	require.JSONEq(t, `{"variables": []}`, e.send("GET", envPath(m), m.token, nil).body)
	require.Equal(t, 401, e.send("GET", envPath(m), "", nil).status)
}

func TestConfigure_BuildsAgainUnlessItIsToldNotTo(t *testing.T) {
	for body, built := range map[string]bool{
		`{"services": {"web": {"KEY": "value"}}}`:                 false,
		`{"services": {"web": {"KEY": "value"}}, "build": true}`:  false,
		`{"services": {"web": {"KEY": "value"}}, "build": false}`: true,
		`{"services": {"api": {"KEY": "value"}}}`:                 true,
	} {
		e := newEnv(t)
		m := e.serves("")
		require.Equal(t, 200, e.sets(m, m.token, body).status)
		next := e.host.uploaded(m.id)
		require.Equal(t, built, next.Built(), body)
	}
}

func TestConfigure_RefusesWithWhatToDo(t *testing.T) {
	e := newEnv(t)
	m := e.serves("")
	for body, want := range map[string]struct {
		status int
		detail string
	}{
		``:                                     {400, `must be a JSON object like this: {"services": {"web": {"KEY": "value", "OLD": null}}`},
		`[]`:                                   {400, "JSON object"},
		`{}`:                                   {400, "no variables in the body"},
		`{"services": {"web": {}}, "all": {}}`: {400, "no variables in the body"},
		`{"build": true}`:                      {400, "no variables in the body"},
		`{"web": {"KEY": "x"}}`:                {400, `unknown field "web"; the body takes only services and all and build`},
		`{"all": null}`:                        {400, "all is null; leave it out"},
		`{"all": {"KEY": "x"}, "build": null}`: {400, "build is null; leave it out"},
		`{"all": {"KEY": "hush"}, "all": {}}`:  {400, "all is given twice"},
		`{"all": {"A": "hush", "A": "x"}}`:     {422, "all services: env A is given twice"},
		`{"services": {"web": {"A": "hush", "A": "x"}}}`:                       {422, "service web: env A is given twice"},
		`{"services": {"web": {"A": "hush"}, "web": {}}}`:                      {400, "service web is given twice"},
		"{\"all\": {\"KEY\": \"caf\xe9\"}}":                                    {400, "the body is not in UTF-8"},
		`{"all": {"KEY": "a\ud800b"}}`:                                         {400, `half of a surrogate pair, \ud800,`},
		`{"all": {"KEY": "a\udc00\ud800"}}`:                                    {400, `half of a surrogate pair, \udc00,`},
		`{"services": {"web": null}}`:                                          {400, "the variables of service web are not an object"},
		`{"services": ["web"]}`:                                                {400, "services must be an object"},
		`{"all": "KEY"}`:                                                       {400, "the variables of all services are not an object"},
		`{"all": {"KEY": "x"}, "build": "no"}`:                                 {400, "build must be true or false"},
		`{"all": {"PORT": 8080}}`:                                              {422, "all services: env PORT must be a string, or null to unset it"},
		`{"all": {"1-2": "hush"}}`:                                             {422, `env "1-2" is not the name of a variable`},
		`{"all": {"KEY": "hush\u0000"}}`:                                       {422, "KEY holds a NUL character"},
		`{"all": {"PORT": "hush"}}`:                                            {422, "PORT is not a whole number from 1 to 65535"},
		`{"services": {"": {"KEY": "hush"}}}`:                                  {422, `there is no service ""`},
		`{"services": {"nope": {"KEY": "hush"}}}`:                              {422, "there is no service nope; the services are web, api"},
		`{"all": {"KEY": "` + strings.Repeat("x", stack.MaxEnvValue+1) + `"}}`: {422, "a value has at most 32 KiB"},
		`{"all": {"KEY": "` + strings.Repeat("x", mostChange) + `"}}`:          {413, "the body is longer than 4 MiB"},
	} {
		r := e.sets(m, m.token, body)
		require.Equal(t, want.status, r.status, "%.80s: %s", body, r.body)
		require.Contains(t, r.detail(), want.detail)
		require.NotContains(t, r.body, "hush")
	}
	require.NotContains(t, e.logged.String(), "hush")
	require.Equal(t, 404, e.send("PATCH", "/v0/stacks/stk_000000000000/env", m.token, strings.NewReader(`{}`)).status)
	require.Equal(t, 403, e.sets(m, "ast_anon_x", `{}`).status)
}

func TestConfigure_TakesEveryCharacter(t *testing.T) {
	e := newEnv(t)
	m := e.serves("")
	require.Equal(t, 200, e.sets(m, m.token, `{"all": {"KEY": "\\ud800 \ud83d\ude00 \ufffd é"}}`).status)
	require.Equal(t, `\ud800 😀 `+"\ufffd é", e.host.uploaded(m.id).Variables[""]["KEY"].Value)
}

func TestConfigure_IsRefusedWhereADeployIs(t *testing.T) {
	e := newEnv(t)
	m := e.serves("")
	require.Equal(t, 200, e.sets(m, m.token, `{"all": {"KEY": "value"}}`).status)
	r := e.sets(m, m.token, `{}`)
	require.Equal(t, 409, r.status)
	require.Equal(t, "5", r.header.Get("Retry-After"))
	require.Equal(t, "a build of this stack is already running (attempt 2, generation 2); wait for it with GET /v0/stacks/"+m.id+"?wait=true, then try again", r.detail())
	e.fail(m.id)
	require.JSONEq(t, `["LEVEL", "SECRET"]`, e.names(m), "of a generation that failed")
	e.expire(m.id)
	require.Equal(t, 409, e.sets(m, m.token, `{"all": {"KEY": "value"}}`).status)
	require.Equal(t, 200, e.send("GET", envPath(m), m.token, nil).status)
}

// names returns the names of the variables of a stack in JSON.
func (e *env) names(m made) string {
	e.t.Helper()
	var names []string
	for _, v := range e.send("GET", envPath(m), m.token, nil).json()["variables"].([]any) {
		names = append(names, `"`+v.(map[string]any)["name"].(string)+`"`)
	}
	return "[" + strings.Join(names, ",") + "]"
}

func TestConfigure_OfAClaimedStackNeedsItsOwner(t *testing.T) {
	e := newEnv(t)
	_, key := e.account("ana@example.com")
	m := e.serves("")
	require.Equal(t, 200, e.claim(key, claimBody(m.code)).status)
	r := e.sets(m, m.token, `{"all": {"KEY": "value"}}`)
	require.Equal(t, 403, r.status)
	require.Contains(t, r.detail(), "its manage_token cannot change its variables")
	require.Contains(t, r.detail(), "ask ana@example.com")
	require.Equal(t, 200, e.send("GET", envPath(m), m.token, nil).status)
	require.Equal(t, 200, e.sets(m, key, `{"all": {"KEY": "value"}}`).status)
}

func TestConfigure_RunsOnceForAnIdempotencyKey(t *testing.T) {
	e := newEnv(t)
	m := e.serves("")
	const body = `{"all": {"KEY": "value"}}`
	first := e.sets(m, m.token, body, headerIdempotencyKey, "key-1")
	require.Equal(t, 200, first.status, first.body)
	again := e.sets(m, m.token, body, headerIdempotencyKey, "key-1")
	require.Equal(t, 200, again.status, again.body)
	require.Equal(t, `"`+e.get(m.id).Generation.Source.Digest+`"`, first.header.Get("ETag"))
	require.Equal(t, first.header.Get("ETag"), again.header.Get("ETag"))
	require.Equal(t, "true", again.header.Get(headerReplayed))
	require.Equal(t, first.body, again.body)
	other := e.sets(m, m.token, `{"all": {"KEY": "other"}}`, headerIdempotencyKey, "key-1")
	require.Equal(t, 422, other.status)
	require.Contains(t, other.detail(), "was used with another body")
	s, err := e.store.Get(t.Context(), m.id)
	require.NoError(t, err)
	require.Equal(t, 2, s.Attempt)
}
