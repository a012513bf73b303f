package supervisor

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/stack"
)

// The engine may give the address of a process that ended to the next container.
func TestCrash_WithdrawsTheAddressWhateverTheDatabaseDoes(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		w.db.breaks(always)
		w.crash(st, "web-g1", 1)
		w.settle()
		require.Equal(t, http.StatusBadGateway, w.ask(st, "web"))
		w.db.breaks(nil)
		w.awaitEvent(st.ID, "service.restarted", 1)
		require.True(t, w.answers(st, "web"))
		require.Equal(t, 1, count(w.events(st.ID), "service.crashed"))
	})
}

func TestEngineAway_WithdrawsTheAddressesOfWhatEndedWithIt(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		w.db.breaks(always)
		w.away(3 * time.Second)
		w.settle()
		require.Equal(t, http.StatusBadGateway, w.ask(st, "web"))
		w.db.breaks(nil)
		w.awaitEvent(st.ID, "stack.restored", 1)
		require.True(t, w.answers(st, "web"))
	})
}

// always is the fault of a database that does not work at all.
func always(string, []stack.Event) error { return errors.New("the database does not work") }

func TestExitOf_TellsCodesSignalsAndMemoryApart(t *testing.T) {
	for _, c := range []struct {
		container engine.Container
		says      string
		code      int
	}{
		{engine.Container{ID: "x", ExitCode: 3}, "exited with code 3", 3},
		{engine.Container{ID: "x", ExitCode: 0}, "exited with code 0; a service's process must keep running", 0},
		{engine.Container{ID: "x", ExitCode: 139}, "was ended by signal SIGSEGV (exit code 139)", 139},
		{engine.Container{ID: "x", ExitCode: 137}, "was ended by signal SIGKILL (exit code 137)", 137},
		{engine.Container{ID: "x", ExitCode: 137, OOMKilled: true}, "ran out of memory and was killed (exit code 137)", 137},
	} {
		how, code := exitOf(c.container)
		if how != c.says || code == nil || *code != c.code {
			t.Errorf("exitOf(%+v) = %q, %v", c.container, how, code)
		}
	}
	if how, code := exitOf(engine.Container{}); !strings.Contains(how, "removed") || code != nil {
		t.Errorf("exitOf(nothing) = %q, %v", how, code)
	}
}
