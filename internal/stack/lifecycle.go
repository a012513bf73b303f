package stack

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/lastlines"
	"github.com/berth-host/berth/internal/safetext"
)

// Trigger is a cause for a stack to move from one status to another.
type Trigger string

// The triggers, in the order of docs/api.md, "States and transitions". Time alone
// causes the exported ones; see Stack.Next.
const (
	triggerDeployed     Trigger = "build finishes"
	triggerDeployFailed Trigger = "deploy fails"
	triggerDeploy       Trigger = "POST deploy"
	triggerSupersede    Trigger = "POST deploy supersedes"
	triggerSwitched     Trigger = "redeploy finishes"
	triggerRolledBack   Trigger = "redeploy fails"
	triggerRollbackFail Trigger = "rollback fails"
	triggerCrash        Trigger = "service crashes"
	triggerCrashLoop    Trigger = "service crashes too often"
	triggerServedFails  Trigger = "served generation fails during a deploy"
	triggerRequest      Trigger = "POST restart"
	triggerExtend       Trigger = "PATCH ttl"
	TriggerNotice       Trigger = "expiry is near"
	TriggerExpire       Trigger = "TTL runs out"
	triggerClaim        Trigger = "claim"
	triggerLateClaim    Trigger = "claim once the TTL has run out"
	triggerRestored     Trigger = "restore finishes"
	triggerRestoreFails Trigger = "restore fails"
	triggerRestart      Trigger = "server restarts"
	triggerRevoke       Trigger = "owner revokes manage token"
	TriggerRetained     Trigger = "retention ends"
	triggerDelete       Trigger = "DELETE"
	triggerStop         Trigger = "operator stops it"
)

// transition is one row of the lifecycle table.
type transition struct {
	from    Status
	trigger Trigger
	to      Status
}

// transitions is the whole lifecycle, in the order of docs/api.md, "States and
// transitions". A status and a trigger without a row are a Conflict.
var transitions = []transition{
	{Building, triggerDeployed, Live},
	{Building, triggerDeployFailed, Failed},
	{Live, triggerDeploy, Live},
	{Building, triggerSupersede, Building},
	{Live, triggerSupersede, Live},
	{Live, triggerSwitched, Live},
	{Live, triggerRolledBack, Live},
	{Live, triggerRollbackFail, Failed},
	{Failed, triggerDeploy, Building},
	{Live, triggerCrash, Live},
	{Live, triggerCrashLoop, Failed},
	{Live, triggerServedFails, Building},
	{Live, triggerRequest, Live},
	{Building, triggerExtend, Building},
	{Live, triggerExtend, Live},
	{Failed, triggerExtend, Failed},
	{Building, TriggerNotice, Building},
	{Live, TriggerNotice, Live},
	{Failed, TriggerNotice, Failed},
	{Building, TriggerExpire, Expired},
	{Live, TriggerExpire, Expired},
	{Failed, TriggerExpire, Expired},
	{Building, triggerClaim, Building},
	{Live, triggerClaim, Live},
	{Failed, triggerClaim, Failed},
	{Building, triggerLateClaim, Building},
	{Live, triggerLateClaim, Building},
	{Failed, triggerLateClaim, Building},
	{Expired, triggerClaim, Building},
	{Building, triggerRestored, Live},
	{Building, triggerRestoreFails, Failed},
	{Live, triggerRestart, Live},
	{Live, triggerRestoreFails, Failed},
	{Building, triggerRevoke, Building},
	{Live, triggerRevoke, Live},
	{Failed, triggerRevoke, Failed},
	{Expired, TriggerRetained, Deleted},
	{Building, triggerDelete, Deleted},
	{Live, triggerDelete, Deleted},
	{Failed, triggerDelete, Deleted},
	{Expired, triggerDelete, Deleted},
	{Building, triggerStop, Failed},
	{Live, triggerStop, Failed},
	{Failed, triggerStop, Failed},
}

// apply moves the stack along the row for its status and the trigger.
func (s *Stack) apply(t Trigger) error {
	for _, row := range transitions {
		if row.from == s.Status && row.trigger == t {
			s.Status = row.to
			return nil
		}
	}
	return s.conflict(t)
}

// applyToBuild is like apply for a trigger that ends a build; if none is running it
// returns a Conflict.
func (s *Stack) applyToBuild(t Trigger) error {
	if s.Deploying == 0 {
		return s.conflict(t)
	}
	return s.apply(t)
}

// conflict returns an error that says why a trigger is refused and what to do instead.
func (s *Stack) conflict(t Trigger) error {
	switch {
	case s.Status == Expired:
		return errExpired
	case s.Status == Building && t == triggerDeploy:
		return s.busy(tryAgain)
	}
	return NewError(Conflict, fmt.Sprintf("the stack is %s, so this cannot be done: %s", s.Status, t))
}

// errExpired is the Conflict for a stack whose time has run out.
var errExpired = NewError(Conflict, "the stack has expired; claim it to restore it")

// busyRetry is the Retry-After of what a running build does not allow.
const busyRetry = 5 * time.Second

// What to do once a build or a restore is done.
const (
	deployAgain = "deploy again, or end it with supersede=true in the query"
	tryAgain    = "try again"
)

// busy returns the Conflict for a build or a restore that is running, and what to do then.
func (s *Stack) busy(then string) *Error {
	what := fmt.Sprintf("a build of this stack is already running (attempt %d, generation %d)", s.Attempt, s.Deploying)
	if s.Restoring() {
		what = "the stack is being restored"
	}
	return &Error{
		Kind:       Conflict,
		Detail:     what + "; wait for it with GET /v0/stacks/" + s.ID + "?wait=true, then " + then,
		RetryAfter: busyRetry,
	}
}

// Created returns the event of a new stack, before its first build.
func (s *Stack) Created() Event {
	return Event{Type: EventCreated, CreatedAt: s.CreatedAt, Data: map[string]any{"anonymous": !s.Claimed()}}
}

// ServiceBuilding returns the event of a service whose install and build start.
func ServiceBuilding(service string, generation, attempt int) Event {
	return Event{Type: EventBuilding, Data: map[string]any{"service": service, "generation": generation, "attempt": attempt}}
}

// Ready returns the event of a service that serves. If the service belongs to the
// generation that the stack serves, or builds for the first time, Ready also marks it
// as running.
func (s *Stack) Ready(service, url string) Event {
	if svc := s.Service(service); svc != nil {
		svc.Status = Running
	}
	return Event{Type: EventReady, Data: map[string]any{"service": service, "url": url}}
}

// Deploy accepts a new generation (docs/api.md, "POST /v0/stacks/{id}/deploy"). A live
// stack goes on serving the old one; a failed stack has nothing to serve and takes over
// the new services at once. The error is a Conflict for a stack that is building or
// expired, or whose time has run out; it is Unprocessable if the services do not go with
// the variables that are set outside the manifest.
func (s *Stack) Deploy(services []Service, now time.Time) ([]Event, error) {
	if err := s.applyDeploy(now, deployAgain); err != nil {
		return nil, err
	}
	if err := s.takeVariables(services, now); err != nil {
		return nil, err
	}
	if s.Status == Building {
		s.takeOver(services)
	}
	return []Event{s.beginDeploy(s.Generation.Number+1, services, now)}, nil
}

// applyDeploy moves the stack along a deploy, or returns a Conflict, which says what to do
// once a build that is running is done.
func (s *Stack) applyDeploy(now time.Time, then string) error {
	switch {
	case s.Due(now):
		return errExpired
	case s.Deploying != 0:
		return s.busy(then)
	}
	return s.apply(triggerDeploy)
}

// Supersede is like Deploy if nothing is being built. Otherwise it ends that attempt, and
// another one at the same generation takes its place. The served generation goes on. If
// nothing is served, the stack stays as it is with the new services: what was built
// before is kept only if it can serve again.
func (s *Stack) Supersede(services []Service, now time.Time) ([]Event, error) {
	if s.Deploying == 0 || s.Due(now) {
		return s.Deploy(services, now)
	}
	if err := s.apply(triggerSupersede); err != nil {
		return nil, err
	}
	if err := s.takeVariables(services, now); err != nil {
		return nil, err
	}
	var events []Event
	if s.Status == Live {
		events = append(events, s.deployFailed(supersededBy(s.Attempt)))
	} else if !s.Generation.Built() {
		s.takeOver(services)
	}
	first := cmp.Or(s.LastDeploy.Supersedes, s.Attempt)
	events = append(events, s.beginDeploy(s.Deploying, services, now))
	s.LastDeploy.Supersedes = first
	return events, nil
}

// takeOver makes services that are about to be built the services of a stack that serves
// nothing.
func (s *Stack) takeOver(services []Service) {
	s.Error = ""
	s.Generation.Source = Source{}
	s.Generation.Services = slices.Clone(services) // the build goes on with its own
}

// beginDeploy begins an attempt to deploy services as a generation.
func (s *Stack) beginDeploy(generation int, services []Service, now time.Time) Event {
	s.beginAttempt(generation, now)
	s.dropPasswords()
	s.DeployError = ""
	s.Attempted = nil
	for i := range services {
		name := services[i].Spec.Name
		s.Attempted = append(s.Attempted, name)
		services[i].PublicHost = s.PrimaryHosts[name]
	}
	return Event{Type: EventRedeploying, Data: map[string]any{"generation": s.Deploying, "attempt": s.Attempt}}
}

// Halt records that a service's process is stopped to make way for the next
// generation's. Ready records that the service serves again, whichever of the two
// processes came up.
func (s *Stack) Halt(service string) {
	if svc := s.Service(service); svc != nil && s.Status == Live {
		svc.Status = Stopped
	}
}

// Deployed makes the generation that was being built the served one, and gives it its
// numbers.
func (s *Stack) Deployed(next Generation, urls URLs, now time.Time) ([]Event, error) {
	trigger := triggerDeployed
	if s.Status == Live {
		trigger = triggerSwitched
	}
	if err := s.applyToBuild(trigger); err != nil {
		return nil, err
	}
	next.Number, next.Attempt = s.Deploying, s.Attempt
	s.Generation = next
	s.dropLayers()
	s.setRunning()
	s.forgetCrashes()
	s.endAttempt(WentLive, "", now)
	s.Attempted = nil
	s.DeployedAt = now
	s.Error, s.DeployError = "", ""
	return []Event{{Type: EventLive, CreatedAt: now, Data: map[string]any{
		"generation": s.Generation.Number,
		"attempt":    s.Generation.Attempt,
		"urls":       urls.All(s),
		"expires_at": Timestamp(s.ExpiresAt),
	}}}, nil
}

// DeployFailed ends a failed build for the given reason. A stack that served a
// generation before serves it again.
func (s *Stack) DeployFailed(reason string, now time.Time) ([]Event, error) {
	if s.Status == Live {
		if err := s.applyToBuild(triggerRolledBack); err != nil {
			return nil, err
		}
		return s.giveUp(reason, now), nil
	}
	if err := s.applyToBuild(triggerDeployFailed); err != nil {
		return nil, err
	}
	s.endAttempt(Unsuccessful, reason, now)
	return s.fail(reason), nil
}

// giveUp ends the build of a next generation.
func (s *Stack) giveUp(reason string, now time.Time) []Event {
	event := s.deployFailed(reason)
	s.DeployError = errorText(reason, ErrorChars)
	s.endAttempt(RolledBack, reason, now)
	return []Event{event}
}

// deployFailed returns the event of a redeploy that ends while another generation serves.
func (s *Stack) deployFailed(reason string) Event {
	return Event{Type: EventDeployFailed, Data: map[string]any{
		"generation":         s.Deploying,
		"attempt":            s.Attempt,
		"error":              errorText(reason, EventErrorChars),
		"serving_generation": s.Generation.Number,
	}}
}

// RollbackFailed ends a live stack after a failed redeploy whose previous generation
// could not be brought back.
func (s *Stack) RollbackFailed(reason string, now time.Time) ([]Event, error) {
	if err := s.applyToBuild(triggerRollbackFail); err != nil {
		return nil, err
	}
	s.endAttempt(Unsuccessful, reason, now)
	return s.fail(reason), nil
}

// Stop ends what a stack builds and serves, for a reason that its owner is told: an operator's,
// or that it takes too much of the disk. Its data stays, and only another deploy brings it back. The error is a Conflict for a stack that
// has expired or is being restored.
func (s *Stack) Stop(reason string, now time.Time) ([]Event, error) {
	switch {
	case s.Due(now):
		return nil, errExpired
	case s.Restoring():
		return nil, s.busy(tryAgain)
	}
	if err := s.apply(triggerStop); err != nil {
		return nil, err
	}
	s.endAttempt(Unsuccessful, reason, now)
	return s.fail(reason), nil
}

// servedFails ends the served generation of a live stack for the given reason. The
// stack becomes failed. While a deploy is under way or queued it becomes building
// instead, like a failed stack that is deployed again, and the deploy goes on.
func (s *Stack) servedFails(trigger Trigger, reason string) ([]Event, error) {
	if s.Deploying == 0 {
		if err := s.apply(trigger); err != nil {
			return nil, err
		}
		return s.fail(reason), nil
	}
	if err := s.apply(triggerServedFails); err != nil {
		return nil, err
	}
	s.setServices(Stopped)
	return []Event{failedEvent(reason)}, nil
}

// fail records why the stack is failed and stops its services.
func (s *Stack) fail(reason string) []Event {
	s.Error = errorText(reason, ErrorChars)
	s.setServices(Stopped)
	return []Event{failedEvent(reason)}
}

func failedEvent(reason string) Event {
	return Event{Type: EventFailed, Data: map[string]any{"error": errorText(reason, EventErrorChars)}}
}

// setRunning records that every service is healthy.
func (s *Stack) setRunning() {
	for i := range s.Generation.Services {
		s.Generation.Services[i].Status, s.Generation.Services[i].Unhealthy = Running, 0
	}
}

func (s *Stack) setServices(status ServiceStatus) {
	for i := range s.Generation.Services {
		s.Generation.Services[i].Status = status
	}
}

// ErrorChars and EventErrorChars limit the characters of an error that a stack and an
// event keep (docs/api.md, "Logs and events").
const (
	ErrorChars      = 4000
	EventErrorChars = 1000
)

// errorText returns an error of at most n characters: a longer one loses its middle. Errors
// hold what tenants' programs print, and are read on terminals.
func errorText(text string, n int) string { return lastlines.Shorten(safetext.String(text), n) }

// CommandLine returns a command for the first line of an error: on one line, and without
// the end of a long one.
func CommandLine(command string) string {
	const most = 200
	line := []rune(OneLine(command))
	if len(line) <= most {
		return string(line)
	}
	return string(line[:most]) + "…"
}

// OneLine joins the lines of a command.
func OneLine(command string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(strings.TrimSpace(command), "\n", " ⏎ ")), " ")
}
