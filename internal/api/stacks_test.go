package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
)

func TestHealth_NeedsNoToken(t *testing.T) {
	e := newEnv(t)
	r := e.send("GET", "/healthz", "", nil)
	require.Equal(t, 200, r.status)
	require.JSONEq(t, `{"ok":true}`, r.body)
	require.Equal(t, "application/json", r.header.Get("Content-Type"))
}

// stackFields is the stack object of docs/api.md, "The stack".
var stackFields = []string{
	"id", "name", "status", "claimed", "urls", "services", "created_at", "expires_at", "expired_at",
	"retained_until", "generation", "deploying", "error", "deploy_error", "deploy",
}

func keys(m map[string]any) []string {
	var names []string
	for k := range m {
		names = append(names, k)
	}
	return names
}

func TestShow_HasEveryFieldAndTheRole(t *testing.T) {
	e := newEnv(t)
	made := e.create("")
	id := made["id"].(string)
	r := e.send("GET", "/v0/stacks/"+id, made["manage_token"].(string), nil)
	require.Equal(t, 200, r.status)
	v := r.json()
	require.ElementsMatch(t, append(stackFields, "role"), keys(v))
	require.Equal(t, "agent", v["role"])
	require.Equal(t, "building", v["status"])
	require.EqualValues(t, 1, v["generation"])
	require.EqualValues(t, 1, v["deploying"])
	for _, null := range []string{"expired_at", "retained_until", "error", "deploy_error"} {
		require.Nil(t, v[null], null)
	}
	url := fmt.Sprintf("http://web-%s.localhost:8080", strings.TrimPrefix(id, "stk_"))
	require.Equal(t, map[string]any{"web": url}, v["urls"])
	require.Equal(t, []any{map[string]any{"name": "web", "runtime": "static", "status": "pending", "url": url}}, v["services"])
	require.InDelta(t, float64(time.Now().Unix()), v["created_at"], 60)
	require.InDelta(t, v["created_at"].(float64)+3600, v["expires_at"], 1e-3)
}

func TestShow_LiveAndFailed(t *testing.T) {
	e := newEnv(t)
	made := e.create("")
	id, token := made["id"].(string), made["manage_token"].(string)
	e.live(id)
	v := e.send("GET", "/v0/stacks/"+id, token, nil).json()
	require.Equal(t, "live", v["status"])
	require.Nil(t, v["deploying"])
	_, err := e.store.Update(t.Context(), id, func(s *stack.Stack) ([]stack.Event, error) {
		s.DeployError = "no"
		return s.RestoreFailed("out of <memory>")
	})
	require.NoError(t, err)
	r := e.send("GET", "/v0/stacks/"+id, token, nil)
	require.Equal(t, "failed", r.json()["status"])
	require.Contains(t, r.body, `"error":"out of <memory>"`, "not escaped for HTML")
	require.Equal(t, "no", r.json()["deploy_error"])
}

func TestShow_HasTheLatestDeploy(t *testing.T) {
	e := newEnv(t)
	made := e.create("")
	id, token := made["id"].(string), made["manage_token"].(string)
	deploy := func() map[string]any {
		return e.send("GET", "/v0/stacks/"+id, token, nil).json()["deploy"].(map[string]any)
	}
	began := deploy()
	require.InDelta(t, float64(time.Now().Unix()), began["started_at"], 60)
	require.Equal(t, map[string]any{
		"generation": 1.0, "attempt": 1.0, "outcome": "running", "phase": "queued", "service": nil, "problem": nil,
		"error": nil, "started_at": began["started_at"], "ended_at": nil,
	}, began)
	e.change(id, func(s *stack.Stack) ([]stack.Event, error) {
		return nil, s.Progressed(1, stack.Progress{Phase: stack.PhaseHealth, Service: "web", Problem: "it listens elsewhere"})
	})
	now := deploy()
	require.Equal(t, []any{"health", "web", "it listens elsewhere"}, []any{now["phase"], now["service"], now["problem"]})
	e.fail(id)
	ended := deploy()
	require.InDelta(t, float64(time.Now().Unix()), ended["ended_at"], 60)
	require.Equal(t, []any{"failed", "it broke", "health", "web", nil}, []any{ended["outcome"], ended["error"], ended["phase"], ended["service"], ended["problem"]})
	e.change(id, func(s *stack.Stack) ([]stack.Event, error) {
		s.LastDeploy = stack.Deploy{}
		return nil, nil
	})
	v := e.send("GET", "/v0/stacks/"+id, token, nil).json()
	require.Contains(t, v, "deploy")
	require.Nil(t, v["deploy"], "an earlier version made it")
}

func TestAccess_ChecksInOrder(t *testing.T) {
	e := newEnv(t)
	_, key := e.account("ana@example.com")
	_, otherKey := e.account("bo@example.com")
	anonymous, owned := e.create(""), e.create(key)
	gone := e.create("")
	token, id := anonymous["manage_token"].(string), anonymous["id"].(string)
	require.Equal(t, 200, e.send("DELETE", "/v0/stacks/"+gone["id"].(string), gone["manage_token"].(string), nil).status)
	ownedID, ownedToken := owned["id"].(string), owned["manage_token"].(string)
	tests := []struct {
		name, id, authorization string
		status                  int
	}{
		{"its manage token", id, "Bearer " + token, 200},
		{"scheme in lower case", id, "bearer " + token, 200},
		{"scheme in upper case, spaces", id, "BEARER   " + token + " ", 200},
		{"owner's key", ownedID, "Bearer " + key, 200},
		{"manage token of an owned stack", ownedID, "Bearer " + ownedToken, 200},
		{"no header", id, "", 401},
		{"no header, unknown stack", "stk_000000000000", "", 401},
		{"another scheme", id, "Basic " + token, 401},
		{"no token", id, "Bearer", 401},
		{"unknown value", id, "Bearer whatever", 401},
		{"unknown key", id, "Bearer " + auth.NewAPIKey(), 401},
		{"unknown key, unknown stack", "stk_000000000000", "Bearer " + auth.NewAPIKey(), 401},
		{"unknown stack", "stk_000000000000", "Bearer " + token, 404},
		{"no id", "nonsense", "Bearer " + token, 404},
		{"unknown stack, unknown manage token", "stk_000000000000", "Bearer " + auth.NewManageToken(), 404},
		{"deleted stack", gone["id"].(string), "Bearer " + gone["manage_token"].(string), 404},
		{"deleted stack, other key", gone["id"].(string), "Bearer " + key, 404},
		{"token of another stack", ownedID, "Bearer " + token, 403},
		{"token of a deleted stack", id, "Bearer " + gone["manage_token"].(string), 403},
		{"manage token that no stack has", id, "Bearer " + auth.NewManageToken(), 403},
		{"key on an unclaimed stack", id, "Bearer " + key, 403},
		{"another account's key", ownedID, "Bearer " + otherKey, 403},
	}
	for _, tt := range tests {
		for _, path := range []string{"", "/events", "/logs?kind=nonsense"} {
			t.Run(tt.name+path, func(t *testing.T) {
				var header []string
				if tt.authorization != "" {
					header = []string{"Authorization", tt.authorization}
				}
				r := e.send("GET", "/v0/stacks/"+tt.id+path, "", nil, header...)
				if tt.status == 200 {
					require.NotContains(t, []int{401, 403, 404}, r.status, r.body)
					return
				}
				require.Equal(t, tt.status, r.status, r.body)
				r.t = t
				require.NotEmpty(t, r.detail())
				require.Equal(t, tt.status == 401, r.header.Get("WWW-Authenticate") == "Bearer")
			})
		}
	}
}

func TestAccess_TellsOnlyTheRevokedTokenOfItsRevocation(t *testing.T) {
	e := newEnv(t)
	_, key := e.account("ana@example.com")
	_, otherKey := e.account("bo@example.com")
	m, other := e.creates(key), e.creates("")
	e.change(m.id, func(s *stack.Stack) ([]stack.Event, error) { return s.RevokeAgent() })
	for name, tt := range map[string]struct {
		token string
		told  bool
	}{
		"the revoked token":               {m.token, true},
		"another account's key":           {otherKey, false},
		"the token of another stack":      {other.token, false},
		"a token that no stack has":       {auth.NewManageToken(), false},
		"a token that is only its prefix": {auth.ManageTokenPrefix, false},
	} {
		r := e.send("GET", "/v0/stacks/"+m.id, tt.token, nil)
		require.Equal(t, 403, r.status, name)
		require.Equal(t, tt.told, strings.Contains(r.detail(), "revoked"), "%s: %s", name, r.detail())
		require.NotEqual(t, tt.told, strings.Contains(r.detail(), "use the manage_token"), "%s: %s", name, r.detail())
	}
}

func TestAccess_SeveralHeadersAre401(t *testing.T) {
	e := newEnv(t)
	made := e.create("")
	token := made["manage_token"].(string)
	r := e.send("GET", "/v0/stacks/"+made["id"].(string), token, nil, "Authorization", "Bearer "+token)
	require.Equal(t, 401, r.status)
}

func TestShow_RoleOwner(t *testing.T) {
	e := newEnv(t)
	_, key := e.account("ana@example.com")
	made := e.create(key)
	v := e.send("GET", "/v0/stacks/"+made["id"].(string), key, nil).json()
	require.Equal(t, "owner", v["role"])
	require.Equal(t, true, v["claimed"])
	require.Nil(t, v["expires_at"])
}

func TestDelete_EndsTheStackAndItsToken(t *testing.T) {
	e := newEnv(t)
	made := e.create("")
	id, token := made["id"].(string), made["manage_token"].(string)
	r := e.send("DELETE", "/v0/stacks/"+id, token, nil)
	require.Equal(t, 200, r.status)
	require.JSONEq(t, fmt.Sprintf(`{"id":%q,"status":"deleted"}`, id), r.body)
	r = e.send("DELETE", "/v0/stacks/"+id, token, nil)
	require.Equal(t, 404, r.status)
	require.Contains(t, r.detail(), id)
}

func TestEvents_PagesByCursor(t *testing.T) {
	e := newEnv(t)
	made := e.create("")
	id, token := made["id"].(string), made["manage_token"].(string)
	for range 3 {
		_, err := e.store.Update(t.Context(), id, func(s *stack.Stack) ([]stack.Event, error) {
			return make([]stack.Event, 100), nil
		})
		require.NoError(t, err)
	}
	first := e.send("GET", "/v0/stacks/"+id+"/events", token, nil).json()["events"].([]any)
	require.Len(t, first, 200)
	created := first[0].(map[string]any)
	require.ElementsMatch(t, []string{"id", "stack_id", "type", "data", "created_at"}, keys(created))
	require.Equal(t, "stack.created", created["type"])
	require.Equal(t, map[string]any{"anonymous": true}, created["data"])
	last := first[199].(map[string]any)
	path := fmt.Sprintf("/v0/stacks/%s/events?after=%v", id, last["id"])
	require.Len(t, e.send("GET", path, token, nil).json()["events"], 101)
	r := e.send("GET", "/v0/stacks/"+id+"/events?after=9223372036854775807", token, nil)
	require.JSONEq(t, `{"events":[]}`, r.body)
}

func TestEvents_RefusesABadCursor(t *testing.T) {
	e := newEnv(t)
	made := e.create("")
	for _, after := range []string{"x", "-1", "1.5", "9223372036854775808"} {
		r := e.send("GET", "/v0/stacks/"+made["id"].(string)+"/events?after="+after, made["manage_token"].(string), nil)
		require.Equal(t, 400, r.status, after)
		require.Contains(t, r.detail(), after)
	}
}

// waiting sends GET ?wait=true and returns its answer's channel once the
// request waits.
func (e *env) waiting(ctx context.Context, id, token string) <-chan *http.Response {
	e.t.Helper()
	req := newRequest(e.t, "GET", "/v0/stacks/"+id+"?wait=true", token, nil).WithContext(ctx)
	answered := make(chan *http.Response, 1)
	go func() {
		defer close(answered)
		if res, err := e.client.Do(req); err == nil {
			answered <- res
		}
	}()
	return answered
}

func TestWait_EndsWhenTheBuildDoes(t *testing.T) {
	e := newEnv(t)
	made := e.create("")
	id := made["id"].(string)
	answered := e.waiting(t.Context(), id, made["manage_token"].(string))
	e.live(id)
	require.Equal(t, "live", readReply(t, <-answered).json()["status"])
}

func TestWait_TellsOfTheAnswerThatItHolds(t *testing.T) {
	held := make(chan string, 1)
	e := newEnv(t, func(c *Config) { c.Held = func(requestID string) { held <- requestID } })
	made := e.create("")
	require.Empty(t, held, "its answer was not held")
	req := newRequest(t, "GET", "/v0/stacks/"+made["id"].(string)+"?wait=true", made["manage_token"].(string), nil)
	req.Header.Set("X-Request-Id", "mine")
	go e.client.Do(req.WithContext(t.Context()))
	require.Equal(t, "mine", <-held)
	e.live(made["id"].(string))
}

func TestWait_EndsWithTheTime(t *testing.T) {
	e := newEnv(t, func(c *Config) { c.Wait = time.Millisecond })
	made := e.create("")
	r := e.send("GET", "/v0/stacks/"+made["id"].(string)+"?wait", made["manage_token"].(string), nil)
	require.Equal(t, "building", r.json()["status"])
}

func TestWait_EndsWithTheServer(t *testing.T) {
	e := newEnv(t)
	made := e.create("")
	answered := e.waiting(t.Context(), made["id"].(string), made["manage_token"].(string))
	e.api.Release()
	require.Equal(t, "building", readReply(t, <-answered).json()["status"])
}

func TestWait_EndsWhenTheStackIsDeleted(t *testing.T) {
	e := newEnv(t)
	made := e.create("")
	id := made["id"].(string)
	answered := e.waiting(t.Context(), id, made["manage_token"].(string))
	require.NoError(t, e.host.Delete(t.Context(), id))
	require.Equal(t, 404, readReply(t, <-answered).status)
}

// countingStore counts watchers.
type countingStore struct {
	Store
	began, ended chan struct{}
}

func (s countingStore) Watch(id string) (<-chan struct{}, func()) {
	wake, stop := s.Store.Watch(id)
	s.began <- struct{}{}
	return wake, func() { stop(); s.ended <- struct{}{} }
}

func TestWait_EndsWhenTheClientGoes(t *testing.T) {
	watched := countingStore{began: make(chan struct{}, 1), ended: make(chan struct{}, 1)}
	e := newEnv(t, func(c *Config) { watched.Store = c.Store; c.Store = watched })
	made := e.create("")
	ctx, leave := context.WithCancel(t.Context())
	e.waiting(ctx, made["id"].(string), made["manage_token"].(string))
	<-watched.began
	leave()
	<-watched.ended
}

func TestWait_KeepsTheConnectionInStep(t *testing.T) {
	e := newEnv(t, func(c *Config) { c.Wait = time.Millisecond })
	made := e.create("")
	w := e.dial()
	for range 3 {
		w.printf("GET /v0/stacks/%s?wait=true HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n\r\nGET /healthz HTTP/1.1\r\nHost: a\r\n\r\n",
			made["id"], made["manage_token"])
		require.Contains(t, w.reply().body, `"building"`)
		require.JSONEq(t, `{"ok":true}`, w.reply().body)
		w.printf("GET /v0/stacks/%s?wait=true HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n\r\n",
			made["id"], made["manage_token"])
		require.Contains(t, w.reply().body, `"building"`)
	}
}

func TestWait_RefusesNonsense(t *testing.T) {
	e := newEnv(t)
	made := e.create("")
	r := e.send("GET", "/v0/stacks/"+made["id"].(string)+"?wait=maybe", made["manage_token"].(string), nil)
	require.Equal(t, 400, r.status)
	r = e.send("GET", "/v0/stacks/"+made["id"].(string)+"?wait=false", made["manage_token"].(string), nil)
	require.Equal(t, 200, r.status)
}
