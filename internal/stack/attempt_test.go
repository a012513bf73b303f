package stack_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/stack"
)

func TestLastDeploy_TellsHowTheAttemptEnded(t *testing.T) {
	later := now.Add(time.Hour)
	for _, tt := range []struct {
		name  string
		state func(*testing.T) *stack.Stack
		end   func(*stack.Stack) ([]stack.Event, error)
		want  stack.Deploy // without what is the same for all
	}{
		{
			"first, live", building,
			func(s *stack.Stack) ([]stack.Event, error) { return s.Deployed(s.Generation, urls, later) },
			stack.Deploy{Generation: 1, Attempt: 1, Outcome: stack.WentLive},
		},
		{
			"first, failed", building,
			func(s *stack.Stack) ([]stack.Event, error) { return s.DeployFailed("no", later) },
			stack.Deploy{Generation: 1, Attempt: 1, Outcome: stack.Unsuccessful, Error: "no"},
		},
		{
			"of a failed stack", rebuilding,
			func(s *stack.Stack) ([]stack.Event, error) { return s.DeployFailed("no", later) },
			stack.Deploy{Generation: 2, Attempt: 2, Outcome: stack.Unsuccessful, Error: "no"},
		},
		{
			"redeploy, live", redeploying,
			func(s *stack.Stack) ([]stack.Event, error) { return s.Deployed(s.Generation, urls, later) },
			stack.Deploy{Generation: 2, Attempt: 2, Outcome: stack.WentLive},
		},
		{
			"redeploy, rolled back", redeploying,
			func(s *stack.Stack) ([]stack.Event, error) { return s.DeployFailed("no", later) },
			stack.Deploy{Generation: 2, Attempt: 2, Outcome: stack.RolledBack, Error: "no"},
		},
		{
			"redeploy, not rolled back", redeploying,
			func(s *stack.Stack) ([]stack.Event, error) { return s.RollbackFailed("no", later) },
			stack.Deploy{Generation: 2, Attempt: 2, Outcome: stack.Unsuccessful, Error: "no"},
		},
		{
			"the served generation has failed", fallen,
			func(s *stack.Stack) ([]stack.Event, error) { return s.DeployFailed("no", later) },
			stack.Deploy{Generation: 2, Attempt: 2, Outcome: stack.Unsuccessful, Error: "no"},
		},
		{
			"expired while it was building", building,
			func(s *stack.Stack) ([]stack.Event, error) { return s.Expire(urls, limits, later) },
			stack.Deploy{
				Generation: 1, Attempt: 1, Outcome: stack.Unsuccessful,
				Error: "the stack's time ran out before generation 1 was live; deploy it again once the stack is claimed",
			},
		},
		{
			"claimed late", redeploying,
			func(s *stack.Stack) ([]stack.Event, error) { return s.Claim("acc_1", "ana@example.com", later) },
			stack.Deploy{
				Generation: 2, Attempt: 2, Outcome: stack.RolledBack,
				Error: "the stack's time ran out before generation 2 was live; deploy it again once the stack is claimed",
			},
		},
	} {
		s := tt.state(t)
		before := s.LastDeploy
		if before.Outcome != stack.Underway || before.StartedAt != now || !before.EndedAt.IsZero() || before.Progress.Phase != stack.PhaseQueued {
			t.Errorf("%s: it begins as %+v", tt.name, before)
		}
		if err := s.Progressed(s.Attempt, stack.Progress{Phase: stack.PhaseHealth, Service: "api", Problem: "it listens elsewhere"}); err != nil {
			t.Fatal(err)
		}
		must(t)(tt.end(s))
		tt.want.StartedAt, tt.want.EndedAt = now, later
		if tt.want.Outcome != stack.WentLive {
			tt.want.Progress = stack.Progress{Phase: stack.PhaseHealth, Service: "api"}
		}
		if diff := cmp.Diff(tt.want, s.LastDeploy); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
		if err := s.Progressed(s.Attempt, stack.Progress{}); stack.KindOf(err) != stack.Conflict {
			t.Errorf("%s: progress after the end: %v", tt.name, err)
		}
	}
}

func TestLastDeploy_IsNotThatOfACrash(t *testing.T) {
	s := live(t)
	want := s.LastDeploy
	must(t)(sixthCrash(s))
	if diff := cmp.Diff(want, s.LastDeploy); s.Status != stack.Failed || diff != "" {
		t.Errorf("the stack is %s: %s", s.Status, diff)
	}
}

// What an earlier version began has no more than its numbers.
func TestLastDeploy_OfAnEarlierVersionIsKnownFromItsEnd(t *testing.T) {
	s := redeploying(t)
	s.LastDeploy = stack.Deploy{}
	must(t)(s.DeployFailed("no", now))
	want := stack.Deploy{Generation: 2, Attempt: 2, Outcome: stack.RolledBack, Error: "no", EndedAt: now}
	if diff := cmp.Diff(want, s.LastDeploy); diff != "" {
		t.Error(diff)
	}
}

func TestProgressed_IsOfTheAttemptUnderWay(t *testing.T) {
	s := redeploying(t)
	if err := s.Progressed(1, stack.Progress{Phase: stack.PhaseBuild}); stack.KindOf(err) != stack.Conflict {
		t.Errorf("progress of an attempt that has ended: %v", err)
	}
	if err := s.Progressed(2, stack.Progress{Phase: stack.PhaseHealth, Problem: "it answered \x1b[2J"}); err != nil || s.LastDeploy.Progress.Problem != `it answered \x1b[2J` {
		t.Errorf("%+v, %v", s.LastDeploy.Progress, err)
	}
}
