package manifest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/runtimes"
)

// page is the smallest source there is.
var page = fstest.MapFS{"index.html": {Data: []byte("hello")}}

func with(files map[string]string) fstest.MapFS {
	src := fstest.MapFS{}
	for name, text := range files {
		src[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return src
}

func mustResolve(t *testing.T, src fs.FS, singleRoot string, req Request) *stack.Manifest {
	t.Helper()
	m, err := Resolve(src, singleRoot, req)
	if err != nil {
		t.Fatalf("Resolve: %v", err)
	}
	return m
}

// faultsOf resolves a manifest over a page and returns the lines of its error.
func faultsOf(t *testing.T, manifest string) []string {
	t.Helper()
	m, err := Resolve(page, "", Request{Manifest: []byte(manifest)})
	if err == nil {
		t.Fatalf("no fault in %q", manifest)
	}
	if m != nil {
		t.Errorf("a manifest beside the error %v", err)
	}
	return strings.Split(err.Error(), "\n")
}

func TestResolve_TakesTheRequestBeforeTheManifest(t *testing.T) {
	m := mustResolve(t, page, "folder", Request{
		Manifest: []byte("name: inner\nttl: 1h\nclaim_email: a@example.com\n"),
		Name:     "  outer ", TTL: "2d", ClaimEmail: "B@example.com",
	})
	if m.Name != "outer" || m.TTL != 48*time.Hour || m.ClaimEmail != "B@example.com" {
		t.Errorf("%+v", m)
	}
}

func TestResolve_TakesTheRequestsManifestBeforeTheArchives(t *testing.T) {
	src := with(map[string]string{"index.html": "", "stack.yaml": "nonsense: [", "stack.json": "{}"})
	m := mustResolve(t, src, "", Request{Manifest: []byte(`{"name": "given"}`)})
	if m.Name != "given" || m.Services[0].Name != "web" {
		t.Errorf("%+v", m)
	}
}

func TestResolve_ReadsTheArchivesManifest(t *testing.T) {
	for _, name := range []string{"stack.yaml", "stack.yml", "stack.json"} {
		m := mustResolve(t, with(map[string]string{"index.html": "", name: `{"name": "found"}`}), "", Request{})
		if m.Name != "found" {
			t.Errorf("%s: name %q", name, m.Name)
		}
	}
}

func TestResolve_NamesTheStack(t *testing.T) {
	pkg := `{"name": "@ana/shop", "scripts": {"start": "node ."}}`
	for _, c := range []struct {
		singleRoot, pkg, want string
	}{
		{"guestbook-main", pkg, "guestbook-main"},
		{"", pkg, "shop"},
		{"", `{"scripts": {"start": "node ."}}`, "stack"},
		{"a\x01\u202e  b", pkg, "a b"},
		{"..", pkg, "shop"},
		{strings.Repeat("ä", 100), pkg, strings.Repeat("ä", 64)},
	} {
		m := mustResolve(t, with(map[string]string{"package.json": c.pkg}), c.singleRoot, Request{})
		if m.Name != c.want {
			t.Errorf("root %q, package %s: %q, want %q", c.singleRoot, c.pkg, m.Name, c.want)
		}
	}
}

func TestResolve_NamesTheStackAfterThePackageAboveItsServices(t *testing.T) {
	m := mustResolve(t, with(map[string]string{"package.json": `{"name": "mono"}`, "a/index.html": ""}), "",
		Request{Manifest: []byte("services: [{name: web, root: a}]")})
	if m.Name != "mono" {
		t.Errorf("name %q", m.Name)
	}
}

func TestResolve_KeepsValuesAsTheyAreWritten(t *testing.T) {
	for _, manifest := range []string{
		"services:\n- name: web\n  env: {A: 1.10, B: 0x1F, C: true, D: \"yes\", E: 1e3, F: no, G: '', H: 123456789012345678901234567890}\n",
		`{"services": [{"name": "web", "env": {"A": 1.10, "B": "0x1F", "C": true, "D": "yes", "E": 1e3, "F": "no", "G": "", "H": 123456789012345678901234567890}}]}`,
	} {
		env := mustResolve(t, page, "", Request{Manifest: []byte(manifest)}).Services[0].Env
		for key, want := range map[string]string{
			"A": "1.10", "B": "0x1F", "C": "true", "D": "yes", "E": "1e3", "F": "no", "G": "", "H": "123456789012345678901234567890",
		} {
			if got, ok := env[key]; !ok || got.Value != want || got.Generate {
				t.Errorf("%s = %+v, want %q", key, got, want)
			}
		}
	}
}

func TestResolve_TakesEverySpelling(t *testing.T) {
	for manifest, check := range map[string]func(s stack.Spec) bool{
		"services: [{name: web, runtime: static, spa: true}]":                   func(s stack.Spec) bool { return s.SPA == stack.SPAOn },
		"services: [{name: web, runtime: static, spa: 'false'}]":                func(s stack.Spec) bool { return s.SPA == stack.SPAOff },
		"services: [{name: web, runtime: static}]":                              func(s stack.Spec) bool { return s.SPA == stack.SPAAuto && !s.Builds() },
		"services: [{name: web, runtime: static, publish: ./}]":                 func(s stack.Spec) bool { return s.Publish == "." },
		"services: [{name: web, runtime: static, build: make, publish: out}]":   func(s stack.Spec) bool { return s.Builder.String() == "node@22" },
		"services: [{name: web, runtime: node, start: x}]":                      func(s stack.Spec) bool { return s.Label == "node" && s.Runtime.String() == "node@22" },
		"services: [{name: web, runtime: node@24, start: x}]":                   func(s stack.Spec) bool { return s.Label == "node@24" && s.Runtime.Version == "24" },
		"services: [{name: web, runtime: go, start: x, port: 65535}]":           func(s stack.Spec) bool { return s.Port == 65535 && !s.Builds() },
		"services: [{name: web, runtime: go, start: x, build: ''}]":             func(s stack.Spec) bool { return s.Build == "" && s.Builder.Name == "" },
		"services: [{name: web, runtime: go, start: x, build: y}]":              func(s stack.Spec) bool { return s.Builder.String() == "go@1.26" },
		"services: [{name: web, runtime: go, start: x, health: ~, port: null}]": func(s stack.Spec) bool { return s.Health == "" && s.Port == 0 },
		"services: [{name: web, build: make}]":                                  func(s stack.Spec) bool { return s.IsStatic() && s.Builder.String() == "node@22" },
		"services: []":                                                          func(s stack.Spec) bool { return s.Name == "web" && s.Label == "static" },
		"services: [{name: web, runtime: go, start: x, stop_timeout: 60s}]":     func(s stack.Spec) bool { return s.StopTimeout == time.Minute },
		"services: [{name: web, runtime: go, start: x}]":                        func(s stack.Spec) bool { return s.StopTimeout == 10*time.Second && s.Strategy == stack.Overlap },
		"# nothing\n": func(s stack.Spec) bool { return s.Name == "web" },
		"\ufeffservices:\n- {name: a1234567890123456789}": func(s stack.Spec) bool { return len(s.Name) == 20 },
	} {
		if s := mustResolve(t, page, "", Request{Manifest: []byte(manifest)}).Services[0]; !check(s) {
			t.Errorf("%s: %+v", manifest, s)
		}
	}
}

func TestResolve_RefusesInASentence(t *testing.T) {
	const web = "services: [{name: web, runtime: node, start: x, "
	for manifest, want := range map[string]string{
		"a: &x {b: 1}\nc: *x":      "manifest: line 1: anchors",
		"<<: {a: 1}":               "manifest: line 1: anchors, aliases and merge keys",
		"name: !!str x":            "manifest: line 1: YAML tags",
		"name: x\n---\nname: y":    "manifest: it holds more than one YAML document",
		"- a":                      "manifest: it is a list; write fields",
		"hello":                    "manifest: it is text; write fields",
		"a: b: c":                  "manifest: line 1: it is not YAML",
		"{\"a\": ":                 "manifest: line 1: it is not YAML",
		"name: \xff":               "manifest: it is not UTF-8",
		"name: a\x00b":             "manifest: it is not UTF-8",
		strings.Repeat("[", 2000):  "manifest: it nests deeper",
		strings.Repeat("- ", 2000): "manifest: it nests deeper",
		strings.Repeat("? ", 2000): "manifest: it nests deeper",
		strings.Repeat(`{"a":`, 20) + "1" + strings.Repeat("}", 20): "manifest: it nests deeper",
		strings.Repeat("a:\n", 20000):                               "manifest: it holds more than 5000 words",
		"name: " + strings.Repeat("x", 70000):                       "manifest: it is larger than 64 KiB",
		"name: a\nname: b":                                          `"name" is given twice`,
		`{"name": "a", "name": "b"}`:                                `"name" is given twice`,
		"name: \"a\\nb\"":                                           "name \"a\\nb\" is not valid",
		"name: 7":                                                   "name is a number but must be text, as in name: guestbook",
		"ttl: 1.5h":                                                 `ttl: duration "1.5h"`,
		"claim_email: Ana <ana@example.com>":                        "claim_email",
		"claim_email: ana@":                                         "claim_email",
		"notify: x":                                                 "notify is text but must be a mapping",
		"notify: {webhook: example.com/x}":                          "does not begin with http:// or https://",
		"notify: {webhook: 'https://'}":                             "has no host",
		"notify: {webhook: 'https://:80/'}":                         "has no host",
		"notify: {webhook: 'https://u:p@e.com'}":                    "holds a user name",
		"notify: {webhook: 'https://e.com:0/'}":                     "has a port",
		"notify: {webhook: 'https://e.com/a b'}":                    "is not a URL",
		"services: {web: {runtime: node}}":                          "services is a mapping; write a list",
		"services: web":                                             "services is text but must be a list of 1 to 4",
		"services: [a]":                                             "service 1 is text but must be a mapping",
		"services: [{name: a}, {name: b}, {name: c}, {name: d}, {name: e}]": "services has 5 entries; a stack has at most 4",
		"services: [{name: a}, {name: a}]":                                  "service a is named twice",
		"services: [{runtime: static}]":                                     "service 1: it has no name",
		"services: [{name: 1a}]":                                            `service 1a: name "1a" is not valid`,
		"services: [{name: a12345678901234567890}]":                         "1 to 20 characters",
		"services: [{name: web, runtime: Node}]":                            "unknown runtime \"Node\" (did you mean node?); there are " + strings.Join(runtimes.Names(), ", "),
		"services: [{name: web, runtime: cobol}]":                           "unknown runtime \"cobol\"; there are",
		"services: [{name: web, runtime: node@20, start: x}]":               `node has no version "20" here; it has 22, 24`,
		"services: [{name: web, runtime: node@, start: x}]":                 `node has no version ""`,
		"services: [{name: web, runtime: static@1}]":                        "static has no versions",
		"services: [{name: web, runtime: 22}]":                              "runtime is a number but must be text, as in runtime: node",
		"services: [{name: web, root: nope}]":                               `root "nope": the archive has no such folder`,
		"services: [{name: web, root: index.html}]":                         `root "index.html": the archive has no such folder`,
		"services: [{name: web, root: /}]":                                  `root "/" must be a folder inside`,
		"services: [{name: web, root: a/../..}]":                            "leads outside",
		"services: [{name: web, root: ''}]":                                 "root \"\" is empty",
		"services: [{name: web, publish: dist}]":                            "no such folder, and no build command that creates it",
		"services: [{name: web, runtime: static, publish: ../x}]":           "leads outside",
		web + "port: 0}]":                                                   "port 0 is not a whole number from 1 to 65535",
		web + "port: 65536}]":                                               "port 65536 is not",
		web + "port: -1}]":                                                  "port -1 is not",
		web + "port: 80.5}]":                                                "port 80.5 is not",
		web + "port: 99999999999999999999999}]":                             "port 99999999999999999999999 is not",
		web + "port: '80'}]":                                                "port is text but must be a number, as in port: 3000",
		web + "health: healthz}]":                                           "does not begin with /",
		web + "health: '/a b'}]":                                            "is not a path of a URL",
		web + "stop_timeout: 61s}]":                                         "is not from 1s to 60s",
		web + "stop_timeout: 0s}]":                                          "is not from 1s to 60s",
		web + "stop_timeout: 10}]":                                          "stop_timeout is a number but must be text, as in stop_timeout: 10s",
		web + "strategy: blue}]":                                            "is neither overlap",
		web + "publish: x}]":                                                "publish is for a static service, and this one runs node",
		web + "depends_on: [web]}]":                                         "circle: web -> web",
		web + "depends_on: [db]}]":                                          `depends_on names "db", but there is no such service; the services are web`,
		web + "depends_on: [1]}]":                                           "depends_on holds a number",
		web + "env: [A=b]}]":                                                "env is a list but must be a mapping, as in env: {LOG_LEVEL: info}",
		web + "env: {A-B: x}}]":                                             "is not the name of a variable",
		web + "env: {A: x, A: y}}]":                                         "env A is given twice",
		web + "env: {A: {generate: false}}}]":                               "generate can only be true",
		web + "env: {A: {}}}]":                                              "it is an empty mapping",
		web + "env: {A: {generateValue: true}}}]":                           `here it is "generate"`,
		web + `env: {A: "x\u0000"}}]`:                                       "env A holds a NUL character",
		web + `build: "x\u0001"}]`:                                          "build holds a control character",
		web + "env: {A: '${services.db.url}'}}]":                            "names a service that does not exist; the services are web",
		web + "env: {A: '${services.web}'}}]":                               "does not exist; a service has url, internal_url, host, port",
		web + "env: {A: '${stack.url}'}}]":                                  "does not exist; a stack has id and name",
		web + "env: {PORT: http}}]":                                         "env PORT is not a whole number from 1 to 65535",
		web + "env: {PORT: 65536}}]":                                        "env PORT is not a whole number from 1 to 65535",
		web + "env: {PORT: 0}}]":                                            "env PORT is not a whole number from 1 to 65535",
		web + "env: {KEY: " + strings.Repeat("x", 32<<10+1) + "}}]":         "env KEY has 32769 bytes; a value has at most 32 KiB",
		web + "env: {" + variables(201) + "}}]":                             "env has 201 variables; a service has at most 200",
		"services: [{name: web, start: x}]":                                 "service web: a static service must not have a start command",
		"services: [{name: web, runtime: node}]":                            "nothing says how to start it: it has no package.json; write its start command in the manifest, as in start: node server.js",
		"services: [{name: web, runtime: go, start: ' '}]":                  "start is empty; write",
	} {
		lines := faultsOf(t, manifest)
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, want) }) {
			t.Errorf("%.80q:\n got %s\nwant %s", manifest, strings.Join(lines, "\n     "), want)
		}
		if len(lines) > 1 {
			t.Errorf("%.80q: %d faults: %s", manifest, len(lines), strings.Join(lines, "\n"))
		}
	}
}

// variables are n variables of a manifest.
func variables(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "A%d: x, ", i)
	}
	return b.String()
}

// A manifest is too small for more than a service's variables may take together.
func TestResolve_TakesAsManyVariablesAsAServiceMayHave(t *testing.T) {
	env := "{PORT: 65535, KEY: " + strings.Repeat("x", 32<<10) + ", " + variables(198) + "}"
	m := mustResolve(t, page, "", Request{Manifest: []byte("services: [{name: web, runtime: node, start: x, env: " + env + "}]")})
	if n := len(m.Services[0].Env); n != 200 {
		t.Errorf("%d variables, want 200", n)
	}
}

func TestResolve_NoFaultHidesAnother(t *testing.T) {
	for manifest, want := range map[string][]string{
		"services: [{name: web, root: nope, runtime: cobol}, {name: api, root: ../up, runtime: static, start: x}]": {
			`root "nope"`, `unknown runtime "cobol"`, `root "../up"`, "a static service must not have a start command",
		},
		"services: [{name: Web, runtime: static, depends_on: [db], env: {A: '${services.db.url}'}}, {name: b, runtime: static, depends_on: [Web]}]": {
			`name "Web" is not valid`, `depends_on names "db", but there is no such service; the services are Web, b`, "${services.db.url} names a service that does not exist",
		},
		"services: [{name: a, runtime: cobol}, {name: b, runtime: node, spa: true}, {name: b}, {name: d, port: 0}, {name: E}]": {
			"services has 5 entries", "port 0", `name "E"`, "service b is named twice", `unknown runtime "cobol"`, "service b: spa is for a static service",
		},
	} {
		lines := faultsOf(t, manifest)
		if len(lines) != len(want) {
			t.Errorf("%.80q: %d faults: %s", manifest, len(lines), strings.Join(lines, "\n"))
			continue
		}
		for i := range want {
			if !strings.Contains(lines[i], want[i]) {
				t.Errorf("%.80q: fault %d is %q, want %s", manifest, i+1, lines[i], want[i])
			}
		}
	}
}

func TestResolve_KnowsOtherHostsNames(t *testing.T) {
	for name, want := range map[string]string{
		"buildCommand": `"build"`, "startCommand": `"start"`, "healthCheckPath": `"health"`, "staticPublishPath": `"publish"`,
		"rootDir": `"root"`, "envVars": `"env"`, "releaseCommand": `"release"`, "internal_port": `"port"`, "environment": `"env"`,
		"preDeployCommand": `"release"`, "healthcheck": `"health"`, "outputDirectory": `"publish"`, "installCommand": `"install"`,
		"command": `"start"`, "entrypoint": `"start"`, "working_dir": `"root"`, "dependsOn": `"depends_on"`, "stop-grace-period": `"stop_timeout"`,
		"kill_timeout": `"stop_timeout"`, "Runtime": `"runtime"`, "dockerfilePath": "images are not run", "volumes": "$DATA_DIR",
		"strat": `did you mean "start"?`, "tsart": `did you mean "start"?`, "relase": `did you mean "release"?`, "frobnicate": "the fields are name, runtime",
	} {
		lines := faultsOf(t, fmt.Sprintf("services: [{name: web, runtime: static, %s: x}]", name))
		if prefix := fmt.Sprintf("service web: unknown field %q; ", name); len(lines) != 1 || !strings.HasPrefix(lines[0], prefix) || !strings.Contains(lines[0], want) {
			t.Errorf("%s: %q, want %s", name, lines, want)
		}
	}
}

func TestResolve_NeverSuggestsAFieldThatIsNotThere(t *testing.T) {
	for _, c := range []struct {
		table aliases
		known []string
	}{{manifestAliases, append(manifestFields, "notify.webhook")}, {serviceAliases, serviceFields}, {envAliases, envFields}, {notifyAliases, notifyFields}} {
		for alias, field := range c.table.fields {
			if !slices.Contains(c.known, field) || alias != plainKey(alias) {
				t.Errorf("alias %q of %q", alias, field)
			}
		}
		for alias := range c.table.sentences {
			if c.table.fields[alias] != "" || alias != plainKey(alias) {
				t.Errorf("sentence for %q", alias)
			}
		}
	}
}

func TestResolve_BoundsTheFaultsItLists(t *testing.T) {
	var b strings.Builder
	b.WriteString("services:\n- name: web\n  runtime: static\n")
	for i := range 300 {
		fmt.Fprintf(&b, "  zzzzz%d: 1\n", i)
	}
	lines := faultsOf(t, b.String())
	if len(lines) != maxFaults+1 || lines[maxFaults] != "and 260 more" {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}

func TestResolve_ReadsARealTreeWithinItsRoot(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "package.json")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(outside, `{"name": "stolen", "scripts": {"start": "node ."}}`)
	write(filepath.Join(dir, "go.mod"), "module example.com/inside\n")
	write(filepath.Join(dir, "main.go"), "package main\n")
	if err := os.Symlink(outside, filepath.Join(dir, "package.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "requirements.txt"), 0o700); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	m := mustResolve(t, root.FS(), "", Request{})
	if m.Name != "inside" || m.Services[0].Start != "./bin/inside" {
		t.Errorf("%+v", m)
	}
	_, err = Resolve(root.FS(), "", Request{Manifest: []byte("services: [{name: web, root: package.json, runtime: node, start: x}]")})
	if err == nil || !strings.Contains(err.Error(), "no such folder") {
		t.Errorf("a root outside: %v", err)
	}
}

func TestResolve_RefusesAManifestThatIsAFolderOrTooLarge(t *testing.T) {
	for _, c := range []struct {
		src  fstest.MapFS
		want string
	}{
		{with(map[string]string{"stack.yaml/x": ""}), "stack.yaml is not a file"},
		{with(map[string]string{"stack.yaml": strings.Repeat("#", 10<<20)}), "stack.yaml: it is larger than 64 KiB"},
	} {
		if _, err := Resolve(c.src, "", Request{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

// FuzzManifest checks that no manifest makes the reader panic, hang or accept
// what its own rules forbid.
func FuzzManifest(f *testing.F) {
	files, _ := filepath.Glob("testdata/plans/*.txtar")
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil {
			f.Add(data)
		}
	}
	for _, c := range hostileManifests {
		f.Add([]byte(c[0]))
	}
	f.Add([]byte("services: [{name: web, runtime: node, start: x, env: {A: '${services.web.url}', B: {generate: true}}}]"))
	f.Add([]byte("{\"services\":\n\t[{\"name\": \"web\"}]}"))
	f.Add([]byte("a: |\n  b\n? c\n: >-\n  d\n"))
	src := with(map[string]string{"index.html": "", "api/package.json": `{"scripts": {"start": "node ."}}`, "api/server.js": ""})
	f.Fuzz(func(t *testing.T, data []byte) {
		began := time.Now()
		m, err := Resolve(src, "", Request{Manifest: data})
		if spent := time.Since(began); spent > 30*time.Second {
			t.Fatalf("it took %v", spent)
		}
		if err != nil {
			if strings.TrimSpace(err.Error()) == "" || len(err.Error()) > 100_000 {
				t.Fatalf("error of %d bytes", len(err.Error()))
			}
			return
		}
		if m.Name == "" || len(m.Services) < 1 || len(m.Services) > stack.MaxServices || len(stack.InOrder(m.Services)) != len(m.Services) {
			t.Fatalf("accepted %+v", m)
		}
		for _, s := range m.Services {
			if !serviceName.MatchString(s.Name) || !fs.ValidPath(s.Root) || !s.IsStatic() && s.Start == "" {
				t.Fatalf("accepted %+v", s)
			}
		}
	})
}

func TestResolve_FindsARootThatNamesTheArchivesOneFolder(t *testing.T) {
	src := with(map[string]string{"index.html": "", "docs/index.html": ""})
	for root, want := range map[string]string{"web": ".", "web/docs": "docs", "docs": "docs"} {
		manifest := []byte(`{"services": [{"name": "web", "runtime": "static", "root": "` + root + `"}]}`)
		if got := mustResolve(t, src, "web", Request{Manifest: manifest}).Services[0].Root; got != want {
			t.Errorf("root %s is %s, want %s", root, got, want)
		}
	}
}
