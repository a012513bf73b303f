package api

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
)

// fresh reports whether the latest deploy of a stack is built without anything that
// earlier builds left.
func (e *env) fresh(m made) bool { return e.get(m.id).LastDeploy.Fresh }

func TestFresh_IsAFieldOfEveryForm(t *testing.T) {
	for name, c := range map[string]struct {
		send  func(e *env, m made) reply
		fresh bool
	}{
		"in the query":              {func(e *env, m made) reply { return e.deployTo(m, "?fresh=true") }, true},
		"in the query, by its name": {func(e *env, m made) reply { return e.deployTo(m, "?fresh") }, true},
		"in the form": {func(e *env, m made) reply {
			return e.redeploy(m.id, m.token, sourcePart(site(t)), textPart("fresh", "true"))
		}, true},
		"in JSON": {func(e *env, m made) reply {
			return e.posts("/v0/stacks/"+m.id+"/deploy", m.token, "", `{"files": {"index.html": "hi"}, "fresh": true}`)
		}, true},
		"with changes": {func(e *env, m made) reply {
			return e.over(m, "base=1&fresh=true", sourcePart(tarOf(t, "src/app.js", "new()")))
		}, true},
		"beside supersede": {func(e *env, m made) reply { return e.deployTo(m, "?fresh=true&supersede=true") }, true},
		"not in the query": {func(e *env, m made) reply { return e.deployTo(m, "?fresh=false") }, false},
		"not in JSON": {func(e *env, m made) reply {
			return e.posts("/v0/stacks/"+m.id+"/deploy", m.token, "", `{"files": {"index.html": "hi"}, "fresh": false}`)
		}, false},
		"left out": {func(e *env, m made) reply { return e.deployTo(m, "") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			m := e.creates("", sourcePart(tarOf(t, project...)))
			r := c.send(e, m)
			require.Equal(t, 200, r.status, r.body)
			require.Equal(t, c.fresh, e.fresh(m))
			require.EqualValues(t, 2, deployOf(r)["generation"])
			e.live(m.id)
			require.Equal(t, 200, e.deployTo(m, "").status)
			require.False(t, e.fresh(m), "the next deploy is like any other")
			e.nothingLeft()
		})
	}
}

func TestFresh_AloneBuildsTheKeptSource(t *testing.T) {
	e := newEnv(t)
	m := e.creates("", sourcePart(tarOf(t, project...)))
	before := e.files(m)
	for name, send := range map[string]func() reply{
		"in the query": func() reply { return e.over(m, "fresh=true") },
		"in the query of an empty form": func() reply {
			body, contentType := makeForm(t)
			return e.send("POST", "/v0/stacks/"+m.id+"/deploy?fresh=true", m.token, body, "Content-Type", contentType)
		},
		"in the form": func() reply { return e.over(m, "", textPart("fresh", "true")) },
		"in JSON": func() reply {
			return e.posts("/v0/stacks/"+m.id+"/deploy", m.token, "", `{"fresh": true}`)
		},
		"with a manifest": func() reply {
			return e.over(m, "fresh=true", textPart("manifest", "services: [{name: site, runtime: static}]"))
		},
	} {
		r := send()
		require.Equal(t, 200, r.status, "%s: %s", name, r.body)
		require.True(t, e.fresh(m), name)
		require.Equal(t, e.send("HEAD", "/v0/stacks/"+m.id+"/source", m.token, nil).header.Get("ETag"), r.header.Get("ETag"), name)
		e.live(m.id)
		require.Equal(t, before, e.files(m), name)
	}
	e.nothingLeft()
}

func TestFresh_IsRefusedWithTheReason(t *testing.T) {
	e := newEnv(t)
	m := e.creates("", sourcePart(tarOf(t, project...)))
	const isFlag = `fresh must be true or false, not "maybe"`
	for name, c := range map[string]struct {
		send   func() reply
		detail string
	}{
		"no flag in the query":  {func() reply { return e.deployTo(m, "?fresh=maybe") }, isFlag},
		"no flag, nothing else": {func() reply { return e.over(m, "fresh=maybe") }, isFlag},
		"no flag in the form": {func() reply {
			return e.redeploy(m.id, m.token, sourcePart(site(t)), textPart("fresh", "maybe"))
		}, isFlag},
		"no flag in JSON": {func() reply {
			return e.posts("/v0/stacks/"+m.id+"/deploy", m.token, "", `{"fresh": "maybe"}`)
		}, isFlag},
		"given twice": {func() reply {
			return e.over(m, "fresh=true", textPart("fresh", "true"))
		}, "fresh is given twice"},
		"false alone": {func() reply { return e.over(m, "fresh=false") }, "no source"},
		"false alone in JSON": {func() reply {
			return e.posts("/v0/stacks/"+m.id+"/deploy", m.token, "", `{"fresh": false}`)
		}, "no source"},
		"in a create": {func() reply {
			body, contentType := makeForm(t, sourcePart(site(t)), textPart("fresh", "true"))
			return e.send("POST", "/v0/stacks", "", body, "Content-Type", contentType)
		}, `unknown form field "fresh"`},
		"in a create in JSON": {func() reply {
			return e.posts("/v0/stacks", "", "", `{"files": {"index.html": "hi"}, "fresh": true}`)
		}, `unknown field "fresh"`},
	} {
		r := c.send()
		require.Equal(t, 400, r.status, "%s: %s", name, r.body)
		require.Contains(t, r.detail(), c.detail, name)
	}
	require.Equal(t, 1, e.get(m.id).Attempt)
	require.Len(t, e.stacks(), 1)

	require.Equal(t, 200, e.deployTo(m, "").status)
	require.Equal(t, 409, e.over(m, "fresh=true").status, "while another deploy runs")
	s := e.get(m.id)
	require.Equal(t, []any{2, 0, false}, []any{s.Attempt, s.CachesDropped, s.LastDeploy.Fresh}, "what is refused drops nothing")
	e.nothingLeft()
}

func TestFresh_AloneNeedsAKeptSource(t *testing.T) {
	e := newEnv(t)
	m := e.creates("")
	e.change(m.id, func(s *stack.Stack) ([]stack.Event, error) { s.Generation.Source = stack.Source{}; return nil, nil })
	r := e.over(m, "fresh=true")
	require.Equal(t, 409, r.status, r.body)
	require.Contains(t, r.detail(), "send the whole source")
	require.Zero(t, e.get(m.id).CachesDropped)
	require.Equal(t, 200, e.deployTo(m, "?fresh=true").status)
}

func TestFresh_IsDoneOnceForAKey(t *testing.T) {
	e := newEnv(t)
	m := e.creates("", sourcePart(tarOf(t, project...)))
	for range 2 {
		require.Equal(t, 200, e.send("POST", "/v0/stacks/"+m.id+"/deploy?fresh=true", m.token, nil, "Idempotency-Key", "once").status)
	}
	require.Equal(t, 2, e.get(m.id).Attempt)
	r := e.deployTo(m, "", "Idempotency-Key", "once")
	require.Equal(t, 422, r.status, "the same key for a deploy that is not fresh: %s", r.body)
}
