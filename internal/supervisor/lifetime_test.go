package supervisor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An expiry that could not stop everything has stopped something: all of it comes back
// if the stack is claimed before the next attempt.
func TestExpiry_WithoutAnEngineAgainstAClaim(t *testing.T) {
	t.Parallel()
	for _, builds := range []bool{false, true} {
		inWorld(t, func(w *world) {
			st := w.live(service("web"))
			time.Sleep(limits.TTL - 2*time.Second)
			if builds {
				w.program(st.ID, 2, silent)
				w.deploy(st.ID, service("web"))
				time.Sleep(time.Second)
			}
			w.engine.Leave()
			time.Sleep(time.Minute)
			require.NoError(t, w.claim(st.ID))
			time.Sleep(time.Minute)
			w.engine.Return()
			w.settle()
			require.Equal(t, "L1", w.consistent(st, "claimed"), "a deploy: %t", builds)
		})
	}
}
