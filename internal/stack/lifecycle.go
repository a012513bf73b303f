package stack

import (
	"fmt"
	"time"
	"unicode/utf8"
)

// Trigger is what may move a stack from one status to another.
type Trigger string

// The triggers, in the order of "States and transitions".
const (
	TriggerDeployed     Trigger = "build finishes"
	TriggerDeployFailed Trigger = "deploy fails"
	TriggerRestored     Trigger = "server restarts"
	TriggerRestoreFails Trigger = "restore fails"
	TriggerDelete       Trigger = "DELETE"
)

// transition is one row of the lifecycle table.
type transition struct {
	from    Status
	trigger Trigger
	to      Status
}

// transitions is the whole lifecycle, its rows in the order of "States and
// transitions". A status and a trigger without a row are a Conflict.
var transitions = []transition{
	{Building, TriggerDeployed, Live},
	{Building, TriggerDeployFailed, Failed},
	{Live, TriggerRestored, Live},
	{Live, TriggerRestoreFails, Failed},
	{Building, TriggerDelete, Deleted},
	{Live, TriggerDelete, Deleted},
	{Failed, TriggerDelete, Deleted},
	{Expired, TriggerDelete, Deleted},
}

// apply moves the stack along the row of its status and the trigger.
func (s *Stack) apply(t Trigger) error {
	for _, row := range transitions {
		if row.from == s.Status && row.trigger == t {
			s.Status = row.to
			return nil
		}
	}
	return NewError(Conflict, fmt.Sprintf("the stack is %s, so this cannot be done: %s", s.Status, t))
}

// Created is the event of a new stack, before its first build.
func (s *Stack) Created() Event {
	return Event{Type: EventCreated, Data: map[string]any{"anonymous": !s.Claimed()}}
}

// ServiceBuilding is the event of a service whose install and build start.
func ServiceBuilding(service string, generation int) Event {
	return Event{Type: EventBuilding, Data: map[string]any{"service": service, "generation": generation}}
}

// Ready marks a service running and returns its event. On a redeploy the
// service may not be one of the served generation yet.
func (s *Stack) Ready(service, url string) Event {
	if svc := s.Service(service); svc != nil {
		svc.Status = Running
	}
	return Event{Type: EventReady, Data: map[string]any{"service": service, "url": url}}
}

// Deployed makes the generation that was being built the served one.
func (s *Stack) Deployed(services []Service, urls URLs, now time.Time) ([]Event, error) {
	if err := s.apply(TriggerDeployed); err != nil {
		return nil, err
	}
	s.Services = services
	for i := range s.Services {
		s.Services[i].Status = Running
	}
	s.Generation, s.Deploying = s.Deploying, 0
	s.DeployedAt = now
	s.Error, s.DeployError = "", ""
	return []Event{{Type: EventLive, Data: map[string]any{
		"generation": s.Generation,
		"urls":       urls.All(s),
		"expires_at": Timestamp(s.ExpiresAt),
	}}}, nil
}

// DeployFailed ends a first build that failed, for the given reason.
func (s *Stack) DeployFailed(reason string) ([]Event, error) {
	if err := s.apply(TriggerDeployFailed); err != nil {
		return nil, err
	}
	return s.fail(reason), nil
}

// Restored records that a live stack serves again after the server restarted.
func (s *Stack) Restored(urls URLs) ([]Event, error) {
	if err := s.apply(TriggerRestored); err != nil {
		return nil, err
	}
	for i := range s.Services {
		s.Services[i].Status = Running
	}
	return []Event{{Type: EventRestored, Data: map[string]any{"urls": urls.All(s)}}}, nil
}

// RestoreFailed ends a live stack whose services could not be started again.
func (s *Stack) RestoreFailed(reason string) ([]Event, error) {
	if err := s.apply(TriggerRestoreFails); err != nil {
		return nil, err
	}
	return s.fail(reason), nil
}

// Delete ends the stack: its tokens stop working and every secret is
// forgotten. The row stays for its events.
func (s *Stack) Delete() ([]Event, error) {
	if err := s.apply(TriggerDelete); err != nil {
		return nil, err
	}
	s.Deploying = 0
	s.ManageTokenHash, s.ClaimCodeHash = nil, nil
	s.Secrets, s.WebhookSecret = nil, ""
	for i := range s.Services {
		s.Services[i].Env = nil
		s.Services[i].Status = Stopped
	}
	return []Event{{Type: EventDeleted}}, nil
}

// fail writes down why the stack is failed and stops its services.
func (s *Stack) fail(reason string) []Event {
	s.Error = lastChars(reason, ErrorChars)
	s.Deploying = 0
	for i := range s.Services {
		s.Services[i].Status = Stopped
	}
	return []Event{{Type: EventFailed, Data: map[string]any{"error": lastChars(reason, EventErrorChars)}}}
}

// ErrorChars and EventErrorChars are how many characters of an error a stack
// and an event keep ("Logs and events").
const (
	ErrorChars      = 4000
	EventErrorChars = 1000
)

// lastChars is the end of text, at most n characters of it.
func lastChars(text string, n int) string {
	for count := utf8.RuneCountInString(text); count > n; count-- {
		_, size := utf8.DecodeRuneInString(text)
		text = text[size:]
	}
	return text
}
