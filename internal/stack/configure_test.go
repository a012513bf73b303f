package stack_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/stack"
)

// later is when a test changes variables.
var later = now.Add(time.Minute)

// set is a change of the variables of one service, "" for all.
func set(service string, pairs ...string) stack.EnvChange {
	values := map[string]*string{}
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = &pairs[i+1]
	}
	return stack.EnvChange{Values: map[string]map[string]*string{service: values}}
}

// unset is a change that unsets variables of one service, "" for all.
func unset(service string, names ...string) stack.EnvChange {
	values := map[string]*string{}
	for _, name := range names {
		values[name] = nil
	}
	return stack.EnvChange{Values: map[string]map[string]*string{service: values}}
}

// shop returns a live stack: api runs what was uploaded, web is built, and site is
// published as it is.
func shop(t *testing.T) *stack.Stack {
	t.Helper()
	s := stack.New("shop", []stack.Spec{
		{Name: "api", Runtime: node, Start: "serve", Env: map[string]stack.Env{"LEVEL": {Value: "info"}, "SECRET": {Generate: true}}},
		{Name: "web", Runtime: node, Builder: node, Build: "make", Start: "serve"},
		{Name: "site", Runtime: stack.Runtime{Name: stack.Static}},
	}, now)
	s.MakeSecrets(s.Generation.Services)
	built := s.Generation
	built.Source.Folder = "first"
	for i := range built.Services {
		built.Services[i].Image, built.Services[i].Fingerprint = fmt.Sprintf("image-%d", i), "print"
	}
	built.Services[2].Image, built.Services[2].Site = "", 1
	must(t)(s.Deployed(built, urls, now))
	return s
}

var node = stack.Runtime{Name: "node", Version: "22"}

// configure changes variables and makes the generation that follows live.
func configure(t *testing.T, s *stack.Stack, change stack.EnvChange) {
	t.Helper()
	next, events, err := s.Configure(change, urls, later)
	if must(t)(events, err); next.Number == 0 {
		t.Fatal("the change makes no generation")
	}
	for i := range next.Services {
		if !next.Services[i].Built() {
			next.Services[i].Image, next.Services[i].Fingerprint = "rebuilt", "other"
		}
	}
	must(t)(s.Deployed(next, urls, later))
}

// process returns a variable of the process of a service.
func process(s *stack.Stack, service, name string) string {
	e := &stack.Environment{Stack: s, Generation: &s.Generation, URLs: urls}
	return e.Process(&s.Service(service).Spec)[name]
}

func TestConfigure_WinsOverTheManifestAndAServicesOwnOverThoseOfAll(t *testing.T) {
	s := shop(t)
	configure(t, s, set("", "LEVEL", "of all", "REGION", "eu"))
	configure(t, s, set("web", "LEVEL", "of web", "API", "${services.api.internal_url} $${x}"))
	for _, want := range [][3]string{
		{"api", "LEVEL", "of all"},
		{"api", "REGION", "eu"},
		{"web", "LEVEL", "of web"},
		{"web", "REGION", "eu"},
		{"web", "API", "http://api:8080 ${x}"},
	} {
		if got := process(s, want[0], want[1]); got != want[2] {
			t.Errorf("%s of %s = %q, want %q", want[1], want[0], got, want[2])
		}
	}
	configure(t, s, unset("", "LEVEL"))
	if got := process(s, "api", "LEVEL"); got != "info" {
		t.Errorf("unset, LEVEL of api = %q, want the manifest's", got)
	}
}

func TestConfigure_SetsThePortThatTheServiceListensOn(t *testing.T) {
	s := shop(t)
	s.Generation.Services[0].Spec.Port = 3000
	configure(t, s, set("", "PORT", "4000"))
	configure(t, s, set("api", "PORT", "5000"))
	if got := s.Generation.ListenPort(&s.Service("api").Spec); got != 5000 || process(s, "api", "PORT") != "5000" {
		t.Errorf("api listens on %d, PORT is %s", got, process(s, "api", "PORT"))
	}
	if got := process(s, "web", "API_INTERNAL_URL"); got != "http://api:5000" {
		t.Errorf("web finds api at %s", got)
	}
	if got := s.Generation.ListenPort(&s.Service("web").Spec); got != 4000 {
		t.Errorf("web listens on %d", got)
	}
}

func TestConfigure_BuildsAgainOnlyWhereACommandCouldHaveReadTheVariable(t *testing.T) {
	asIs := set("web", "KEY", "value")
	asIs.AsIs = true
	for name, tt := range map[string]struct {
		change stack.EnvChange
		built  []string
	}{
		"of a service without commands": {set("api", "KEY", "value"), nil},
		"of a service with a build":     {set("web", "KEY", "value"), []string{"web"}},
		"of all":                        {set("", "KEY", "value"), []string{"web"}},
		"of a neighbour's address":      {set("api", "PORT", "4000"), []string{"web"}},
		"without a build":               {asIs, nil},
	} {
		s := shop(t)
		before := slices.Clone(s.Generation.Services)
		next, events, err := s.Configure(tt.change, urls, later)
		if got := types(must(t)(events, err)); got != "stack.redeploying" || next.Number != 2 || next.Attempt != 2 || s.Deploying != 2 {
			t.Errorf("%s: events %s, generation %d, attempt %d, deploying %d", name, got, next.Number, next.Attempt, s.Deploying)
		}
		var built []string
		for i, service := range next.Services {
			if !service.Built() {
				built = append(built, service.Spec.Name)
			} else if service.Image != before[i].Image || service.Site != before[i].Site || service.Status != stack.Pending {
				t.Errorf("%s: %s is taken over as %+v", name, service.Spec.Name, service)
			}
		}
		if !slices.Equal(built, tt.built) || next.Source != s.Generation.Source {
			t.Errorf("%s: built again %v, want %v; source %v", name, built, tt.built, next.Source)
		}
		if len(s.Generation.Variables) != 0 || !cmp.Equal(before, s.Generation.Services) {
			t.Errorf("%s: the served generation has changed: %+v", name, s.Generation)
		}
	}
}

func TestConfigure_BuildsLaterWhatWasLeftOutBefore(t *testing.T) {
	s := shop(t)
	change := set("web", "KEY", "value")
	change.AsIs = true
	configure(t, s, change)
	configure(t, s, set("web", "KEY", "value"))
	if got := s.Service("web").Image; got != "rebuilt" {
		t.Errorf("web runs from %s, built without its variable", got)
	}
}

func TestConfigure_ThatChangesNothingMakesNoGeneration(t *testing.T) {
	s := shop(t)
	configure(t, s, set("web", "KEY", "value"))
	for name, change := range map[string]stack.EnvChange{
		"the same value":        set("web", "KEY", "value"),
		"unset, and was not":    unset("web", "OTHER"),
		"the manifest's, unset": unset("api", "LEVEL"),
		"a name that none has":  unset("", "1-2"),
		"nothing":               {},
	} {
		next, events, err := s.Configure(change, urls, later)
		if next.Number != 0 || len(events) != 0 || err != nil || s.Deploying != 0 {
			t.Errorf("%s: generation %d, events %v, %v", name, next.Number, events, err)
		}
	}
}

func TestConfigure_OfAStackThatNeverWasLiveSaysWhereVariablesGo(t *testing.T) {
	for _, asIs := range []bool{false, true} {
		s := states["failed"](t)
		change := set("", "KEY", "value")
		change.AsIs = asIs
		_, _, err := s.Configure(change, urls, later)
		wantKind(t, err, stack.Conflict, "put the variables into the manifest")
		if strings.Contains(err.Error(), `"build": false`) {
			t.Errorf("it advises what is refused: %v", err)
		}
	}
}

func TestConfigure_AfterAChangeWithoutABuildMakesOneOnlyToBuild(t *testing.T) {
	s := shop(t)
	change := set("web", "KEY", "value")
	change.AsIs = true
	configure(t, s, change)
	if next, _, err := s.Configure(change, urls, later); next.Number != 0 || err != nil {
		t.Errorf("the same change made generation %d, %v", next.Number, err)
	}
}

func TestConfigure_IsRefusedWhereADeployIs(t *testing.T) {
	for name, text := range map[string]string{
		"building": "already running", "live, redeploying": "already running", "restoring": "being restored",
		"expired": "claim it", "failed, time run out": "claim it",
	} {
		_, _, err := states[name](t).Configure(set("", "KEY", "value"), urls, now)
		wantKind(t, err, stack.Conflict, text)
		wantKind(t, states[name](t).CheckConfigure(now), stack.Conflict, text)
		if strings.Contains(err.Error(), "supersede") {
			t.Errorf("%s: it advises what a change of variables does not take: %v", name, err)
		}
	}
}

func TestConfigure_OfAFailedStackBringsBackWhatWasBuilt(t *testing.T) {
	s := shop(t)
	s.Status = stack.Failed
	next, events, err := s.Configure(set("api", "KEY", "value"), urls, later)
	must(t)(events, err)
	if s.Status != stack.Building || !next.Built() {
		t.Fatalf("the stack is %s, built %v", s.Status, next.Built())
	}
	must(t)(s.DeployFailed("no", later))
	if !s.Generation.Built() || s.Generation.Source.Folder == "" || len(s.Generation.Variables) != 0 {
		t.Errorf("after a failure the row has %+v", s.Generation)
	}
}

func TestConfigure_NeedsTheSourceForABuildAlone(t *testing.T) {
	s := shop(t)
	s.Generation.Source.Folder = ""
	_, _, err := s.Configure(set("web", "KEY", "value"), urls, later)
	wantKind(t, err, stack.Conflict, "send the whole source")
	configure(t, s, set("api", "KEY", "value"))
}

func TestNeedsSource_OfWhatIsStillInItAlone(t *testing.T) {
	for name, tt := range map[string]struct {
		service stack.Service
		needs   bool
	}{
		"not built":                   {stack.Service{}, true},
		"an image":                    {stack.Service{Image: "image"}, false},
		"an image without the source": {stack.Service{Image: "image", Copied: true}, true},
		"a published folder":          {stack.Service{Site: 1}, false},
		"a link into the source":      {stack.Service{Site: 1, Linked: true}, true},
	} {
		g := stack.Generation{Services: []stack.Service{{Image: "another"}, tt.service}}
		if got := g.NeedsSource(); got != tt.needs {
			t.Errorf("%s: NeedsSource = %v, want %v", name, got, tt.needs)
		}
	}
}

func TestConfigure_RefusesWhatNoServiceCouldGet(t *testing.T) {
	var many []string
	for i := range stack.MaxEnvNames {
		many = append(many, fmt.Sprintf("V%d", i), "")
	}
	var large []string
	for i := range 8 {
		large = append(large, fmt.Sprintf("V%d", i), strings.Repeat("x", stack.MaxEnvValue))
	}
	for name, tt := range map[string]struct {
		change stack.EnvChange
		text   string
	}{
		"a name that is none":     {set("web", "1-2", ""), `service web: env "1-2" is not the name of a variable`},
		"an empty name":           {set("", "", "x"), `all services: env "" is not the name`},
		"a NUL":                   {set("web", "KEY", "a\x00b"), "KEY holds a NUL character"},
		"a value that is too big": {set("web", "KEY", strings.Repeat("x", stack.MaxEnvValue+1)), "KEY has 32769 bytes; a value has at most 32 KiB"},
		"too many":                {set("api", many...), "service api has 202 variables; a service has at most 200"},
		"too much":                {set("web", large...), "262160 bytes of variables; the names and values of a service have at most 256 KiB"},
		"no port":                 {set("", "PORT", "http"), "PORT is not a whole number from 1 to 65535"},
		"port 0":                  {set("", "PORT", "0"), "PORT is not a whole number"},
		"no such service":         {set("nope", "KEY", ""), "there is no service nope; the services are api, web, site"},
		"no such reference":       {set("", "KEY", "${services.nope.url}"), "all services: env KEY: ${services.nope.url} names a service that does not exist"},
	} {
		s := shop(t)
		_, _, err := s.Configure(tt.change, urls, later)
		wantKind(t, err, stack.Unprocessable, tt.text)
		if t.Failed() || s.Deploying != 0 {
			t.Fatalf("%s: deploying %d", name, s.Deploying)
		}
	}
}

func TestDeploy_KeepsTheVariablesOutsideTheManifestAndChecksThemWithIt(t *testing.T) {
	s := shop(t)
	configure(t, s, set("web", "KEY", "value", "API", "${services.api.url}"))
	_, err := s.Deploy(stack.Services([]stack.Spec{{Name: "web"}}), later)
	wantKind(t, err, stack.Unprocessable, "service web: env API: ${services.api.url} names a service that does not exist; the services are web (it is set outside the manifest)")

	configure(t, s, unset("web", "API"))
	must(t)(s.Deploy(stack.Services([]stack.Spec{{Name: "api"}}), later))
	if _, there := s.Generation.Variables["web"]["KEY"]; !there {
		t.Error("a service that is gone has lost its variables")
	}
}

func TestGiven_ListsWhatCountsWithItsOriginAndTime(t *testing.T) {
	s := shop(t)
	configure(t, s, set("", "REGION", "eu"))
	configure(t, s, set("api", "LEVEL", "debug", "ADDED", ""))
	want := []stack.Given{
		{Name: "REGION", From: stack.FromSet, ChangedAt: later},
		{Service: "api", Name: "ADDED", From: stack.FromSet, ChangedAt: later},
		{Service: "api", Name: "LEVEL", From: stack.FromSet, ChangedAt: later},
		{Service: "api", Name: "SECRET", From: stack.FromGenerated, ChangedAt: now},
	}
	if diff := cmp.Diff(want, s.Generation.Given()); diff != "" {
		t.Error(diff)
	}
}

func TestDeploy_KeepsTheTimeOfVariablesThatStayTheSame(t *testing.T) {
	s := shop(t)
	next := stack.Services([]stack.Spec{{Name: "api", Env: map[string]stack.Env{"LEVEL": {Value: "info"}, "SECRET": {Value: "mine"}}}})
	must(t)(s.Deploy(next, later))
	if env := next[0].Spec.Env; env["LEVEL"].ChangedAt != now || env["SECRET"].ChangedAt != later {
		t.Errorf("the times are %v and %v", env["LEVEL"].ChangedAt, env["SECRET"].ChangedAt)
	}
}

func TestVariables_AreInNoEventAndNotInTheServicesJSON(t *testing.T) {
	s := shop(t)
	_, events, err := s.Configure(set("web", "KEY", "hush"), urls, later)
	text, encoding := json.Marshal(must(t)(events, err))
	if strings.Contains(string(text), "hush") || encoding != nil {
		t.Errorf("events %s, %v", text, encoding)
	}
	next, _ := json.Marshal(s.Generation.Services)
	if strings.Contains(string(next), "info") {
		t.Errorf("services %s", next)
	}
}

func TestDelete_ForgetsTheVariables(t *testing.T) {
	s := shop(t)
	configure(t, s, set("web", "KEY", "value"))
	must(t)(s.Delete(later))
	if len(s.Generation.Variables) != 0 {
		t.Errorf("a deleted stack has %v", s.Generation.Variables)
	}
}
