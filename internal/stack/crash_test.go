package stack_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/stack"
)

// crash lets the service api exit with 3, and returns how often it crashed in the
// window and whether that was too often.
func crash(t *testing.T, s *stack.Stack, at time.Time) (crashes int, looping bool) {
	t.Helper()
	code := 3
	events, looping, err := s.Crash("api", &code, false, limits, at)
	if err != nil {
		t.Fatal(err)
	}
	data := events[0].Data
	if data["service"] != "api" || data["exit_code"] != 3 {
		t.Errorf("data %v", data)
	}
	return data["crashes"].(int), looping
}

func TestCrash_TheSixthInTheWindowFailsTheStack(t *testing.T) {
	s := live(t)
	for i := range 5 {
		if n, looping := crash(t, s, now.Add(time.Duration(i)*time.Minute)); n != i+1 || looping {
			t.Fatalf("crash %d counts %d, looping %v", i+1, n, looping)
		}
		if s.Status != stack.Live || s.Generation.Services[0].Status != stack.Restarting || s.Generation.Services[1].Status != stack.Running {
			t.Fatalf("after crash %d: %+v", i+1, s)
		}
		must(t)(s.Restarted("api"))
		if s.Generation.Services[0].Status != stack.Running {
			t.Fatalf("after the restart: %+v", s.Generation.Services[0])
		}
	}
	code := 3
	events, looping, err := s.Crash("api", &code, false, limits, now.Add(5*time.Minute))
	const want = "api crashed 6 times in 10 min (last exit code 3); check its logs and redeploy"
	if err != nil || !looping || s.Status != stack.Failed || s.Error != want || events[1].Data["error"] != want {
		t.Errorf("looping %v, %v, status %s, error %q, want failed with %q", looping, err, s.Status, s.Error, want)
	}
	for _, svc := range s.Generation.Services {
		if svc.Status != stack.Stopped {
			t.Errorf("%s is %s, want the whole stack stopped", svc.Spec.Name, svc.Status)
		}
	}
}

func TestCrash_TheWindowSlides(t *testing.T) {
	s := live(t)
	for i := range 30 { // one every 2 min: five are in any 10 min
		want := min(i+1, 5)
		if n, looping := crash(t, s, now.Add(time.Duration(i)*2*time.Minute)); n != want || looping {
			t.Fatalf("crash %d counts %d, looping %v, want %d", i+1, n, looping, want)
		}
	}
	if n := len(s.Generation.Services[0].Crashes); n != 5 {
		t.Errorf("%d crashes kept, want those of the window", n)
	}
	if n, looping := crash(t, s, now.Add(59*time.Minute)); n != 6 || !looping {
		t.Errorf("the sixth in 10 min counts %d, looping %v", n, looping)
	}
}

func TestCrash_CountsEachServiceByItself(t *testing.T) {
	s := live(t)
	for range 5 {
		crash(t, s, now)
	}
	events, looping, err := s.Crash("web", nil, true, limits, now)
	if err != nil || looping || events[0].Data["crashes"] != 1 {
		t.Errorf("events %v, looping %v, %v", events, looping, err)
	}
}

func TestCrash_AFailedRestartHasNoExitCodeAndKeepsTheLastOne(t *testing.T) {
	s := live(t)
	events, _, err := s.Crash("api", nil, true, limits, now)
	if code, there := events[0].Data["exit_code"]; err != nil || code != nil || !there {
		t.Errorf("data %v, %v, want an exit code that is null", events[0].Data, err)
	}
	for range 4 {
		crash(t, s, now)
	}
	if _, _, err := s.Crash("api", nil, true, limits, now); err != nil {
		t.Fatal(err)
	}
	if want := "api crashed 6 times in 10 min (last exit code 3); check its logs and redeploy"; s.Error != want {
		t.Errorf("error %q, want %q", s.Error, want)
	}
}

func TestCrash_TheErrorTellsTheExitCodeOfTheLastRestart(t *testing.T) {
	s := live(t)
	for range 5 {
		crash(t, s, now)
	}
	code := 9
	events, _, err := s.Crash("api", &code, true, limits, now)
	if err != nil || events[0].Data["exit_code"] != nil {
		t.Errorf("data %v, %v", events[0].Data, err)
	}
	if want := "api crashed 6 times in 10 min (last exit code 9); check its logs and redeploy"; s.Error != want {
		t.Errorf("error %q, want %q", s.Error, want)
	}
}

func TestCrash_WithoutAnyExitCodeSaysSo(t *testing.T) {
	s := live(t)
	l := limits
	l.Crashes, l.CrashWindow = 0, 90*time.Second
	if _, looping, err := s.Crash("api", nil, true, l, now); err != nil || !looping {
		t.Fatal(looping, err)
	}
	if want := "api crashed 1 times in 1m30s (last exit code unknown); check its logs and redeploy"; s.Error != want {
		t.Errorf("error %q, want %q", s.Error, want)
	}
}

// unhealthy lets n restarts of the service api fail, each so long after the one
// before that no window holds two.
func unhealthy(t *testing.T, s *stack.Stack, n int) (looping bool) {
	t.Helper()
	for i := range n {
		var err error
		if _, looping, err = s.Crash("api", nil, true, limits, now.Add(time.Duration(i)*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	return looping
}

func TestCrash_TheSixthRestartInARowThatFailsDoesToo(t *testing.T) {
	s := live(t)
	crash(t, s, now)
	if unhealthy(t, s, 5) || s.Status != stack.Live {
		t.Fatalf("after 5 failed restarts the stack is %s: %s", s.Status, s.Error)
	}
	const want = "api did not become healthy in 6 restarts in a row (last exit code 3); check its logs and redeploy"
	if !unhealthy(t, s, 1) || s.Status != stack.Failed || s.Error != want {
		t.Errorf("after 6 the stack is %s: %q, want %q", s.Status, s.Error, want)
	}
}

func TestCrash_ARestartThatIsHealthyEndsTheRow(t *testing.T) {
	for name, healthy := range map[string]func(*stack.Stack) ([]stack.Event, error){
		"restarted":           func(s *stack.Stack) ([]stack.Event, error) { return s.Restarted("api") },
		"restarted for owner": func(s *stack.Stack) ([]stack.Event, error) { return s.RestartService("api") },
		"restored":            func(s *stack.Stack) ([]stack.Event, error) { return s.Restored(urls) },
		"redeployed": func(s *stack.Stack) ([]stack.Event, error) {
			must(t)(s.Deploy(s.Generation.Services, now))
			return s.Deployed(s.Generation, urls, now)
		},
	} {
		s := live(t)
		unhealthy(t, s, 5)
		must(t)(healthy(s))
		if unhealthy(t, s, 5) {
			t.Errorf("%s: the restarts before it count", name)
		}
	}
}

func TestCrash_OfAServiceThatIsGoneIsRefused(t *testing.T) {
	s := live(t)
	_, _, err := s.Crash("old", nil, false, limits, now)
	wantKind(t, err, stack.Conflict, "old")
	_, err = s.Restarted("old")
	wantKind(t, err, stack.Conflict, "old")
}

func TestCrashes_SurviveBeingStored(t *testing.T) {
	s := live(t)
	for i := range 5 {
		crash(t, s, now.Add(time.Duration(i)*time.Microsecond))
	}
	text, err := json.Marshal(s.Generation.Services)
	if err != nil {
		t.Fatal(err)
	}
	var back []stack.Service
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s.Generation.Services, back); diff != "" {
		t.Fatal(diff)
	}
	s.Generation.Services = back
	if n, looping := crash(t, s, now.Add(time.Minute)); n != 6 || !looping {
		t.Errorf("the sixth counts %d, looping %v", n, looping)
	}
}

func TestCrashes_AreKeptWhenTheServerRestarts(t *testing.T) {
	s := live(t)
	for range 5 {
		crash(t, s, now)
	}
	must(t)(s.Restored(urls))
	if svc := s.Generation.Services[0]; svc.Status != stack.Running || svc.LastExit == nil || *svc.LastExit != 3 {
		t.Errorf("service %+v", svc)
	}
	if n, looping := crash(t, s, now.Add(time.Minute)); n != 6 || !looping {
		t.Errorf("the sixth counts %d, looping %v", n, looping)
	}
}

func TestCrashes_AreForgottenWhereTheStackComesBack(t *testing.T) {
	back := map[string]func(*stack.Stack){
		"redeployed": func(s *stack.Stack) {
			must(t)(s.Deploy(s.Generation.Services, now))
			must(t)(s.Deployed(s.Generation, urls, now))
		},
		"claimed and restored": func(s *stack.Stack) {
			must(t)(s.Expire(urls, limits, now.Add(time.Hour)))
			must(t)(s.Claim("acc_1", "ana@example.com", now.Add(time.Hour)))
			must(t)(s.Restored(urls))
		},
	}
	for name, comeBack := range back {
		s := live(t)
		for range 5 {
			crash(t, s, now)
		}
		comeBack(s)
		if svc := s.Generation.Services[0]; svc.LastExit != nil || svc.Status != stack.Running {
			t.Errorf("%s: service %+v", name, svc)
		}
		if n, _ := crash(t, s, now); n != 1 {
			t.Errorf("%s: the next crash counts %d, want 1", name, n)
		}
	}
}

func TestCrash_TheWindowEndsToTheSecond(t *testing.T) {
	for after, want := range map[time.Duration]int{
		limits.CrashWindow - time.Second: 6,
		limits.CrashWindow:               5,
		limits.CrashWindow + time.Second: 5,
	} {
		s := live(t)
		crash(t, s, now)
		for range 4 {
			crash(t, s, now.Add(time.Minute))
		}
		if n, looping := crash(t, s, now.Add(after)); n != want || looping != (want > limits.Crashes) {
			t.Errorf("%s after the first, the sixth crash counts %d, looping %v; want %d", after, n, looping, want)
		}
	}
}

func TestRestartDelay_DoublesUpToItsBound(t *testing.T) {
	l := stack.Limits{Backoff: time.Second, BackoffMax: 30 * time.Second}
	for i, want := range []int{1, 2, 4, 8, 16, 30, 30} {
		if got := l.RestartDelay(i + 1); got != time.Duration(want)*time.Second {
			t.Errorf("after crash %d: %s, want %d s", i+1, got, want)
		}
	}
	l.BackoffMax = 500 * time.Millisecond
	if got := l.RestartDelay(1); got != l.BackoffMax {
		t.Errorf("a bound below the first delay gives %s", got)
	}
}
