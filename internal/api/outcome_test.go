package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
)

// deployTo sends a deploy of a page with a query and headers.
func (e *env) deployTo(m made, query string, header ...string) reply {
	e.t.Helper()
	body, contentType := makeForm(e.t, sourcePart(site(e.t)))
	return e.send("POST", "/v0/stacks/"+m.id+"/deploy"+query, m.token, body, append(header, "Content-Type", contentType)...)
}

// deployOf returns the deploy in an answer.
func deployOf(r reply) map[string]any { return r.json()["deploy"].(map[string]any) }

// attempt waits until a stack builds an attempt.
func (e *env) attempt(id string, number int) {
	e.t.Helper()
	require.Eventually(e.t, func() bool {
		s, err := e.store.Get(e.t.Context(), id)
		return err == nil && s.Attempt == number
	}, time.Minute, time.Millisecond)
}

func TestSupersede_IsAFieldOfEveryForm(t *testing.T) {
	e := newEnv(t)
	m := e.creates("")
	require.Equal(t, 200, e.redeploy(m.id, m.token).status)
	refused := e.redeploy(m.id, m.token)
	require.Equal(t, 409, refused.status)
	require.Equal(t, "5", refused.header.Get("Retry-After"))
	require.Contains(t, refused.detail(), "a build of this stack is already running (attempt 2, generation 2); wait for it with GET")
	require.Contains(t, refused.detail(), "supersede=true")

	for attempt, send := range []func() reply{
		func() reply { return e.deployTo(m, "?supersede=true") },
		func() reply { return e.deployTo(m, "?supersede") },
		func() reply { return e.redeploy(m.id, m.token, sourcePart(site(t)), textPart("supersede", "true")) },
		func() reply {
			return e.send("POST", "/v0/stacks/"+m.id+"/deploy", m.token, strings.NewReader(`{"files": {"index.html": "hi"}, "supersede": true}`))
		},
	} {
		r := send()
		require.Equal(t, 200, r.status, r.body)
		require.Equal(t, []any{2.0, float64(attempt + 3), "running"}, []any{deployOf(r)["generation"], deployOf(r)["attempt"], deployOf(r)["outcome"]})
	}
	for _, no := range []string{"?supersede=false", "?supersede=0"} {
		require.Equal(t, 409, e.deployTo(m, no).status)
	}
	require.Equal(t, 400, e.deployTo(m, "?supersede=maybe").status)
	require.Equal(t, 400, e.redeploy(m.id, m.token, sourcePart(site(t)), textPart("supersede", "maybe")).status)
	require.Equal(t, 422, e.redeploy(m.id, m.token, sourcePart([]byte("no archive \x00")), textPart("supersede", "true")).status)
	s, err := e.store.Get(t.Context(), m.id)
	require.NoError(t, err)
	require.Equal(t, 6, s.Attempt, "what is refused ends nothing")
	e.nothingLeft()
}

func TestSupersede_AnswersWhoeverWaitsForTheSupersededDeploy(t *testing.T) {
	e := newEnv(t)
	m := e.creates("")
	for query, status := range map[string]int{"?wait=true": 200, "?wait=true&fail=true": 422} {
		before := e.get(m.id)
		mine, reason := before.Attempt+1, fmt.Sprintf("attempt %d was superseded by attempt %d", before.Attempt+1, before.Attempt+2)
		answer := make(chan reply, 1)
		go func() { answer <- e.deployTo(m, query) }()
		e.attempt(m.id, mine)
		for i := range 3 {
			require.Equal(t, 200, e.deployTo(m, "?supersede=true").status, i)
		}
		r := <-answer
		require.Equal(t, status, r.status, r.body)
		if status == 200 {
			require.Equal(t, []any{float64(mine), "superseded", reason, nil}, []any{deployOf(r)["attempt"], deployOf(r)["outcome"], deployOf(r)["error"], deployOf(r)["phase"]})
			require.NotNil(t, deployOf(r)["started_at"])
			require.NotNil(t, deployOf(r)["ended_at"])
			require.EqualValues(t, before.Generation.Number+1, r.json()["deploying"])
		} else {
			require.Equal(t, reason, r.detail())
		}
		e.live(m.id)
	}
}

func TestSupersede_OfTheFirstBuildAnswersItsCreate(t *testing.T) {
	e := newEnv(t)
	answer := make(chan reply, 1)
	body, contentType := makeForm(t, sourcePart(site(t)), textPart("name", "first"))
	go func() { answer <- e.send("POST", "/v0/stacks?wait=true", "", body, "Content-Type", contentType) }()
	var all []*stack.Stack
	require.Eventually(t, func() bool {
		var err error
		all, err = e.store.All(t.Context())
		return err == nil && len(all) == 1
	}, time.Minute, time.Millisecond)
	e.change(all[0].ID, func(s *stack.Stack) ([]stack.Event, error) { return s.Supersede(s.Generation.Services, stack.Now()) })
	r := <-answer
	require.Equal(t, 201, r.status)
	require.Equal(t, "building", r.json()["status"])
	require.Equal(t, "superseded", deployOf(r)["outcome"])
	require.NotEmpty(t, r.json()["manage_token"])
}

func TestSupersede_IsDoneOnceForAKey(t *testing.T) {
	e := newEnv(t)
	m := e.creates("")
	require.Equal(t, 200, e.redeploy(m.id, m.token).status)
	for range 3 {
		r := e.deployTo(m, "?supersede=true", "Idempotency-Key", "once")
		require.Equal(t, 200, r.status, r.body)
		require.EqualValues(t, 3, deployOf(r)["attempt"])
	}
	e.fail(m.id)
	r := e.deployTo(m, "?supersede=true&wait=true&fail=true", "Idempotency-Key", "once")
	require.Equal(t, 422, r.status)
	require.Equal(t, "it broke", r.detail())
	require.Equal(t, "true", r.header.Get("Idempotent-Replayed"))
}

func TestFail_MakesADeployThatDidNotGoLiveAnError(t *testing.T) {
	e := newEnv(t)
	m := e.creates("")
	ends := func(query string, end func(string), header ...string) reply {
		before, err := e.store.Get(t.Context(), m.id)
		require.NoError(t, err)
		answer := make(chan reply, 1)
		go func() { answer <- e.deployTo(m, query, header...) }()
		e.attempt(m.id, before.Attempt+1)
		end(m.id)
		return <-answer
	}
	r := ends("?wait=true&fail=true", e.fail, "Idempotency-Key", "k")
	require.Equal(t, 422, r.status)
	require.JSONEq(t, `{"detail": "it broke"}`, r.body)
	again := e.deployTo(m, "?wait=true&fail=true", "Idempotency-Key", "k")
	require.Equal(t, []any{422, "it broke"}, []any{again.status, again.detail()})
	require.Equal(t, 200, e.deployTo(m, "?wait=true", "Idempotency-Key", "k").status)

	require.Equal(t, 200, ends("?wait=true", e.fail).status, "as specified")
	r = ends("?wait=true&fail=true", e.live)
	require.Equal(t, 200, r.status)
	require.Equal(t, "live", deployOf(r)["outcome"])

	// Of a failed stack, whose status says it as well.
	e.change(m.id, func(s *stack.Stack) ([]stack.Event, error) { return s.RestoreFailed("it does not start") })
	r = ends("?wait=true&fail=true", e.fail)
	require.Equal(t, []any{422, "it broke"}, []any{r.status, r.detail()})

	for query, detail := range map[string]string{"?fail=true": "needs wait=true", "?fail": "needs wait=true", "?wait=true&fail=maybe": "fail must be true or false"} {
		r := e.deployTo(m, query)
		require.Equal(t, 400, r.status)
		require.Contains(t, r.detail(), detail)
	}
}

// What is shown once is shown although the deploy fails.
func TestFail_KeepsTheSecretOfTheFirstWebhook(t *testing.T) {
	e := newEnv(t)
	m := e.creates("")
	answer := make(chan reply, 1)
	body, contentType := makeForm(t, sourcePart(site(t)), webhookPart("https://example.com/hook"))
	go func() {
		answer <- e.send("POST", "/v0/stacks/"+m.id+"/deploy?wait=true&fail=true", m.token, body, "Content-Type", contentType)
	}()
	e.attempt(m.id, 2)
	e.fail(m.id)
	r := <-answer
	require.Equal(t, 422, r.status)
	require.Equal(t, "it broke", r.json()["detail"])
	require.Regexp(t, `^whsec_`, r.json()["webhook_secret"])
}
