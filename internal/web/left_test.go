package web

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
)

func TestStackPage_NamesTheDataThatIsLeftOnOtherNodes(t *testing.T) {
	e := newEnv(t, func(c *Config) { c.NodeName = func(id string) string { return "host-" + id } })
	b := e.signedUp(ana)
	id, other := e.owned(b, "guestbook"), e.owned(b, "other")
	e.change(id, func(s *stack.Stack) ([]stack.Event, error) { s.Node, s.Epoch = "n2", 1; return nil, nil })
	require.NotContains(t, b.get("/dashboard/stacks/"+id).body, "has data of this stack")
	require.NoError(t, e.store.MarkRemains(t.Context(), id, "n1", []string{"berth-x-web"}))
	r := b.get("/dashboard/stacks/" + id)
	require.Equal(t, 200, r.status)
	require.Contains(t, r.body, "Node host-n1 has data of this stack")
	require.Contains(t, r.body, "berth-x-web")
	require.NotContains(t, b.get("/dashboard/stacks/"+other).body, "has data of this stack")
}

func TestStackPage_SaysFromWhichMomentRestoredDataIs(t *testing.T) {
	e := newEnv(t)
	b := e.signedUp(ana)
	id := e.owned(b, "guestbook")
	restored := func(inMotion bool) string {
		e.change(id, func(s *stack.Stack) ([]stack.Event, error) {
			s.Regained = stack.Snapshot{At: time.Date(2026, 11, 25, 12, 30, 0, 0, time.UTC), InMotion: inMotion}
			return nil, nil
		})
		return b.get("/dashboard/stacks/" + id).body
	}
	require.NotContains(t, b.get("/dashboard/stacks/"+id).body, "was lost")
	page := restored(false)
	require.Contains(t, page, "The node of this stack was lost")
	require.Contains(t, page, `<time datetime="2026-11-25T12:30:00Z">25 Nov 2026, 12:30 UTC</time>`)
	require.NotContains(t, page, "different moments")
	require.Contains(t, restored(true), "different moments")
}
