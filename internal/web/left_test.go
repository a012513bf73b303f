package web

import (
	"testing"

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
