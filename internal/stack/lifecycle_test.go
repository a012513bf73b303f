package stack_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/stack"
)

var limits = stack.Limits{
	TTL:          time.Hour,
	TTLMin:       15 * time.Minute,
	TTLMax:       24 * time.Hour,
	ExpiryNotice: 5 * time.Minute,
	Retention:    7 * 24 * time.Hour,
	Crashes:      5,
	CrashWindow:  10 * time.Minute,
}

// wantKind checks that err is for the client, of the given kind, and says what
// to do in words that hold text.
func wantKind(t *testing.T, err error, kind stack.Kind, text string) {
	t.Helper()
	var known *stack.Error
	if !errors.As(err, &known) || known.Kind != kind || !strings.Contains(known.Detail, text) {
		t.Errorf("error %v, want one of kind %d with %q", err, kind, text)
	}
}

// types lists the events' types, separated by spaces.
func types(events []stack.Event) string {
	var names []string
	for _, e := range events {
		names = append(names, string(e.Type))
	}
	return strings.Join(names, " ")
}

// must returns the events of a trigger that has to be allowed.
func must(t *testing.T) func([]stack.Event, error) []stack.Event {
	return func(events []stack.Event, err error) []stack.Event {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return events
	}
}

// trigger applies one trigger of the lifecycle.
type trigger struct {
	name  string
	apply func(*stack.Stack) ([]stack.Event, error)
}

// triggers are the columns of the grid.
var triggers = []trigger{
	{"deploy", func(s *stack.Stack) ([]stack.Event, error) { return s.Deploy(s.Generation.Services, now) }},
	{"deployed", func(s *stack.Stack) ([]stack.Event, error) { return s.Deployed(s.Generation, urls, now) }},
	{"deploy failed", func(s *stack.Stack) ([]stack.Event, error) { return s.DeployFailed("no", stack.Now()) }},
	{"rollback failed", func(s *stack.Stack) ([]stack.Event, error) { return s.RollbackFailed("no", stack.Now()) }},
	{"crash", crashOnce},
	{"sixth crash", sixthCrash},
	{"restarted", func(s *stack.Stack) ([]stack.Event, error) { return s.Restarted("api") }},
	{"owner restarts", func(s *stack.Stack) ([]stack.Event, error) { return s.RestartService("api") }},
	{"restarted for owner", func(s *stack.Stack) ([]stack.Event, error) { return s.RestartedOnRequest("api") }},
	{"owner revokes", func(s *stack.Stack) ([]stack.Event, error) { return s.RevokeAgent() }},
	{"extend", func(s *stack.Stack) ([]stack.Event, error) { return s.Extend(time.Hour, limits, now) }},
	{"notice", func(s *stack.Stack) ([]stack.Event, error) { return s.Notice() }},
	{"expire", func(s *stack.Stack) ([]stack.Event, error) { return s.Expire(urls, limits, now.Add(time.Hour)) }},
	{"claim", func(s *stack.Stack) ([]stack.Event, error) { return s.Claim("acc_1", "ana@example.com", now) }},
	{"restored", func(s *stack.Stack) ([]stack.Event, error) { return s.Restored(urls) }},
	{"restore failed", func(s *stack.Stack) ([]stack.Event, error) { return s.RestoreFailed("no") }},
	{"retained", func(s *stack.Stack) ([]stack.Event, error) { return s.Retained(now.Add(9 * 24 * time.Hour)) }},
	{"delete", func(s *stack.Stack) ([]stack.Event, error) { return s.Delete(now) }},
}

func crashOnce(s *stack.Stack) ([]stack.Event, error) {
	code := 3
	events, _, err := s.Crash("api", &code, false, limits, now)
	return events, err
}

func sixthCrash(s *stack.Stack) ([]stack.Event, error) {
	if len(s.Generation.Services) > 0 { // a deleted stack has none
		s.Generation.Services[0].Crashes = []time.Time{now, now, now, now, now}
	}
	return crashOnce(s)
}

// states holds the rows of the grid: every status, with the variants that make a
// difference.
var states = map[string]func(*testing.T) *stack.Stack{
	"building":             building,
	"building again":       rebuilding,
	"restoring":            restoring,
	"live":                 live,
	"live, redeploying":    redeploying,
	"live, claimed":        claimed,
	"building, was live":   fallen,
	"failed":               failed,
	"expired":              expired,
	"deleted":              deleted,
	"failed, time run out": func(t *testing.T) *stack.Stack { s := failed(t); s.ExpiresAt = now; return s },
}

func building(*testing.T) *stack.Stack {
	s := twoServices()
	s.ExpiresAt = now.Add(time.Hour)
	s.ManageTokenHash, s.ClaimCodeHash = []byte("token"), []byte("code")
	return s
}

func live(t *testing.T) *stack.Stack {
	s := building(t)
	must(t)(s.Deployed(s.Generation, urls, now))
	return s
}

func redeploying(t *testing.T) *stack.Stack {
	s := live(t)
	must(t)(s.Deploy(s.Generation.Services, now))
	return s
}

// fallen is a stack whose served generation failed while the next one is built.
func fallen(t *testing.T) *stack.Stack {
	s := redeploying(t)
	must(t)(s.RestoreFailed("it does not start"))
	return s
}

func claimed(t *testing.T) *stack.Stack {
	s := live(t)
	must(t)(s.Claim("acc_1", "ana@example.com", now))
	return s
}

func failed(t *testing.T) *stack.Stack {
	s := building(t)
	must(t)(s.DeployFailed("it broke", stack.Now()))
	return s
}

func rebuilding(t *testing.T) *stack.Stack {
	s := failed(t)
	must(t)(s.Deploy(s.Generation.Services, now))
	return s
}

func expired(t *testing.T) *stack.Stack {
	s := live(t)
	must(t)(s.Expire(urls, limits, now.Add(time.Hour)))
	return s
}

func restoring(t *testing.T) *stack.Stack {
	s := expired(t)
	must(t)(s.Claim("acc_1", "ana@example.com", now.Add(2*time.Hour)))
	return s
}

func deleted(t *testing.T) *stack.Stack {
	s := live(t)
	must(t)(s.Delete(now))
	return s
}

// grid is the golden grid: what each trigger makes of each state, and the events that
// record it; a pair that is missing is refused.
var grid = map[string]map[string]string{
	"building": {
		"deployed":      "live stack.live",
		"deploy failed": "failed stack.failed",
		"extend":        "building stack.extended",
		"notice":        "building stack.expiring",
		"expire":        "expired stack.expired",
		"claim":         "building stack.claimed",
		"delete":        "deleted stack.deleted",
	},
	"building again": {
		"deployed":      "live stack.live",
		"deploy failed": "failed stack.failed",
		"extend":        "building stack.extended",
		"notice":        "building stack.expiring",
		"expire":        "expired stack.expired",
		"claim":         "building stack.claimed",
		"delete":        "deleted stack.deleted",
	},
	"building, was live": {
		"deployed":      "live stack.live",
		"deploy failed": "failed stack.failed",
		"extend":        "building stack.extended",
		"notice":        "building stack.expiring",
		"expire":        "expired stack.expired",
		"claim":         "building stack.claimed",
		"delete":        "deleted stack.deleted",
	},
	"restoring": {
		"owner revokes":  "building stack.agent_revoked",
		"restored":       "live stack.restored",
		"restore failed": "failed stack.failed",
		"delete":         "deleted stack.deleted",
	},
	"live": {
		"deploy":              "live stack.redeploying",
		"crash":               "live service.crashed",
		"sixth crash":         "failed service.crashed stack.failed",
		"restarted":           "live service.restarted",
		"owner restarts":      "live ",
		"restarted for owner": "live service.restarted",
		"extend":              "live stack.extended",
		"notice":              "live stack.expiring",
		"expire":              "expired stack.expired",
		"claim":               "live stack.claimed",
		"restored":            "live stack.restored",
		"restore failed":      "failed stack.failed",
		"delete":              "deleted stack.deleted",
	},
	"live, redeploying": {
		"deployed":            "live stack.live",
		"deploy failed":       "live stack.deploy_failed",
		"rollback failed":     "failed stack.failed",
		"crash":               "live service.crashed",
		"sixth crash":         "building service.crashed stack.failed",
		"restarted":           "live service.restarted",
		"restarted for owner": "live service.restarted",
		"extend":              "live stack.extended",
		"notice":              "live stack.expiring",
		"expire":              "expired stack.deploy_failed stack.expired",
		"claim":               "live stack.claimed",
		"restored":            "live stack.restored",
		"restore failed":      "building stack.failed",
		"delete":              "deleted stack.deleted",
	},
	"live, claimed": {
		"deploy":              "live stack.redeploying",
		"crash":               "live service.crashed",
		"sixth crash":         "failed service.crashed stack.failed",
		"restarted":           "live service.restarted",
		"owner restarts":      "live ",
		"restarted for owner": "live service.restarted",
		"owner revokes":       "live stack.agent_revoked",
		"restored":            "live stack.restored",
		"restore failed":      "failed stack.failed",
		"delete":              "deleted stack.deleted",
	},
	"failed": {
		"deploy": "building stack.redeploying",
		"extend": "failed stack.extended",
		"notice": "failed stack.expiring",
		"expire": "expired stack.expired",
		"claim":  "failed stack.claimed",
		"delete": "deleted stack.deleted",
	},
	"failed, time run out": {
		"notice": "failed stack.expiring",
		"expire": "expired stack.expired",
		"claim":  "building stack.claimed",
		"delete": "deleted stack.deleted",
	},
	"expired": {
		"claim":    "building stack.claimed",
		"retained": "deleted stack.deleted",
		"delete":   "deleted stack.deleted",
	},
	"deleted": {},
}

func TestLifecycle_EveryStatusByEveryTrigger(t *testing.T) {
	for name, make := range states {
		row, ok := grid[name]
		if !ok {
			t.Fatalf("the grid has no row %s", name)
		}
		for _, tr := range triggers {
			s := make(t)
			before := s.Status
			events, err := tr.apply(s)
			want, allowed := row[tr.name]
			switch {
			case err != nil && allowed:
				t.Errorf("%s, %s: %v, want %q", name, tr.name, err, want)
			case err != nil:
				conflict := stack.KindOf(err) == stack.Conflict || stack.KindOf(err) == stack.NotFound && (tr.name == "claim" || s.Status == stack.Deleted)
				if !conflict || s.Status != before || events != nil {
					t.Errorf("%s, %s: status %s, events %v, error %v, want a refusal that changes nothing", name, tr.name, s.Status, events, err)
				}
			default:
				if got := string(s.Status) + " " + types(events); got != want {
					t.Errorf("%s, %s: %q, want %q", name, tr.name, got, want)
				}
			}
		}
	}
}

func TestLifecycle_SettlesWhenNothingIsUnderWay(t *testing.T) {
	want := map[string]bool{"live": true, "live, claimed": true, "failed": true, "failed, time run out": true, "expired": true, "deleted": true}
	for name, make := range states {
		if got := make(t).Settled(); got != want[name] {
			t.Errorf("%s: settled %v, want %v", name, got, want[name])
		}
	}
}

func TestDeploy_BuildsTheNextGenerationBesideTheServedOne(t *testing.T) {
	s := live(t)
	s.DeployError = "an older one"
	serving := slices.Clone(s.Generation.Services)
	events := must(t)(s.Deploy(stack.Services([]stack.Spec{{Name: "other"}}), now))
	if s.Generation.Number != 1 || s.Deploying != 2 || s.DeployError != "" || !cmp.Equal(s.Generation.Services, serving) {
		t.Errorf("stack %+v", s)
	}
	if events[0].Data["generation"] != 2 {
		t.Errorf("data %v", events[0].Data)
	}
	_, err := s.Deploy(s.Generation.Services, now)
	wantKind(t, err, stack.Conflict, "already running")
}

func TestDeploy_OfAFailedStackTakesTheNewServicesAtOnce(t *testing.T) {
	s := failed(t)
	given := stack.Services([]stack.Spec{{Name: "other"}})
	must(t)(s.Deploy(given, now))
	if s.Generation.Number != 1 || s.Deploying != 2 || s.Error != "" || s.Generation.Services[0].Spec.Name != "other" || s.Generation.Services[0].Status != stack.Pending {
		t.Errorf("stack %+v", s)
	}
	given[0].Status = stack.Stopped
	if s.Generation.Services[0].Status != stack.Pending {
		t.Error("the stack shares the services that the build goes on with")
	}
}

func TestDeploy_SaysWhatToDoInstead(t *testing.T) {
	for name, text := range map[string]string{"building": "wait=true", "restoring": "being restored; wait", "expired": "claim it"} {
		_, err := states[name](t).Deploy(nil, now)
		wantKind(t, err, stack.Conflict, text)
	}
}

func TestDeploy_AfterTheTimeRanOutIsRefused(t *testing.T) {
	for _, name := range []string{"building", "live", "live, redeploying", "failed"} {
		s := states[name](t)
		_, err := s.Deploy(s.Generation.Services, s.ExpiresAt)
		wantKind(t, err, stack.Conflict, "the stack has expired; claim it")
	}
	s := live(t)
	must(t)(s.Deploy(s.Generation.Services, s.ExpiresAt.Add(-time.Microsecond)))
}

func TestDeployed_ReplacesTheGeneration(t *testing.T) {
	s := redeploying(t)
	s.Generation.Services[0].Crashes, s.Generation.Services[0].LastExit = []time.Time{now}, new(int)
	next := stack.Services([]stack.Spec{{Name: "web"}})
	next[0].Crashes = []time.Time{now}
	events := must(t)(s.Deployed(stack.Generation{Services: next}, urls, now.Add(time.Minute)))
	if s.Generation.Number != 2 || s.Deploying != 0 || !s.DeployedAt.Equal(now.Add(time.Minute)) {
		t.Errorf("stack %+v", s)
	}
	if svc := s.Generation.Services[0]; len(s.Generation.Services) != 1 || svc.Status != stack.Running || svc.Crashes != nil || svc.LastExit != nil {
		t.Errorf("services %+v", s.Generation.Services)
	}
	if events[0].Data["generation"] != 2 {
		t.Errorf("data %v", events[0].Data)
	}
}

func TestDeployed_OfAClaimedStackHasNoExpiry(t *testing.T) {
	s := claimed(t)
	must(t)(s.Deploy(s.Generation.Services, now))
	text, err := json.Marshal(must(t)(s.Deployed(s.Generation, urls, now))[0])
	if err != nil || !strings.Contains(string(text), `"expires_at":null`) {
		t.Errorf("event %s, %v", text, err)
	}
}

func TestDeployFailed_LeavesTheServedGeneration(t *testing.T) {
	s := redeploying(t)
	long := strings.Repeat("x", 5000) + " end"
	events := must(t)(s.DeployFailed(long, stack.Now()))
	if s.Generation.Number != 1 || s.Deploying != 0 || s.Error != "" || len(s.DeployError) != stack.ErrorChars || s.Generation.Services[0].Status != stack.Running {
		t.Errorf("stack %+v", s)
	}
	data := events[0].Data
	if data["generation"] != 2 || data["serving_generation"] != 1 || len(data["error"].(string)) != stack.EventErrorChars {
		t.Errorf("data %v", data)
	}
	must(t)(s.Deploy(s.Generation.Services, now))
	if s.Deploying != 2 {
		t.Errorf("after a failed attempt generation %d is built, want 2 again", s.Deploying)
	}
}

func TestRollbackFailed_StopsEveryService(t *testing.T) {
	s := redeploying(t)
	must(t)(s.RollbackFailed("the old one did not come back", stack.Now()))
	if s.Deploying != 0 || s.Error != "the old one did not come back" || s.Generation.Services[0].Status != stack.Stopped {
		t.Errorf("stack %+v", s)
	}
}

func TestServedGenerationThatFailsDuringADeploy_LeavesTheDeployUnderWay(t *testing.T) {
	for name, fail := range map[string]func(*stack.Stack) ([]stack.Event, error){
		"a crash loop": sixthCrash,
		"a restore":    func(s *stack.Stack) ([]stack.Event, error) { return s.RestoreFailed("it does not start") },
	} {
		s := redeploying(t)
		events := must(t)(fail(s))
		if s.Status != stack.Building || s.Generation.Number != 1 || s.Deploying != 2 || s.Settled() || s.Error != "" || s.DeployError != "" {
			t.Errorf("%s: stack %+v", name, s)
		}
		for _, svc := range s.Generation.Services {
			if svc.Status != stack.Stopped {
				t.Errorf("%s: %s is %s", name, svc.Spec.Name, svc.Status)
			}
		}
		if text, _ := events[len(events)-1].Data["error"].(string); text == "" {
			t.Errorf("%s: %v has no reason", name, events[len(events)-1])
		}
		must(t)(s.Deployed(s.Generation, urls, now))
		if s.Generation.Number != 2 || s.Deploying != 0 || s.Error != "" {
			t.Errorf("%s, and the deploy: stack %+v", name, s)
		}
	}
}

func TestServedGenerationThatFailsDuringADeploy_FailsAgainWithTheDeploy(t *testing.T) {
	s := fallen(t)
	must(t)(s.DeployFailed("the build broke", stack.Now()))
	if s.Status != stack.Failed || s.Generation.Number != 1 || s.Deploying != 0 || s.Error != "the build broke" || s.DeployError != "" {
		t.Errorf("stack %+v", s)
	}
	must(t)(s.Deploy(s.Generation.Services, now))
	if s.Deploying != 2 {
		t.Errorf("generation %d is built next, want 2 again", s.Deploying)
	}
}

func TestHalt_StopsTheServiceUntilOneOfBothGenerationsServes(t *testing.T) {
	s := redeploying(t)
	s.Halt("api")
	s.Halt("other")
	if s.Generation.Services[0].Status != stack.Stopped || s.Generation.Services[1].Status != stack.Running {
		t.Errorf("services %+v", s.Generation.Services)
	}
	s.Ready("api", "http://api")
	if s.Generation.Services[0].Status != stack.Running {
		t.Errorf("service %+v", s.Generation.Services[0])
	}
}

func TestEnding_IsWhatTheHostMayHaveStopped(t *testing.T) {
	for _, c := range []struct {
		service stack.Service
		want    bool
	}{
		{stack.Service{Status: stack.Running}, false},
		{stack.Service{Status: stack.Running, Crashes: []time.Time{now}}, false},
		{stack.Service{Status: stack.Stopped}, true},
		{stack.Service{Status: stack.Restarting}, false}, // the owner restarts it, and the process from before serves
		{stack.Service{Status: stack.Restarting, InPlace: true}, true},
		{stack.Service{Status: stack.Running, InPlace: true}, false},
		{stack.Service{Status: stack.Restarting, Crashes: []time.Time{now}}, true},
	} {
		if got := c.service.Ending(); got != c.want {
			t.Errorf("%+v is ending: %v, want %v", c.service, got, c.want)
		}
	}
}

func TestEnding_OfARequestedRestartBeginsOnceItIsInPlace(t *testing.T) {
	s := live(t)
	ending := func(want bool) {
		t.Helper()
		if got := s.Generation.Services[0].Ending(); got != want {
			t.Errorf("ending: %v, want %v", got, want)
		}
	}
	must(t)(s.RestartService("api"))
	ending(false)
	if err := s.RestartInPlace("api"); err != nil {
		t.Fatal(err)
	}
	ending(true)
	must(t)(s.RestartedOnRequest("api"))
	ending(false)
	must(t)(s.RestartService("api")) // this one may start another process beside it
	ending(false)
	wantKind(t, s.RestartInPlace("old"), stack.Conflict, "old")
}
