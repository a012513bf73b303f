package stack_test

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/stackid"
)

var (
	now  = time.Date(2026, 1, 2, 3, 4, 5, 600_000, time.UTC)
	urls = stack.URLs{Base: &url.URL{Scheme: "http", Host: "localhost:8080"}, AppsDomain: "localhost"}
)

// twoServices is a new stack with a program and a site.
func twoServices() *stack.Stack {
	return stack.New("guestbook", []stack.Spec{
		{Name: "api", Runtime: stack.Runtime{Name: "node", Version: "22"}},
		{Name: "web", Runtime: stack.Runtime{Name: stack.Static}, DependsOn: []string{"api"}},
	}, now)
}

func TestNew_StartsAtGenerationOneBuilding(t *testing.T) {
	s := twoServices()
	if !stackid.Valid(s.ID) || s.Status != stack.Building || s.Generation.Number != 1 || s.Deploying != 1 || s.Settled() {
		t.Errorf("new stack = %+v", s)
	}
	for _, svc := range s.Generation.Services {
		if svc.Status != stack.Pending {
			t.Errorf("service %s is %s, want pending", svc.Spec.Name, svc.Status)
		}
	}
}

func TestDeployed_ServesTheNewGeneration(t *testing.T) {
	s := twoServices()
	s.ExpiresAt = now.Add(time.Hour)
	events, err := s.Deployed(s.Generation, urls, now)
	if err != nil {
		t.Fatal(err)
	}
	if s.Deploying != 0 || !s.Settled() || s.Generation.Services[1].Status != stack.Running {
		t.Errorf("stack = %+v", s)
	}
	text, err := json.Marshal(events[0])
	if err != nil {
		t.Fatal(err)
	}
	hex := s.Hex()
	want := `"data":{"attempt":1,"expires_at":1767326645.0006,"generation":1,"urls":{"api":"http://api-` + hex + `.localhost:8080","web":"http://web-` + hex + `.localhost:8080"}}`
	if !strings.Contains(string(text), want) {
		t.Errorf("event %s does not hold %s", text, want)
	}
}

func TestDelete_ForgetsAllButWhatItsLastEventNeeds(t *testing.T) {
	s := twoServices()
	s.ManageTokenHash, s.ClaimCodeHash, s.WebhookSecret, s.RevokedTokenHash = []byte("a"), []byte("b"), "c", []byte("d")
	s.Generation.Services[0].Spec.Env = map[string]stack.Env{"KEY": {Generate: true}}
	s.MakeSecrets(s.Generation.Services)
	s.ClaimEmail, s.Network, s.Error, s.DeployError = "ana@example.com", "192.0.2.1", "no", "no"
	if _, err := s.Delete(now); err != nil {
		t.Fatal(err)
	}
	if s.WebhookSecret != "c" {
		t.Error("stack.deleted cannot be signed")
	}
	if s.ManageTokenHash != nil || s.RevokedTokenHash != nil || s.ClaimCodeHash != nil || s.Secrets != nil || s.Generation.Services != nil || s.ClaimEmail+s.Network+s.Error+s.DeployError != "" {
		t.Errorf("the deleted stack still has what it does not need: %+v", s)
	}
}

func TestMakeSecrets_KeepsWhatItMadeBefore(t *testing.T) {
	s := twoServices()
	s.Generation.Services[0].Spec.Env = map[string]stack.Env{"KEY": {Generate: true}, "PLAIN": {Value: "x"}}
	s.MakeSecrets(s.Generation.Services)
	first := s.Secrets["api/KEY"]
	s.MakeSecrets(s.Generation.Services)
	if len(s.Secrets) != 1 || len(first) != 32 || s.Secrets["api/KEY"] != first {
		t.Errorf("secrets = %v, first was %q", s.Secrets, first)
	}
}

func TestFail_LeavesOutTheMiddleOfALongReason(t *testing.T) {
	s := twoServices()
	const first = `service web: "npm ci" exited with code 1; the end of its output:`
	events, err := s.DeployFailed(first+"\n"+strings.Repeat("ö", 5000)+" end", stack.Now())
	if err != nil {
		t.Fatal(err)
	}
	for chars, text := range map[int]string{stack.ErrorChars: s.Error, stack.EventErrorChars: events[0].Data["error"].(string)} {
		if n := utf8.RuneCountInString(text); n != chars || !strings.HasSuffix(text, "ö end") || !strings.HasPrefix(text, first+"\n[the middle is left out]\nö") {
			t.Errorf("an error of %d characters, want %d: %.150s", n, chars, text)
		}
	}
}

func TestCommandLine_IsOneLineAndNotLong(t *testing.T) {
	for command, want := range map[string]string{
		"npm ci":                       "npm ci",
		" set -e\n\n  npm ci\nrm x ":   "set -e ⏎ ⏎ npm ci ⏎ rm x",
		strings.Repeat("ö", 200):       strings.Repeat("ö", 200),
		strings.Repeat("ö", 200) + "x": strings.Repeat("ö", 200) + "…",
	} {
		if got := stack.CommandLine(command); got != want {
			t.Errorf("%q becomes %q", command, got)
		}
	}
}

func TestFail_WritesControlCharactersOut(t *testing.T) {
	s := twoServices()
	events, err := s.DeployFailed("its end:\n\x1b[2J\u009b\tred\r\n", stack.Now())
	const want = "its end:\n\\x1b[2J\\u009b\tred\n"
	if err != nil || s.Error != want || events[0].Data["error"] != want {
		t.Errorf("error %q, events %v, %v", s.Error, events, err)
	}
}

func TestEvent_HasTheEnvelopeThatClientsAreGiven(t *testing.T) {
	got, err := json.Marshal(stack.Event{ID: 7, StackID: "stk_3f2a9c1b7d4e", Type: stack.EventDeleted, CreatedAt: now})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"id":7,"stack_id":"stk_3f2a9c1b7d4e","type":"stack.deleted","data":{},"created_at":1767323045.0006}`
	if string(got) != want {
		t.Errorf("event = %s\nwant    %s", got, want)
	}
}

func TestInOrder_PutsDependenciesFirst(t *testing.T) {
	specs := []stack.Spec{
		{Name: "web", DependsOn: []string{"api", "auth"}},
		{Name: "api", DependsOn: []string{"db"}},
		{Name: "auth"},
		{Name: "db"},
	}
	var names []string
	for _, i := range stack.InOrder(specs) {
		names = append(names, specs[i].Name)
	}
	if want := []string{"auth", "db", "api", "web"}; !slices.Equal(names, want) {
		t.Errorf("order %v, want %v", names, want)
	}
}

func TestURLs_LeaveOutThePortThatTheBaseURLDoesNotHave(t *testing.T) {
	s := twoServices()
	u := stack.URLs{Base: &url.URL{Scheme: "https", Host: "berth.example.com"}, AppsDomain: "apps.example.net"}
	if got, want := u.Service(s, "web"), "https://web-"+s.Hex()+".apps.example.net"; got != want {
		t.Errorf("URL = %s, want %s", got, want)
	}
	if got := u.Claim("CLM-1"); got != "https://berth.example.com/claim/CLM-1" {
		t.Errorf("claim URL = %s", got)
	}
	if got := u.Claim(""); got != "https://berth.example.com/claim" {
		t.Errorf("claim page = %s", got)
	}
}

func TestExplains_EveryGenerationThatTheRowTellsOf(t *testing.T) {
	s := twoServices()
	explains := func(last int) {
		t.Helper()
		for generation := range 4 { // 0 is what belongs to none
			if got := s.Explains(generation); got != (generation <= last) {
				t.Errorf("Explains(%d) = %t, want all to %d", generation, got, last)
			}
		}
	}
	explains(1)
	must(t)(s.DeployFailed("it broke", stack.Now()))
	explains(1)
	must(t)(s.Deploy(s.Generation.Services, now))
	explains(2)
	old := *s
	old.Attempted = nil // as in a row from before it was kept
	if !old.Explains(2) {
		t.Error("the generation that is being built is not explained")
	}
	must(t)(s.DeployFailed("it broke again", stack.Now())) // something of it may be left
	explains(2)
	must(t)(s.Deploy(s.Generation.Services, now))
	must(t)(s.Deployed(s.Generation, urls, now))
	explains(2)
}

func TestLogNames_HoldTheServicesThatARedeployAdds(t *testing.T) {
	want := func(s *stack.Stack, kind string, names ...string) {
		t.Helper()
		if diff := cmp.Diff(names, s.LogNames(kind)); diff != "" {
			t.Errorf("%s logs:\n%s", kind, diff)
		}
	}
	s := live(t)
	want(s, "build", "api", "web")
	next := stack.Services([]stack.Spec{{Name: "extra"}, {Name: "web"}})
	must(t)(s.Deploy(next, now))
	want(s, "build", "api", "web", "extra")
	want(s, "run", "api", "web")
	must(t)(s.DeployFailed("it broke", stack.Now()))
	want(s, "build", "api", "web", "extra")
	must(t)(s.Deploy(stack.Services([]stack.Spec{{Name: "other"}}), now))
	want(s, "build", "api", "web", "other")
	must(t)(s.Deployed(stack.Generation{Services: next}, urls, now))
	want(s, "build", "extra", "web")
}
