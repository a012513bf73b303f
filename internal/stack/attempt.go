package stack

import (
	"fmt"
	"time"
)

// Deploy is one attempt to deploy a stack, from the request to its end (docs/api.md,
// "The deploy").
type Deploy struct {
	Generation int       `json:"generation,omitempty"` // that it builds
	Attempt    int       `json:"attempt,omitempty"`    // counts every build of the stack; 0 for a stack of before, whose attempts are not known
	Outcome    Outcome   `json:"outcome,omitempty"`
	Progress   Progress  `json:"progress,omitzero"` // how far it is, or was when it ended; zero once live
	Error      string    `json:"error,omitempty"`   // why it ended without going live
	StartedAt  time.Time `json:"started_at,omitzero"`
	EndedAt    time.Time `json:"ended_at,omitzero"`    // zero while it is under way
	Supersedes int       `json:"supersedes,omitempty"` // first of the attempts that were superseded one after the other, the last by this one; 0 for none
	Fresh      bool      `json:"fresh,omitempty"`      // it uses nothing that earlier builds left; see BuildFresh
}

// Outcome is what became of an attempt.
type Outcome string

// The outcomes. RolledBack is that of a redeploy during which a generation serves, and
// DeployError says why; Unsuccessful that of any other attempt that failed. LastDeploy is
// never Superseded, since another attempt took its place; see DeployOf.
const (
	Underway     Outcome = "running"
	WentLive     Outcome = "live"
	RolledBack   Outcome = "rolled_back"
	Unsuccessful Outcome = "failed"
	Superseded   Outcome = "superseded"
)

// Progress is how far an attempt is.
type Progress struct {
	Phase   Phase  `json:"phase,omitempty"`
	Service string `json:"service,omitempty"` // that the phase is of; "" for all
	Problem string `json:"problem,omitempty"` // why the service is not healthy yet; "" if that is not known
}

// Phase is a part of an attempt.
type Phase string

// The phases of a service, in order. It skips the ones it does not need.
const (
	PhaseQueued  Phase = "queued"
	PhaseInstall Phase = "install"
	PhaseBuild   Phase = "build"
	PhaseRelease Phase = "release"
	PhaseStart   Phase = "start"
	PhaseHealth  Phase = "health"
)

// Phases lists the phases, in the order in which a service goes through them.
var Phases = []Phase{PhaseQueued, PhaseInstall, PhaseBuild, PhaseRelease, PhaseStart, PhaseHealth}

// beginAttempt counts an attempt to deploy a generation.
func (s *Stack) beginAttempt(generation int, now time.Time) {
	s.Attempt++
	s.Deploying = generation
	s.LastDeploy = Deploy{
		Generation: generation,
		Attempt:    s.Attempt,
		Outcome:    Underway,
		Progress:   Progress{Phase: PhaseQueued},
		StartedAt:  now,
	}
}

// endAttempt ends the attempt under way, if there is one. Its problem is over, or the
// reason says it.
func (s *Stack) endAttempt(outcome Outcome, reason string, now time.Time) {
	if s.Deploying == 0 {
		return
	}
	d := &s.LastDeploy
	d.Generation, d.Attempt = s.Deploying, s.Attempt // an earlier version may have begun it
	d.Outcome, d.Error, d.EndedAt = outcome, errorText(reason, ErrorChars), now
	d.Progress.Problem = ""
	if outcome == WentLive {
		d.Progress = Progress{}
	}
	s.Deploying = 0
}

// supersededBy says why an attempt ended whose place the next one took.
func supersededBy(attempt int) string {
	return fmt.Sprintf("attempt %d was superseded by attempt %d", attempt, attempt+1)
}

// DeployOf returns what became of an attempt, d as it was accepted. If another one ended
// and began since, the row knows only its outcome and not always why.
func (s *Stack) DeployOf(d Deploy) Deploy {
	last := s.LastDeploy
	switch {
	case d.Attempt == last.Attempt:
		return last
	case last.Supersedes > 0 && last.Supersedes <= d.Attempt:
		d.Outcome, d.Error, d.EndedAt = Superseded, supersededBy(d.Attempt), last.StartedAt
	case !s.DeployedAt.IsZero() && d.Attempt <= s.Generation.Attempt:
		d.Outcome = WentLive
	default:
		d.Outcome, d.Error = RolledBack, fmt.Sprintf("attempt %d failed, and another one has begun; read why in the stack's events", d.Attempt)
	}
	d.Progress = Progress{}
	return d
}

// Progressed records how far an attempt is. An attempt that is no longer under way is a
// Conflict.
func (s *Stack) Progressed(attempt int, p Progress) error {
	if s.Deploying == 0 || s.Attempt != attempt {
		return NewError(Conflict, "the attempt is no longer under way")
	}
	p.Problem = errorText(p.Problem, EventErrorChars) // it quotes a tenant's program
	s.LastDeploy.Progress = p
	return nil
}
