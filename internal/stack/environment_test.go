package stack_test

import (
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

func TestEnvironment_TellsAServiceOfItselfAndItsNeighbours(t *testing.T) {
	st := stack.New("shop", []stack.Spec{
		{Name: "web", Env: map[string]stack.Env{
			"SELF":     {Value: "${stack.name} at ${services.web.url}"},
			"API":      {Value: "${services.api.internal_url}/v1 ${services.api.host}:${services.api.port}"},
			"SECRET":   {Generate: true},
			"LITERAL":  {Value: "$${stack.id} $HOME"},
			"DATA_DIR": {Value: "/elsewhere"},
		}},
		{Name: "api", Port: 3000},
		{Name: "postgres", Port: 5432},
		{Name: "public", Port: 4000},
		{Name: "site", Runtime: stack.Runtime{Name: stack.Static}},
	}, time.Now())
	st.MakeSecrets(st.Generation.Services)
	st.Generation.Number = 4
	e := &stack.Environment{Stack: st, Generation: &st.Generation, URLs: stack.URLs{Base: &url.URL{Scheme: "https", Host: "b.example"}, AppsDomain: "apps.example"}}
	got := e.Process(&st.Generation.Services[0].Spec)
	hex := st.Hex()
	want := map[string]string{
		"PORT": "8080", "HOST": "0.0.0.0", "DATA_DIR": "/elsewhere", "STACK_ID": st.ID, "STACK_NAME": "shop",
		"SERVICE_NAME": "web", "GENERATION": "4", "PUBLIC_URL": "https://web-" + hex + ".apps.example",
		"API_URL": "https://api-" + hex + ".apps.example", "API_INTERNAL_URL": "http://api:3000",
		"POSTGRES_INTERNAL_URL": "http://postgres:5432",
		"PUBLIC_INTERNAL_URL":   "http://public:4000",
		"SITE_URL":              "https://site-" + hex + ".apps.example",
		"SELF":                  "shop at https://web-" + hex + ".apps.example",
		"API":                   "http://api:3000/v1 api:3000",
		"SECRET":                st.Secrets["web/SECRET"],
		"LITERAL":               "${stack.id} $HOME",
	}
	for key, value := range want {
		if got[key] != value {
			t.Errorf("%s = %q, want %q", key, got[key], value)
		}
		delete(got, key)
	}
	if len(got) != 0 {
		t.Errorf("variables nobody asked for: %v", got)
	}
}

// TestEnvironment_IsWhatTheReferenceLists holds docs/manifest.md, "Environment", against
// the variables of a service that has a neighbour.
func TestEnvironment_IsWhatTheReferenceLists(t *testing.T) {
	text, err := os.ReadFile("../../docs/manifest.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Environment\n")
	section, _, _ = strings.Cut(section, "\nPublic URLs ")
	var listed []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z<>_]+)`").FindAllStringSubmatch(section, -1) {
		listed = append(listed, strings.ReplaceAll(m[1], "<NAME>", "API"))
	}
	st := stack.New("shop", []stack.Spec{{Name: "web"}, {Name: "api"}}, time.Now())
	e := &stack.Environment{Stack: st, Generation: &st.Generation, URLs: stack.URLs{Base: &url.URL{Scheme: "https", Host: "b.example"}, AppsDomain: "apps.example"}}
	got := slices.Sorted(maps.Keys(e.Process(&st.Generation.Services[0].Spec)))
	if slices.Sort(listed); !slices.Equal(got, listed) {
		t.Errorf("a service gets %v, and docs/manifest.md lists %v", got, listed)
	}
}

func TestEnvironment_OfABuildHasWhatTheFrameworkNeedsUnlessTheManifestSaysOtherwise(t *testing.T) {
	st := stack.New("shop", []stack.Spec{
		{Name: "web", BuildEnv: map[string]string{"PUBLIC_URL": ""}},
		{Name: "cdn", BuildEnv: map[string]string{"PUBLIC_URL": ""}, Env: map[string]stack.Env{"PUBLIC_URL": {Value: "https://cdn.example"}}},
	}, time.Now())
	e := &stack.Environment{Stack: st, Generation: &st.Generation, URLs: stack.URLs{Base: &url.URL{Scheme: "https", Host: "b.example"}, AppsDomain: "apps.example"}}
	web, cdn := &st.Generation.Services[0].Spec, &st.Generation.Services[1].Spec
	if got, there := e.Build(web)["PUBLIC_URL"]; got != "" || !there {
		t.Errorf("PUBLIC_URL of a build = %q, %v, want an empty one", got, there)
	}
	if got, want := e.Process(web)["PUBLIC_URL"], "https://web-"+st.Hex()+".apps.example"; got != want {
		t.Errorf("PUBLIC_URL of its process = %q, want %q", got, want)
	}
	if got := e.Build(cdn)["PUBLIC_URL"]; got != "https://cdn.example" {
		t.Errorf("PUBLIC_URL that the manifest sets = %q", got)
	}
}

func TestListenPort_IsTheManifestsOrTheOneThatItsEnvSets(t *testing.T) {
	for _, c := range []struct {
		spec stack.Spec
		want int
	}{
		{stack.Spec{}, 8080},
		{stack.Spec{Port: 3000}, 3000},
		{stack.Spec{Env: map[string]stack.Env{"PORT": {Value: "4000"}}}, 4000},
		{stack.Spec{Env: map[string]stack.Env{"PORT": {Value: "none"}}}, 8080},
	} {
		if got := (&stack.Generation{}).ListenPort(&c.spec); got != c.want {
			t.Errorf("the port of %+v = %d, want %d", c.spec, got, c.want)
		}
	}
}
