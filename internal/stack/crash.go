package stack

import (
	"fmt"
	"slices"
	"time"
)

// Crash counts a crash of a service (docs/api.md, "Crashes"). Code is the exit code of
// its process; nil if the process did not exit or the code is not known. A failed
// restart counts too, and its event has no code. The served generation ends, as in
// servedFails, after one crash more than the limit in the window, or after as many
// failed restarts in a row, however long they took; looping reports whether this was
// that crash.
func (s *Stack) Crash(service string, code *int, restart bool, limits Limits, now time.Time) (events []Event, looping bool, err error) {
	svc := s.Service(service)
	if svc == nil {
		return nil, false, NewError(Conflict, "the stack no longer has a service "+service)
	}
	crashes := svc.crash(now.Add(-limits.CrashWindow), now)
	if restart {
		svc.Unhealthy++
	}
	looping = crashes > limits.Crashes || svc.Unhealthy > limits.Crashes
	if err := s.apply(triggerCrash); err != nil {
		return nil, false, err
	}
	if code != nil {
		svc.LastExit = code
	}
	svc.Status = Restarting
	data := map[string]any{"service": service, "exit_code": nil, "crashes": crashes}
	if code != nil && !restart {
		data["exit_code"] = *code
	}
	events = []Event{{Type: EventCrashed, CreatedAt: now, Data: data}}
	if !looping {
		return events, false, nil
	}
	failed, err := s.servedFails(triggerCrashLoop, svc.loopError(crashes, limits))
	return append(events, failed...), true, err
}

// crash records a crash at now, drops those up to after, and returns how many remain.
func (s *Service) crash(after, now time.Time) int {
	kept := slices.DeleteFunc(slices.Clone(s.Crashes), func(at time.Time) bool { return !at.After(after) })
	s.Crashes = append(kept, now)
	return len(s.Crashes)
}

func (s *Service) loopError(crashes int, limits Limits) string {
	code := "unknown"
	if s.LastExit != nil {
		code = fmt.Sprint(*s.LastExit)
	}
	how := fmt.Sprintf("crashed %d times in %s", crashes, FormatWindow(limits.CrashWindow))
	if crashes <= limits.Crashes {
		how = fmt.Sprintf("did not become healthy in %d restarts in a row", s.Unhealthy)
	}
	return fmt.Sprintf("%s %s (last exit code %s); check its logs and redeploy", s.Spec.Name, how, code)
}

// RestartDelay returns how long to wait before a service is restarted after so many
// crashes in the window.
func (l Limits) RestartDelay(crashes int) time.Duration {
	wait := l.Backoff
	for range crashes - 1 {
		wait = min(2*wait, l.BackoffMax)
	}
	return min(wait, l.BackoffMax)
}

// Restarted records that a crashed service is healthy again.
func (s *Stack) Restarted(service string) ([]Event, error) {
	svc, err := s.served(service)
	if err != nil {
		return nil, err
	}
	svc.Status, svc.Unhealthy = Running, 0
	return []Event{{Type: EventRestarted, Data: map[string]any{"service": service}}}, nil
}

// served returns a service that the stack serves, or a Conflict.
func (s *Stack) served(service string) (*Service, error) {
	svc := s.Service(service)
	if s.Status != Live || svc == nil {
		return nil, NewError(Conflict, "the stack no longer serves "+service)
	}
	return svc, nil
}

// forgetCrashes restarts the crash window of every service.
func (s *Stack) forgetCrashes() {
	for i := range s.Generation.Services {
		s.Generation.Services[i].forgetCrashes()
	}
}

func (s *Service) forgetCrashes() { s.Crashes, s.Unhealthy, s.LastExit = nil, 0, nil }
