package supervisor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
)

// What an operator stops stays so until the next deploy, whatever was under way, and its data
// stays.
func TestStop_EndsWhatRunsAndWhatIsBuilt(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(w *world, st *stack.Stack){
		"live":     func(*world, *stack.Stack) {},
		"crashing": func(w *world, st *stack.Stack) { w.crash(st, "web-g1-r1", 1) },
		"building": func(w *world, st *stack.Stack) {
			w.program(st.ID, 2, silent)
			w.deploy(st.ID, service("web"))
			time.Sleep(time.Second)
		},
		"twice": func(w *world, st *stack.Stack) { require.NoError(w.t, w.sup.Stop(w.t.Context(), st.ID, "once")) },
	} {
		inWorld(t, func(w *world) {
			st := w.long(service("web"))
			w.program(st.ID, 1, listen)
			require.NoError(t, w.replaceData(st, "kept"), name)
			before(w, st)
			require.NoError(t, w.sup.Stop(w.t.Context(), st.ID, "stopped: it mines"), name)
			w.runs(st)
			now := w.get(st.ID)
			require.Equal(t, stack.Failed, now.Status, name)
			require.Equal(t, "stopped: it mines", now.Error)
			require.Zero(t, now.Deploying)
			require.False(t, w.answers(st, "web"))
			time.Sleep(time.Minute)
			w.stopServer()
			w.startServer()
			time.Sleep(time.Minute)
			w.runs(st)
			require.Equal(t, "stopped: it mines", w.get(st.ID).Error)
			require.Equal(t, map[string]string{"kept": "kept"}, w.volume(st, 1), name)
			number := now.Generation.Number + 1
			w.program(st.ID, number, listen)
			w.deploy(st.ID, service("web"))
			w.serves(st.ID, number)
			require.Equal(t, map[string]string{"kept": "kept"}, w.volume(st, 1), name)
		}, ofData)
	}
}

func TestStop_IsRefused(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		require.Equal(t, stack.NotFound, stack.KindOf(w.sup.Stop(w.t.Context(), "stk_ffffffffffff", "x")))
		time.Sleep(limits.TTL + time.Minute)
		require.Equal(t, stack.Expired, w.get(st.ID).Status)
		require.Equal(t, stack.Conflict, stack.KindOf(w.sup.Stop(w.t.Context(), st.ID, "x")))
		require.Equal(t, stack.Expired, w.get(st.ID).Status)
	})
}

// A deploy that comes right behind the stop is none of what the stop ends.
func TestStop_LeavesTheNextDeployAlone(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		for number := 2; number < 12; number++ {
			deployed := make(chan error)
			woken, stop := w.db.Watch(st.ID)
			go func() {
				for range woken { // as soon as the row says that it is stopped
					if w.get(st.ID).Status == stack.Failed {
						break
					}
				}
				_, err := w.sup.Deploy(w.t.Context(), st.ID, source.Upload{Manifest: &stack.Manifest{Services: []stack.Spec{service("web")}}, Source: w.upload()}, nil)
				deployed <- err
			}()
			require.NoError(w.t, w.sup.Stop(w.t.Context(), st.ID, "stopped: it mines"))
			require.NoError(w.t, <-deployed)
			stop()
			w.serves(st.ID, number)
		}
	})
}
