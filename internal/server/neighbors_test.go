package server

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/cluster"
	"github.com/berth-host/berth/internal/stack"
)

// An account goes by the same rules as DELETE of its stacks.
func TestHeirOf_IsAnotherNodeOnlyForALostOne(t *testing.T) {
	nodes := []cluster.Node{
		{ID: "n1", Name: "w1", State: cluster.Ready},
		{ID: "n2", Name: "w2", State: cluster.Ready},
		{ID: "n3", Name: "w3", State: cluster.Away},
		{ID: "n4", Name: "w4", State: cluster.Lost},
	}
	heir := heirOf(nodes, "n1")
	for node, want := range map[string]string{"n1": "n1", "n2": "n2", "n4": "n1", "forgotten": "n1"} {
		got, err := heir(node)
		require.NoError(t, err, node)
		require.Equal(t, want, got, node)
	}
	_, err := heir("n3")
	require.Equal(t, stack.Unavailable, stack.KindOf(err))
	require.ErrorContains(t, err, "the node w3, which has a stack of the account, does not answer")
	got, err := heirOf(nodes, "n3")("n3")
	require.NoError(t, err, "this node itself, before it has read that it is back")
	require.Equal(t, "n3", got)
	got, err = heirOf(nodes, "")("n4")
	require.NoError(t, err)
	require.Equal(t, "n4", got, "no node is there to be the heir")
	require.Nil(t, (&Server{}).heirs(), "on one machine")
}
