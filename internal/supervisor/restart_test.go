package supervisor

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
)

func TestRestartInPlace_ThatFailsCountsAsARestartThatDoesNotGetHealthy(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(recreate("web"))
		require.NoError(t, w.claim(st.ID))
		w.program(st.ID, 1, exits(2))
		w.restart(st)
		w.awaitEvent(st.ID, "service.crashed", 1)
		st = w.get(st.ID)
		require.Equal(t, 1, st.Services[0].Unhealthy)
		require.True(t, st.Services[0].InPlace)
		require.Equal(t, map[string]any{"service": "web", "exit_code": nil, "crashes": 1}, w.last(st.ID, "service.crashed").Data)
		w.program(st.ID, 1, nil)
		w.awaitEvent(st.ID, "service.restarted", 1)
		require.True(t, w.answers(st, "web"))
	})
}

func TestLeave_SaysWhatBecameOfTheReplacedProcess(t *testing.T) {
	t.Parallel()
	for says, refusal := range map[string]error{
		"replaced process keeps its name":                               errors.New("not now"),
		"another container took the address of a replaced process; the": engine.ErrAddressTaken,
	} {
		inWorld(t, func(w *world) {
			st := w.live(service("web"))
			require.NoError(t, w.claim(st.ID))
			old := w.sup.lookup(st.ID).serving().process("web").id
			w.engine.Before("Promote", func(id string) error {
				if id == old {
					return refusal
				}
				return nil
			})
			w.restart(st)
			w.runs(st, "web-g1-r1")
			require.True(t, w.logged(says), says)
			require.True(t, w.answers(st, "web"))
		})
	}
}
