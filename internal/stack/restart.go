package stack

import (
	"fmt"
	"strings"

	"github.com/berth-host/berth/internal/safetext"
)

// RestartService begins a requested restart of a service, or for "" of every service that
// has a process: it is restarting until it is healthy again, and its crashes are forgotten
// (docs/api.md, "Crashes"). RestartedOnRequest or Crash ends the restart of a service.
func (s *Stack) RestartService(name string) ([]Event, error) {
	if name != "" && s.Service(name) == nil {
		return nil, s.noService(name)
	}
	if s.Deploying != 0 {
		return nil, NewError(Conflict, "a build of this stack is running, and starts every service again; wait for it to finish")
	}
	if err := s.apply(triggerRequest); err != nil {
		return nil, err
	}
	chosen := s.Processes(name)
	switch {
	case len(chosen) == 0 && name != "":
		return nil, NewError(Conflict, name+" is a static site: no process serves it, so there is none to restart")
	case len(chosen) == 0:
		return nil, NewError(Conflict, "all services are static sites: no process serves them, so there is none to restart")
	}
	for _, svc := range chosen {
		svc.forgetCrashes()
		svc.Status, svc.InPlace = Restarting, false
	}
	return nil, nil
}

// noService is the NotFound for a name that none of the stack's services has.
func (s *Stack) noService(name string) error {
	return NewError(NotFound, fmt.Sprintf("the stack has no service %s; it has %s", safetext.Name(name), strings.Join(s.ServiceNames(), ", ")))
}

// Processes returns the services of that name, or for "" all, that are not static sites.
func (s *Stack) Processes(name string) (chosen []*Service) {
	for i := range s.Generation.Services {
		svc := &s.Generation.Services[i]
		if !svc.Spec.IsStatic() && (name == "" || name == svc.Spec.Name) {
			chosen = append(chosen, svc)
		}
	}
	return chosen
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

// RestartedOnRequest records that a service is healthy again after a requested restart.
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
	if s.Generation.Number != generation {
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
