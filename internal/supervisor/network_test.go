package supervisor

import (
	"log/slog"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/stack"
)

func TestEnsureNetwork_HasTheFirewallKnowANetworkThatIsThere(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		g := w.served(st)
		looks := w.looks.Load()
		require.NoError(t, g.ensureNetwork(w.t.Context()))
		require.Equal(t, looks, w.looks.Load(), "of a stack that nobody has claimed")
		require.NoError(t, w.claim(st.ID))
		synctest.Wait()
		looks = w.looks.Load()
		require.NoError(t, g.ensureNetwork(w.t.Context()))
		require.Equal(t, looks+1, w.looks.Load())
	})
}

func TestBuild_IsOnANetworkThatGoesWithIt(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(compiled("web"))
		for generation := 2; generation <= 3; generation++ {
			builds := engine.Key{Stack: st.ID, Generation: generation}.Builds().Network()
			var while noted[bool]
			w.command(func(*enginetest.Process) int {
				while.set(w.there(st).HasNetwork(builds))
				return generation - 2 // so that the second one fails
			})
			w.deployOf(st.ID, dependencies("1", strconv.Itoa(generation)), compiled("web"))
			w.settle()
			require.True(t, while.get())
			require.False(t, w.there(st).HasNetwork(builds))
		}
	})
}

func TestLeftovers_AreTheNetworksThatTheServedGenerationIsNotOn(t *testing.T) {
	const former, served, next = "berth-3f2a9c1b7d4e", "berth-3f2a9c1b7d4e-g2", "berth-3f2a9c1b7d4e-g3"
	const builds = "berth-3f2a9c1b7d4e-g2-build"
	s := New(Config{Store: newMemstore(), Log: slog.New(slog.DiscardHandler)})
	for _, c := range []struct {
		status stack.Status
		there  []string
		left   []string
	}{
		{stack.Live, []string{served}, nil},
		{stack.Live, []string{served, next}, []string{next}},
		{stack.Live, []string{served, builds}, []string{builds}},
		{stack.Live, []string{former}, nil},
		{stack.Live, []string{former, next}, []string{next}},
		{stack.Live, []string{former, served}, []string{former}},
		{stack.Failed, []string{former, served}, []string{former, served}},
		{stack.Expired, []string{served}, []string{served}},
	} {
		var there engine.Objects
		for _, name := range c.there {
			there.Networks = append(there.Networks, engine.Network{Name: name})
		}
		var left []string
		for _, n := range s.leftovers(&stack.Stack{ID: "stk_3f2a9c1b7d4e", Generation: stack.Generation{Number: 2}, Status: c.status}, there).objects.Networks {
			left = append(left, n.Name)
		}
		assert.Equal(t, c.left, left, "of a %s stack with %v", c.status, c.there)
	}
}

// A server that was killed while it pushed an image leaves it the name that it has in the
// registry.
func TestLeftovers_AreNamesOfTheRegistry(t *testing.T) {
	s := New(Config{Store: newMemstore(), Log: slog.New(slog.DiscardHandler)})
	key := engine.Key{Stack: "stk_3f2a9c1b7d4e", Service: "web", Generation: 2}
	remote := "registry:5000/stacks/3f2a9c1b7d4e:web-g2"
	there := engine.Objects{Images: []engine.Image{{ID: "i", Key: key, Tags: []string{key.Image(2), remote}}}}
	st := &stack.Stack{ID: key.Stack, Status: stack.Live, Generation: stack.Generation{
		Number: 2, Attempt: 2, Services: []stack.Service{{Spec: stack.Spec{Name: "web"}, Image: key.Image(2)}},
	}}
	left := s.leftovers(st, there).objects.Images
	require.Len(t, left, 1)
	require.Equal(t, []string{remote}, left[0].Tags)
}
