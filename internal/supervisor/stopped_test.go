package supervisor

import (
	"errors"
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

// A deploy that is accepted while a stop takes effect comes after it, and is not lost.
func TestStop_LetsADeployFollowThatIsAcceptedMeanwhile(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.long(service("web"))
		w.program(st.ID, 1, listen)
		w.program(st.ID, 2, listen)
		deployed := make(chan error, 1)
		w.db.after(func(_ string, events []stack.Event) {
			if len(events) == 0 || events[0].Type != stack.EventFailed {
				return
			}
			go func() {
				_, err := w.sup.Deploy(w.t.Context(), st.ID, source.Upload{Manifest: &stack.Manifest{Services: []stack.Spec{service("web")}}, Source: w.upload()}, nil)
				deployed <- err
			}()
			time.Sleep(time.Second) // the deploy is in the row by then
		})
		require.NoError(t, w.sup.Stop(w.t.Context(), st.ID, "stopped: it mines"))
		require.NoError(t, <-deployed)
		w.serves(st.ID, 2)
		w.runs(st, "web-g2")
	})
}

// A stop of which nobody knows whether it took effect is carried out once the row says so.
func TestStop_WithoutAnAnswerIsCarriedOutWhenTheDatabaseWorksAgain(t *testing.T) {
	t.Parallel()
	for n := range 4 {
		building, slow := n&1 != 0, n&2 != 0
		inWorld(t, func(w *world) {
			st := w.live(service("web"))
			if building {
				w.program(st.ID, 2, silent)
				w.deploy(st.ID, service("web"))
				time.Sleep(time.Second)
			}
			w.unanswered(slow)
			require.ErrorContains(t, w.sup.Stop(w.t.Context(), st.ID, "stopped: it mines"), "the connection broke")
			w.db.answers(nil)
			w.settle()
			require.Equal(t, stack.Failed, w.get(st.ID).Status)
			require.Equal(t, "stopped: it mines", w.get(st.ID).Error)
			w.runs(st)
			require.False(t, w.answers(st, "web"))
		})
	}
}

// unanswered makes the database answer no change, and if it is slow, commit it later.
func (w *world) unanswered(slow bool) {
	err := errors.New("the connection broke")
	if slow {
		w.db.commitsSlowly(err)
	} else {
		w.db.answers(err)
	}
}

// A deploy whose acceptance was not answered fails once the row says that it was accepted.
func TestDeploy_WithoutAnAnswerFailsWhenTheDatabaseWorksAgain(t *testing.T) {
	t.Parallel()
	for _, slow := range []bool{false, true} {
		inWorld(t, func(w *world) {
			st := w.live(service("web"))
			w.unanswered(slow)
			_, err := w.sup.Deploy(w.t.Context(), st.ID, source.Upload{Manifest: &stack.Manifest{Services: []stack.Spec{service("web")}}, Source: w.upload()}, nil)
			require.ErrorContains(t, err, "the connection broke")
			w.db.answers(nil)
			w.settle()
			now := w.get(st.ID)
			require.Zero(t, now.Deploying)
			require.Contains(t, now.DeployError, "the database went away while generation 2 was being accepted")
			require.Equal(t, "L1", w.consistent(now, "in the end"))
		})
	}
}

func TestStop_EndsWithTheServer(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		w.stopServer()
		require.Error(t, w.sup.Stop(w.t.Context(), st.ID, "stopped: it mines"))
		w.startServer()
	})
}
