package stack_test

import (
	"testing"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

func TestRestartService_ForgetsTheCrashesOfThatServiceOnly(t *testing.T) {
	s := live(t)
	code := 3
	for _, name := range []string{"api", "web"} {
		svc := s.Service(name)
		svc.Spec.Runtime = stack.Runtime{Name: "node", Version: "22"}
		svc.Crashes, svc.LastExit = []time.Time{now, now}, &code
	}
	if events := must(t)(s.RestartService("api")); events != nil {
		t.Errorf("events %v before it is healthy", events)
	}
	api, web := s.Service("api"), s.Service("web")
	if api.Status != stack.Restarting || api.Crashes != nil || api.LastExit != nil {
		t.Errorf("api %+v", api)
	}
	if web.Status != stack.Running || len(web.Crashes) != 2 || web.LastExit == nil {
		t.Errorf("web %+v", web)
	}
	if n, _ := crash(t, s, now); n != 1 {
		t.Errorf("the next crash counts %d, want 1", n)
	}
}

func TestRestartService_SaysWhyItCannotBe(t *testing.T) {
	s := live(t)
	_, err := s.RestartService("web")
	wantKind(t, err, stack.Conflict, "static site")
	_, err = s.RestartService("other")
	wantKind(t, err, stack.NotFound, "it has api, web")
	_, err = redeploying(t).RestartService("api")
	wantKind(t, err, stack.Conflict, "wait for it")
	_, err = failed(t).RestartService("api")
	wantKind(t, err, stack.Conflict, "the stack is failed")
}

func TestRestartService_TakesAllServicesWithAProcess(t *testing.T) {
	s := live(t)
	must(t)(s.RestartService(""))
	if s.Service("api").Status != stack.Restarting || s.Service("web").Status != stack.Running {
		t.Errorf("api is %s and web, a site, is %s", s.Service("api").Status, s.Service("web").Status)
	}
	s = live(t)
	for i := range s.Generation.Services {
		s.Generation.Services[i].Spec.Runtime = stack.Runtime{Name: stack.Static}
	}
	_, err := s.RestartService("")
	wantKind(t, err, stack.Conflict, "all services are static sites")
}

func TestRestartedOnRequest_SaysSo(t *testing.T) {
	s := live(t)
	must(t)(s.RestartService("api"))
	events := must(t)(s.RestartedOnRequest("api"))
	if data := events[0].Data; len(data) != 2 || data["service"] != "api" || data["requested"] != true || s.Service("api").Status != stack.Running {
		t.Errorf("data %v, service %+v", data, s.Service("api"))
	}
	_, err := s.RestartedOnRequest("old")
	wantKind(t, err, stack.Conflict, "old")
}

func TestReplacedOnRequest_CountsTheProcessesOfTheGeneration(t *testing.T) {
	s := live(t)
	for n := range 2 {
		must(t)(s.RestartService("api"))
		events := must(t)(s.ReplacedOnRequest("api", s.Generation.Number, n+1))
		if events[0].Data["requested"] != true || s.Service("api").Replaced != n+1 || s.Service("api").Status != stack.Running {
			t.Errorf("data %v, service %+v", events[0].Data, s.Service("api"))
		}
	}
	_, err := s.ReplacedOnRequest("old", s.Generation.Number, 1)
	wantKind(t, err, stack.Conflict, "old")
	_, err = s.ReplacedOnRequest("api", s.Generation.Number-1, 3)
	wantKind(t, err, stack.Conflict, "generation 0")
	if s.Service("api").Replaced != 2 {
		t.Errorf("%d processes were replaced, want 2", s.Service("api").Replaced)
	}
}

func TestRestartGivenUp_LeavesTheServiceRunning(t *testing.T) {
	s := live(t)
	must(t)(s.RestartService("api"))
	if err := s.RestartGivenUp("api"); err != nil || s.Service("api").Status != stack.Running {
		t.Errorf("%v, service %+v", err, s.Service("api"))
	}
	wantKind(t, failed(t).RestartGivenUp("api"), stack.Conflict, "api")
}
