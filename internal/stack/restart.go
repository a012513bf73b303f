package stack

import (
	"fmt"
	"strings"
)

// RestartService begins a restart that the owner asked for in the dashboard:
// the service is restarting until it is healthy again, and its crashes are
// forgotten (docs/api.md, "Crashes"). RestartedOnRequest or Crash ends it.
func (s *Stack) RestartService(name string) ([]Event, error) {
	svc := s.Service(name)
	switch {
	case svc == nil:
		return nil, NewError(NotFound, fmt.Sprintf("the stack has no service %s; it has %s", name, strings.Join(s.ServiceNames(), ", ")))
	case svc.Spec.IsStatic():
		return nil, NewError(Conflict, name+" is a static site: no process serves it, so there is none to restart")
	case s.Deploying != 0:
		return nil, NewError(Conflict, "a build of this stack is running, and starts every service again; wait for it to finish")
	}
	if err := s.apply(triggerRequest); err != nil {
		return nil, err
	}
	svc.forgetCrashes()
	svc.Status, svc.InPlace = Restarting, false
	return nil, nil
}

// RestartInPlace records that a requested restart ends the service's process before it
// starts the service again, rather than starting another process beside it.
func (s *Stack) RestartInPlace(service string) error {
	svc, err := s.served(service)
	if err == nil {
		svc.InPlace = true
	}
	return err
}

// RestartedOnRequest records that a service is healthy again after the restart
// that its owner asked for.
func (s *Stack) RestartedOnRequest(service string) ([]Event, error) {
	events, err := s.Restarted(service)
	if err != nil {
		return nil, err
	}
	events[0].Data["requested"] = true
	return events, nil
}

// ReplacedOnRequest is like RestartedOnRequest for a service that another process
// serves from now on; replaced counts the replaced processes of the generation. For a
// generation that is no longer served it returns a Conflict.
func (s *Stack) ReplacedOnRequest(service string, generation, replaced int) ([]Event, error) {
	if s.Generation != generation {
		return nil, NewError(Conflict, fmt.Sprintf("the stack no longer serves generation %d", generation))
	}
	events, err := s.RestartedOnRequest(service)
	if err == nil {
		s.Service(service).Replaced = replaced
	}
	return events, err
}

// RestartGivenUp ends a requested restart that failed while the old process goes on.
func (s *Stack) RestartGivenUp(service string) error {
	svc, err := s.served(service)
	if err == nil {
		svc.Status = Running
	}
	return err
}
