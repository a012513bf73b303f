package integration

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEvents_AllBuildsComeBeforeTheFirstStart(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t).plus(Tree{"site/index.html": "hi"}), manifest(`
services:
  - {name: front, runtime: static, root: site, depends_on: [api]}
  - {name: api, runtime: node, start: node server.js, depends_on: [base]}
  - {name: base, runtime: node, start: node server.js}
`))
	events := h.events(t, st)
	require.Equal(t, []string{
		"stack.created",
		"service.building base", "service.building api", "service.building front",
		"service.ready base", "service.ready api", "service.ready front",
		"stack.live",
	}, types(events))
	for i, e := range events {
		require.Equal(t, st.ID, e.StackID)
		require.NotNil(t, e.Data)
		require.InDelta(t, st.CreatedAt, e.CreatedAt, 600)
		if i > 0 {
			require.Greater(t, e.ID, events[i-1].ID)
			require.GreaterOrEqual(t, e.CreatedAt, events[i-1].CreatedAt)
		}
	}
	require.Equal(t, map[string]any{"service": "base", "generation": 1.0, "attempt": 1.0}, events[1].Data)
	require.Equal(t, map[string]any{"service": "front", "url": st.URLs["front"]}, events[6].Data)
	live := events[7].Data
	require.EqualValues(t, 1, live["generation"])
	require.Equal(t, *st.ExpiresAt, live["expires_at"])
	require.Len(t, live["urls"], 3)
}

func TestEvents_OfAFailedDeployEndWithTheReason(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.deploy(t, page("x"), manifest("services: [{name: web, runtime: node, build: exit 4, start: x}]"))
	events := h.events(t, st)
	require.Equal(t, []string{"stack.created", "service.building web", "stack.failed"}, types(events))
	require.Equal(t, st.reason(), events[2].Data["error"])
}

func TestEvents_IdsIncreaseOverTheWholeServer(t *testing.T) {
	t.Parallel()
	h := start(t)
	one := h.live(t, page("one"), nil)
	two := h.live(t, page("two"), nil)
	first, second := h.events(t, one), h.events(t, two)
	require.Greater(t, second[0].ID, first[len(first)-1].ID)
	require.Equal(t, http.StatusOK, h.delete(t, two).status)
	three := h.events(t, h.live(t, page("three"), nil))
	require.Greater(t, three[0].ID, second[len(second)-1].ID, "an id was used twice")
}

func TestEvents_AfterIsACursor(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, page("hi"), nil)
	all := h.events(t, st)
	require.Equal(t, []string{"stack.created", "service.building web", "service.ready web", "stack.live"}, types(all))
	for i, e := range all {
		require.Equal(t, all[i+1:], append([]Event{}, h.eventsAfter(t, st, e.ID)...))
	}
	r := h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID+"/events?after=999999999")
	require.JSONEq(t, `{"events": []}`, r.body)
	for _, after := range []string{"x", "-1", "1.5"} {
		h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID+"/events?after="+after).refused(t, http.StatusBadRequest)
	}
}

func TestEvents_Come200APage(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, page("hi"), nil)
	// Each start of a server records one event of a live stack. The database is
	// given the rest directly, for 200 starts would take minutes.
	h.stop(t)
	h.addEvents(t, st, 450)
	h.run(t)
	h.onceRestored(t, st, 450+1)
	first := h.eventsAfter(t, st, 0)
	require.Len(t, first, 200)
	second := h.eventsAfter(t, st, first[199].ID)
	require.Len(t, second, 200)
	require.Greater(t, second[0].ID, first[199].ID)
	all := h.events(t, st)
	require.Len(t, all, 4+450+1)
	require.True(t, slices.IsSortedFunc(all, func(a, b Event) int { return int(a.ID - b.ID) }))
	require.True(t, strings.HasPrefix(all[len(all)-1].Type, "stack.restored"))
}
