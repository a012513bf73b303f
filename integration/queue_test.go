package integration

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestQueue_BuildsTakeTurnsAndTheirLogsTellThePlace(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_MAX_BUILDS", "1"))
	// The first build goes on until its stack is deleted.
	held := h.create(t, page("x"), manifest("services: [{name: web, runtime: node, build: 'echo it builds; sleep 600', start: x}]"))
	h.logged(t, held, "kind=build", "\nit builds\n")
	var waiting []*Stack
	for i := range 4 {
		st := h.create(t, program(t), manifest("services: [{name: web, runtime: node, build: echo mine, start: node server.js}]"))
		h.logged(t, st, "kind=build", fmt.Sprintf("place %d in line\n", i+1))
		require.NotContains(t, h.logs(t, st, "kind=build"), "== build web")
		require.Equal(t, []string{"stack.created"}, types(h.events(t, st)), "a build that waits has not begun")
		waiting = append(waiting, st)
	}
	// One that gives up lets those behind it move on.
	require.Equal(t, 200, h.delete(t, waiting[0]).status)
	for i, st := range waiting[1:] {
		h.logged(t, st, "kind=build", fmt.Sprintf("place %d in line\n", i+1))
	}
	require.Equal(t, 200, h.delete(t, held).status)
	last := int64(0)
	for _, st := range waiting[1:] {
		h.mustLive(t, st)
		events := h.events(t, st)
		require.Equal(t, "service.building web", types(events)[1])
		require.Greater(t, events[1].ID, last, "the first to ask is the first to build")
		last = events[1].ID
	}
}

func TestQueue_ASiteWithoutCommandsNeedsNoSlot(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_MAX_BUILDS", "1"))
	held := h.create(t, page("x"), manifest("services: [{name: web, runtime: node, build: 'echo it builds; sleep 600', start: x}]"))
	h.logged(t, held, "kind=build", "\nit builds\n")
	st := h.live(t, page("the site"), nil)
	require.Equal(t, "the site", h.get(t, st.url("web", "/")).body)
	require.Equal(t, "building", h.show(t, held, "").Status)
}

func TestQueue_ServicesOfOneStackTakeTurnsToo(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_MAX_BUILDS", "1"))
	st := h.live(t, program(t), manifest(`
services:
  - {name: a, runtime: node, build: echo a, start: node server.js}
  - {name: b, runtime: node, build: echo b, start: node server.js}
  - {name: c, runtime: node, build: echo c, start: node server.js}
`))
	for _, service := range []string{"a", "b", "c"} {
		require.Equal(t, "hello from "+service, h.get(t, st.url(service, "/")).body)
	}
}

func TestQueue_AsManyBuildAtOnceAsThereAreSlots(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_MAX_BUILDS", "2"))
	fields := manifest("services: [{name: web, runtime: node, build: 'echo it builds; sleep 600', start: x}]")
	for range 2 {
		h.logged(t, h.create(t, page("x"), fields), "kind=build", "\nit builds\n")
	}
	h.logged(t, h.create(t, page("x"), fields), "kind=build", "place 1 in line\n")
}

func TestQueue_AnotherClientsBuildDoesNotWaitForAllThatCameBefore(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_MAX_BUILDS", "2"), with("BERTH_TRUSTED_PROXIES", "127.0.0.1"))
	fields := manifest("services: [{name: web, runtime: node, build: 'echo it builds; sleep 600', start: x}]")
	create := func(client string) *Stack {
		r := h.post(t, archive(t, page("x")), fields, "", "X-Forwarded-For", client)
		require.Equal(t, 201, r.status, r.body)
		return r.stack(t)
	}
	first, second := create("192.0.2.1"), create("192.0.2.1")
	for _, st := range []*Stack{first, second} {
		h.logged(t, st, "kind=build", "\nit builds\n")
	}
	third := create("192.0.2.1")
	h.logged(t, third, "kind=build", "place 1 in line\n")
	other := create("192.0.2.2")
	h.logged(t, other, "kind=build", "place 1 in line\n")
	h.logged(t, third, "kind=build", "place 2 in line\n")
	require.Equal(t, 200, h.delete(t, first).status)
	h.logged(t, other, "kind=build", "\nit builds\n")
	h.logged(t, third, "kind=build", "place 2 in line\nwaiting for a build slot: place 1 in line\n")
}
