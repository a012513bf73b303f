package supervisor

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/stack"
)

// gVisor is an engine whose containers cannot be named while they run, so that no process
// can take the place of another one beside it.
var gVisor = enginetest.Options{InPlace: true}

func TestRestartUnderGVisor_IsInPlace(t *testing.T) {
	t.Parallel()
	inWorldOf(t, gVisor, func(w *world) {
		st := w.long(service("web"), service("api"))
		require.NoError(t, w.claim(st.ID))
		g := w.served(st)
		web, api := g.process("web"), g.process("api")
		for n := range 2 {
			w.restart(st)
			w.runs(st, "api-g1", "web-g1")
			w.awaitEvent(st.ID, "service.restarted", n+1)
			require.Same(t, web, g.process("web"))
			require.Equal(t, map[string]any{"service": "web", "requested": true}, w.last(st.ID, "service.restarted").Data)
			require.True(t, w.answers(st, "web"))
		}
		require.Same(t, api, g.process("api"))
		require.NotContains(t, w.events(st.ID), "service.crashed")
		require.Equal(t, 2, strings.Count(w.runLog(st), "== restart requested"))
		w.endsWith(st, "L1")
	})
}

func TestRestartUnderGVisor_KeepsTheNameForOtherServices(t *testing.T) {
	t.Parallel()
	inWorldOf(t, gVisor, func(w *world) {
		asked, found := make(chan struct{}), make(chan bool)
		calls := func(p *enginetest.Process) int {
			p.Listen(8080)
			for {
				select {
				case <-asked:
					found <- p.Dial("web:8080") != nil
				case <-p.Killed:
					return 0
				case <-p.Terminated:
					return 0
				}
			}
		}
		st := w.createRunning(time.Hour, only("api", calls), service("web"), service("api"))
		w.becomes(st.ID, stack.Live)
		for n := range 2 {
			w.restart(st)
			w.awaitEvent(st.ID, "service.restarted", n+1)
			asked <- struct{}{}
			require.True(t, <-found)
		}
	})
}

func TestRestartUnderGVisor_ThatFailsCountsAsACrash(t *testing.T) {
	t.Parallel()
	inWorldOf(t, gVisor, func(w *world) {
		st := w.long(service("web"))
		require.NoError(t, w.claim(st.ID))
		w.program(st.ID, 1, exits(2))
		w.restart(st)
		w.awaitEvent(st.ID, "service.crashed", 1)
		st = w.get(st.ID)
		require.True(t, st.Generation.Services[0].InPlace)
		require.Equal(t, stack.Restarting, st.Generation.Services[0].Status)
		require.Equal(t, 502, w.ask(st, "web"))
		require.NotContains(t, w.runLog(st), "the previous process keeps running")
		w.program(st.ID, 1, nil)
		w.awaitEvent(st.ID, "service.restarted", 1)
		require.True(t, w.answers(st, "web"))
		w.endsWith(st, "L1")
	})
}

func TestRestartUnderGVisor_IsRefusedDuringADeploy(t *testing.T) {
	t.Parallel()
	inWorldOf(t, gVisor, func(w *world) {
		st := w.redeploying(service("web"))
		_, err := w.sup.Restart(w.t.Context(), st.ID, "web")
		require.Equal(t, stack.Conflict, stack.KindOf(err), "%v", err)
		w.runs(st, "web-g1", "web-g2")
		require.True(t, w.answers(st, "web"))
		w.release()
		w.serves(st.ID, 2)
		w.restart(st)
		w.awaitEvent(st.ID, "service.restarted", 1)
		w.runs(st, "web-g2")
		w.endsWith(st, "L2")
	})
}

func TestRestartUnderGVisor_EndsWithADeploy(t *testing.T) {
	t.Parallel()
	inWorldOf(t, gVisor, func(w *world) {
		st := w.restarting(service("web"))
		w.runs(st, "web-g1")
		require.Equal(t, 502, w.ask(st, "web"))
		w.deploy(st.ID, service("web"))
		w.serves(st.ID, 2)
		require.True(t, w.answers(st, "web"))
		w.endsWith(st, "L2")
	})
}

func TestRestartUnderGVisor_WaitsForAnEngineThatLeaves(t *testing.T) {
	t.Parallel()
	inWorldOf(t, gVisor, func(w *world) {
		st := w.restarting(service("web"))
		w.away(time.Minute)
		w.release()
		w.settle()
		require.True(t, w.answers(st, "web"))
		require.NotContains(t, w.events(st.ID), "service.crashed")
		w.endsWith(st, "L1")
	})
}
