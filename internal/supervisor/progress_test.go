package supervisor

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/health"
	"github.com/berth-host/berth/internal/stack"
)

// slowly is a program that takes a second to do what another one does.
func slowly(program enginetest.Program) enginetest.Program {
	return func(p *enginetest.Process) int {
		select {
		case <-time.After(time.Second):
			return program(p)
		case <-p.Terminated:
		case <-p.Killed:
		}
		return 1
	}
}

// phases returns the progress that the row of a stack has from now on, until it settles,
// once it is not queued any more.
func (w *world) phases(id string) (seen []stack.Progress) {
	w.t.Helper()
	w.await(id, "settled", func(st *stack.Stack) bool {
		if now := st.LastDeploy.Progress; now.Phase != stack.PhaseQueued && (len(seen) == 0 || seen[len(seen)-1] != now) {
			seen = append(seen, now)
		}
		return st.Settled()
	})
	return seen
}

func TestProgress_ShowsThePhasesThatLast(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.command(slowly(exits(0)))
		w.program("", 1, slowly(listen))
		w.program("", 2, slowly(listen))
		spec := service("web")
		spec.Install, spec.Build, spec.Release = "make", "make", "make"
		st := w.create(spec)
		of := func(phase stack.Phase) stack.Progress { return stack.Progress{Phase: phase, Service: "web"} }
		first := []stack.Progress{of(stack.PhaseInstall), of(stack.PhaseBuild), of(stack.PhaseRelease), of(stack.PhaseHealth), {}}
		require.Equal(t, first, w.phases(st.ID))

		// Fails where it stays.
		w.program("", 2, slowly(exits(1)))
		w.deploy(st.ID, service("web"), spec)
		seen := w.phases(st.ID)
		require.Equal(t, of(stack.PhaseHealth), seen[len(seen)-1])
		st = w.get(st.ID)
		require.Equal(t, stack.RolledBack, st.LastDeploy.Outcome)
		require.Equal(t, st.DeployError, st.LastDeploy.Error)
		require.Equal(t, 2, st.LastDeploy.Attempt)
	})
}

// A deploy that is fast makes no change of the row for its progress alone.
func TestProgress_CostsAFastDeployNoChangeOfTheRow(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		synctest.Wait()
		changes := 0
		w.db.after(func(_ string, events []stack.Event) { changes++ })
		w.deploy(st.ID, service("web"))
		w.serves(st.ID, 2)
		synctest.Wait()
		require.Equal(t, len([]string{"stack.redeploying", "service.building", "service.ready", "stack.live"}), changes)
	})
}

// What the deploy waits for is a service with a problem, or else one that is behind.
func TestProgress_IsOfTheServiceThatTheDeployWaitsFor(t *testing.T) {
	p := newProgress(stack.Services([]stack.Spec{{Name: "web"}, {Name: "api"}, {Name: "db"}}))
	require.Equal(t, stack.Progress{Phase: stack.PhaseQueued}, p.current())
	p.enter("db", stack.PhaseInstall)
	p.enter("web", stack.PhaseQueued)
	require.Equal(t, stack.Progress{Phase: stack.PhaseInstall, Service: "db"}, p.current())
	p.enter("db", stack.PhaseBuild)
	p.enter("api", stack.PhaseInstall)
	p.enter("web", stack.PhaseInstall)
	require.Equal(t, stack.Progress{Phase: stack.PhaseInstall, Service: "web"}, p.current())
	p.leave("web", false)
	p.leave("api", false)
	require.Equal(t, stack.Progress{Phase: stack.PhaseBuild, Service: "db"}, p.current())
	p.leave("db", false)
	require.Equal(t, stack.Progress{Phase: stack.PhaseBuild, Service: "db"}, p.current())

	p.enter("web", stack.PhaseStart)
	p.enter("api", stack.PhaseHealth)
	p.leave("api", true)
	p.leave("web", true)
	p.enter("web", stack.PhaseStart)
	require.Equal(t, stack.Progress{Phase: stack.PhaseHealth, Service: "api"}, p.current(), "what fails first stays")
}

// The row has the progress again when the database works again.
func TestProgress_ThatCannotBeRecordedIsRecordedLater(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		w.program(st.ID, 2, w.slow)
		w.deploy(st.ID, service("web"))
		w.runs(st, "web-g1", "web-g2")
		w.db.breaks(func(string, []stack.Event) error { return errors.New("the database does not work") })
		time.Sleep(time.Second)
		w.db.breaks(nil)
		require.NotEqual(t, stack.PhaseHealth, w.get(st.ID).LastDeploy.Progress.Phase)
		w.await(st.ID, "checked", func(st *stack.Stack) bool { return st.LastDeploy.Progress.Phase == stack.PhaseHealth })
		w.release()
		w.serves(st.ID, 2)
	})
}

// One that fails for a reason that can be told says so long before its time is up, and no
// more once the reason is gone.
func TestProblem_IsToldWithinThreeSecondsAndGoesAway(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sockets []string
		failing *health.Failure // that the check finds, nil for none
		want    string
	}{
		"on loopback":    {[]string{"127.0.0.1:8080"}, nil, "web listens on 127.0.0.1:8080; it must listen on 0.0.0.0:$PORT (8080)"},
		"another port":   {[]string{"0.0.0.0:3000"}, nil, "web listens on 0.0.0.0:3000; it must listen on 0.0.0.0:$PORT (8080)"},
		"on nothing":     {nil, nil, "web listens on no port; it must listen on 0.0.0.0:$PORT (8080)"},
		"wrong answer":   {nil, &health.Failure{Opened: true, Last: "GET / answered 500"}, "GET / answered 500"},
		"without answer": {nil, &health.Failure{Opened: true}, "it accepts connections on its port, and has not answered GET / yet"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.program("", 1, w.slow)
				st := w.create(service("web"))
				w.await(st.ID, "checked", func(st *stack.Stack) bool { return st.LastDeploy.Progress.Phase == stack.PhaseHealth })
				began := time.Now()
				st = w.await(st.ID, "told", func(st *stack.Stack) bool { return st.LastDeploy.Progress.Problem != "" })
				require.LessOrEqual(t, time.Since(began), 3*time.Second-progressRest)
				require.Equal(t, stack.Progress{Phase: stack.PhaseHealth, Service: "web", Problem: c.want}, st.LastDeploy.Progress)
				w.release()
				st = w.becomes(st.ID, stack.Live)
				require.Zero(t, st.LastDeploy.Progress)
			}, func(cfg *Config) {
				check := cfg.Health
				cfg.Engine = listeningOn{cfg.Engine, c.sockets}
				cfg.Health = func(ctx context.Context, r health.Request) *health.Failure {
					if c.failing != nil {
						r.Failing(*c.failing)
					}
					return check(ctx, r)
				}
			})
		})
	}
}
