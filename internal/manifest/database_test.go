package manifest

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// See docs/manifest.md, "Databases".
func TestDatabase_IsCompleteWithANameAndARuntime(t *testing.T) {
	m := mustResolve(t, page, "", Request{Manifest: []byte(`services: [{name: web, runtime: node, start: x}, {name: db, runtime: postgres}, {name: cache, runtime: redis, stop_timeout: 45s}, {name: site, runtime: static}]`)})
	db, cache := m.Services[1], m.Services[2]
	if db.Runtime.String() != "postgres@17" || db.Label != "postgres" || db.Strategy != stack.Recreate || db.StopTimeout != 30*time.Second || db.Builds() {
		t.Errorf("db is %+v", db)
	}
	if cache.Runtime.String() != "valkey@8" || cache.Label != "redis" || cache.StopTimeout != 45*time.Second {
		t.Errorf("cache is %+v", cache)
	}
	for i, want := range [][]string{{"db", "cache"}, nil, nil, nil} {
		if got := m.Services[i].DependsOn; !slices.Equal(got, want) {
			t.Errorf("%s depends on %v, want %v", m.Services[i].Name, got, want)
		}
	}
}

func TestDatabase_IsUsedByThoseThatListIt(t *testing.T) {
	for services, want := range map[string]string{
		"{name: web, runtime: node, start: x, depends_on: [db]}, {name: api, runtime: node, start: x}": "web",
		"{name: web, runtime: node, start: x}, {name: api, runtime: node, start: x}":                   "web api",
	} {
		m := mustResolve(t, page, "", Request{Manifest: []byte("services: [" + services + ", {name: db, runtime: postgres@17}]")})
		var made stack.Generation
		for _, spec := range m.Services {
			made.Services = append(made.Services, stack.Service{Spec: spec})
		}
		var users []string
		for i := range m.Services {
			if made.UsesDatabase(&m.Services[i]) {
				users = append(users, m.Services[i].Name)
			}
		}
		if got := strings.Join(users, " "); got != want {
			t.Errorf("%s: %s use it, want %s", services, got, want)
		}
	}
	m := mustResolve(t, page, "", Request{Manifest: []byte("services: [{name: seed, runtime: node, start: x}, {name: web, runtime: node, start: x}, {name: db, runtime: postgres, depends_on: [seed]}]")})
	if len(m.Services[0].DependsOn) != 0 || !slices.Equal(m.Services[1].DependsOn, []string{"db"}) {
		t.Errorf("the services are %+v", m.Services)
	}
}

func TestDatabase_Faults(t *testing.T) {
	const web = "{name: web, runtime: node, start: x}"
	for services, want := range map[string]string{
		web + ", {name: db, runtime: postgres, build: make}":                                   "service db: it is a database, PostgreSQL, and must not have build: it has no source; it takes name, runtime, depends_on and stop_timeout",
		web + ", {name: db, runtime: redis, env: {A: b}}":                                      "service db: it is a database, Redis, and must not have env: the host sets it up; the services that use it get its address and password; it takes name, runtime, depends_on and stop_timeout",
		web + ", {name: db, runtime: postgres, stop_timeout: 5s}":                              "service db: stop_timeout is too short for a database, which writes what it has in memory before it ends; write at least 30s, or leave it out",
		web + ", {name: db, runtime: postgres@12}":                                             `service db: postgres has no version "12" here; it has 17`,
		web + ", {name: db, runtime: postgres, paths: {/a: web}}":                              "service db: it is a database, PostgreSQL, and must not have paths: it does not speak HTTP; it takes name, runtime, depends_on and stop_timeout",
		"{name: web, runtime: node, start: x, paths: {/a: db}}, {name: db, runtime: postgres}": "service web: path \"/a\" leads to db, a database, which does not speak HTTP; lead it to the service that uses the database",
		web + ", {name: db, runtime: postgresql}":                                              `service db: unknown runtime "postgresql" (did you mean postgres?); there are bun, deno, go, java, node, php, postgres, python, ruby, rust, static, valkey`,
		web + ", {name: db, runtime: postgres}, {name: database, runtime: redis}":              "service web: it would get DATABASE_URL from db and from database; give one of them another name",
		"{name: web, runtime: node, start: x, env: {A: '${services.db.url}'}}, {name: api, runtime: node, start: x, depends_on: [db]}, {name: db, runtime: postgres}": "service web: env A: ${services.db.url} names a database that web does not depend on; add db to its depends_on",
		"{name: web, runtime: static, env: {A: '${services.db.host}'}}, {name: api, runtime: node, start: x, depends_on: [db]}, {name: db, runtime: postgres}":        "service web: env A: ${services.db.host} names a database, and web is a static service: it has no process, and commands of a build never get a database's address",
	} {
		if got := faultsOf(t, "services: ["+services+"]"); !slices.Equal(got, []string{want}) {
			t.Errorf("%s:\n%q, want\n%q", services, got, want)
		}
	}
}

// The lines that a hint adds are a whole manifest.
func TestHint_NamesTheLinesToAdd(t *testing.T) {
	src := fstest.MapFS{
		"package.json": {Data: []byte(`{"scripts": {"start": "node a.js"}, "dependencies": {"pg": "8"}}`)},
		"a.js":         {Data: []byte("process.env.DATABASE_URL")},
	}
	web := mustResolve(t, src, "", Request{}).Services[0]
	want := "web looks as if it needed PostgreSQL (pg in package.json, DATABASE_URL in a.js); this adds one to stack.yaml:\nservices:\n  - name: web\n  - {name: db, runtime: postgres}"
	if got := web.Hints["DATABASE_URL"]; got != want {
		t.Fatalf("the hint is %q, want %q", got, want)
	}
	_, lines, _ := strings.Cut(want, "\n")
	for _, manifest := range []string{lines, "services: [{name: web, env: {DATABASE_URL: x}}]"} {
		if m := mustResolve(t, src, "", Request{Manifest: []byte(manifest)}); len(m.Services[0].Hints) != 0 {
			t.Errorf("%s: there are hints %v", manifest, m.Services[0].Hints)
		}
	}
	var plan strings.Builder
	if err := WritePlan(&plan, web); err != nil || !strings.Contains(plan.String(), "  web looks as if") || !strings.Contains(plan.String(), "\n      - {name: db, runtime: postgres}\n") {
		t.Errorf("the plan is %s", plan.String())
	}
}

func TestHint_FitsTheStack(t *testing.T) {
	src := fstest.MapFS{
		"package.json": {Data: []byte(`{"scripts": {"start": "node a.js"}, "dependencies": {"pg": "8", "redis": "5"}}`)},
		"a.js":         {Data: []byte("process.env.DATABASE_URL + process.env.REDIS_URL")},
	}
	const both, other = "{name: web, runtime: node, start: node a.js}", "runtime: node, start: x, env: {DATABASE_URL: x, REDIS_URL: x}}"
	for manifest, want := range map[string][]string{
		both: {"- {name: db, runtime: postgres}", "- {name: cache, runtime: valkey}"},
		both + ", {name: api, depends_on: [db], " + other + ", {name: db, runtime: postgres}": {
			"- {name: web, depends_on: [db]}", "- {name: cache, runtime: valkey}",
		},
		both + ", {name: b, " + other + ", {name: c, " + other + ", {name: d, " + other: nil,
	} {
		m := mustResolve(t, src, "", Request{Manifest: []byte("services: [" + manifest + "]")})
		got := hints(&m.Services[0])
		for i := range got {
			got[i] = strings.TrimSpace(got[i][strings.LastIndex(got[i], "\n"):])
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: the hints end with %q, want %q", manifest, got, want)
		}
	}
}
