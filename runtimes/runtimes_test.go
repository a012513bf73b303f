package runtimes

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func files(list ...string) fstest.MapFS {
	src := fstest.MapFS{}
	for _, f := range list {
		name, text, _ := strings.Cut(f, ": ")
		src[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return src
}

func TestRegistry_HoldsTheRuntimesOnOffer(t *testing.T) {
	names := Names()
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(registered) {
		t.Errorf("names: %s", names)
	}
	for _, name := range names {
		d, ok := Lookup(name)
		if !ok || d.Name != name || d.Detect == nil || d.Shows == "" {
			t.Fatalf("%s: %+v", name, d)
		}
		if len(d.Versions) > 0 && !slices.Contains(d.Versions, d.Default) {
			t.Errorf("%s: versions %v, default %q", name, d.Versions, d.Default)
		}
	}
	if _, ok := Lookup("cobol"); ok {
		t.Error("cobol is a runtime")
	}
}

// The names and versions are the specification's.
func TestRegistry_HasTheSpecifiedVersions(t *testing.T) {
	want := map[string][]string{
		"static": nil, "node": {"22", "24"}, "python": {"3.13"}, "go": {"1.26"},
		"bun": nil, "deno": nil, "ruby": nil, "php": nil, "java": nil, "rust": nil, // of any version
		"postgres": {"17"}, "valkey": {"8"},
	}
	for _, d := range All() {
		versions, ok := want[d.Name]
		if !ok || versions != nil && !slices.Equal(d.Versions, versions) {
			t.Errorf("%s has the versions %v, want %v", d.Name, d.Versions, versions)
		}
		delete(want, d.Name)
	}
	if len(want) != 0 {
		t.Errorf("there are no runtimes %v", want)
	}
}

func TestDocuments_HaveEveryRuntime(t *testing.T) {
	page, err := os.ReadFile("../docs/runtimes.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range All() {
		row := strings.ReplaceAll(fmt.Sprintf("| %s | %s |", d.Name, strings.Join(d.Versions, ", ")), "|  |", "| |")
		if !strings.Contains(string(page), "\n"+row) {
			t.Errorf("docs/runtimes.md has no row %s", row)
		}
	}
}

func TestDetect(t *testing.T) {
	pkg := `package.json: {"scripts": {"start": "node server.js"}}`
	for _, c := range []struct {
		src  fstest.MapFS
		want string
	}{
		{files(pkg), "node"},
		{files(pkg, "go.mod: module x", "main.go: package main"), "go"},
		{files(pkg, "requirements.txt: requests", "main.py: "), "node"},
		{files(`package.json: {"devDependencies": {"tailwindcss": "4"}}`, "requirements.txt: flask", "app.py: "), "python"},
		{files(pkg, "requirements.txt: gunicorn", "Procfile: web: gunicorn app:app", "app.py: "), "python"},
		{files(`package.json: {"scripts": {"build": "x"}}`, "go.mod: module x", "Procfile: web: npm run serve"), "node"},
		{files("server.js: ", "index.html: "), "node"},
		{files("app.js: ", "index.html: "), "static"},
		{files("app.js: "), "node"},
		{files("public/index.html: "), "static"},
		{files("public/index.html: ", "Gemfile: "), "ruby"},
		{files("public/index.html: ", "Dockerfile: "), ""},
		{files("index.html: ", "Procfile: web: ./serve"), ""},
		{files("main.py: print()"), "python"},
		{files("setup.py: "), "python"},
		{files("package.json: not json", "index.html: "), "node"}, // which says what is wrong with it
		{files("package.json: [1]"), "node"},
		{files("README.md: "), ""},
		{fstest.MapFS{}, ""},
	} {
		name := ""
		if d, _, ok := Detect(c.src); ok {
			name = d.Name
		}
		if name != c.want {
			t.Errorf("%v: %q, want %q", slices.Collect(names(c.src)), name, c.want)
		}
	}
}

func names(src fstest.MapFS) func(func(string) bool) {
	return func(yield func(string) bool) {
		for name := range src {
			if !yield(name) {
				return
			}
		}
	}
}

func TestDetect_IgnoresFilesTooLargeToBeRead(t *testing.T) {
	huge := &fstest.MapFile{Data: make([]byte, 50<<20)}
	src := fstest.MapFS{"package.json": huge, "Procfile": huge, "go.mod": huge, "requirements.txt": huge, "index.html": huge}
	d, plan, ok := Detect(src)
	if !ok || d.Name != "python" && d.Name != "static" {
		t.Errorf("%v %+v", d, plan)
	}
}

func TestDetect_SurvivesAMegabyteOfNesting(t *testing.T) {
	for _, open := range []string{"[", `{"a":`} {
		deep := &fstest.MapFile{Data: []byte(strings.Repeat(open, maxFile/len(open)))}
		src := fstest.MapFS{}
		for _, name := range []string{"deno.json", "package.json", "composer.json", "go.mod"} {
			src[name] = deep
		}
		for _, d := range All() {
			d.Detect(src)
		}
	}
}

func TestDetect_ReadsAProcfile(t *testing.T) {
	src := files(`package.json: {"scripts": {"start": "node a.js"}}`)
	src["Procfile"] = &fstest.MapFile{Data: []byte("# comment\r\n\nworker: node w.js\nweb:   node b.js --x  \r\nweb: node c.js\nrelease: ./migrate\nodd line\n")}
	_, plan, _ := Detect(src)
	if plan.Start != (Command{"node b.js --x", "Procfile web"}) || plan.Release != (Command{"./migrate", "Procfile release"}) {
		t.Errorf("%+v", plan)
	}
}

func TestDetectSite(t *testing.T) {
	for _, c := range []struct {
		src  fstest.MapFS
		name string
		plan string
	}{
		{files(`package.json: {"scripts": {"build": "x"}}`, "go.mod: module x"), "node", "npm run build"},
		{files("requirements.txt: mkdocs"), "python", ""},
		{files("go.mod: module x", "main.go: package main"), "go", ""},
		{files("index.html: "), "node", ""},
		{fstest.MapFS{}, "node", ""},
	} {
		if d, plan := DetectSite(c.src); d.Name != c.name || plan.Build.Line != c.plan {
			t.Errorf("%v: %s, %+v", slices.Collect(names(c.src)), d.Name, plan)
		}
	}
}

func TestFindPublish(t *testing.T) {
	for _, c := range []struct {
		src  fstest.MapFS
		want string
	}{
		{files("index.html: ", "dist/index.html: "), "dist"},
		{files("index.html: ", "public/style.css: "), "."},
		{files("_site/index.html: ", "public/index.html: "), "public"},
		{files("dist/shop/browser/index.html: "), "dist/shop/browser"},
		{files("build/client/index.html: "), "build/client"},
		{files("src/index.html: "), ""},
		{files("dist/index.html/x: "), ""},
	} {
		if got := FindPublish(c.src); got != c.want {
			t.Errorf("%v: %q, want %q", slices.Collect(names(c.src)), got, c.want)
		}
	}
}

func TestEnviron_FindsTheServicesOwnProgramsFirst(t *testing.T) {
	d, _ := Lookup("go")
	env := d.Environ("/app/api", true)
	if env["GOCACHE"] != "/cache/go-build" || env["PATH"] != "/app/api/bin:/usr/local/go/bin:"+systemPath {
		t.Errorf("%v", env)
	}
}

func TestEnviron_KeepsCachesAndModesApart(t *testing.T) {
	for _, name := range Names() {
		d, _ := Lookup(name)
		for _, v := range d.Environ("/app", false) {
			if strings.Contains(v, "/cache") {
				t.Errorf("%s runs with %s", name, v)
			}
		}
		if mode, set := d.Environ("/app", true)["NODE_ENV"]; set {
			t.Errorf("%s builds with %s", name, mode)
		}
	}
}

func TestWord(t *testing.T) {
	for s, want := range map[string]string{"a/b.js": "a/b.js", "a b": "'a b'", "a'b": `'a'\''b'`, "$x": "'$x'", "": "''"} {
		if got := word(s); got != want {
			t.Errorf("word(%q) = %s, want %s", s, got, want)
		}
	}
}

func TestSubfolders_AreBounded(t *testing.T) {
	src := fstest.MapFS{"node_modules/x": {}, ".git/x": {}, "vendor/x": {}}
	for i := range 300 {
		src[strings.Repeat("d", i+1)+"/x"] = &fstest.MapFile{}
	}
	got := subfolders(src, ".")
	if len(got) != 100 || slices.Contains(got, "node_modules") || slices.Contains(got, ".git") {
		t.Errorf("%d folders", len(got))
	}
	if subfolders(brokenFS{}, ".") != nil {
		t.Error("a folder that cannot be read has folders")
	}
}

type brokenFS struct{}

func (brokenFS) Open(string) (fs.File, error) { return nil, fs.ErrPermission }
