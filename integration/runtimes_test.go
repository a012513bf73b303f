package integration

import (
	"archive/zip"
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// aRuntime is a typical source, and what it is expected to become.
type aRuntime struct {
	tree   func(t *testing.T) Tree
	fields Fields
	plan   []string // lines of the plan, up to where they came from
	log    string   // what else the build log contains
	check  func(t *testing.T, h *Host, st *Stack)
}

// It deploys one source of every kind that is detected, with real
// packages from the registries that this machine reaches.
func TestRuntimes_DeployWhatIsInTheArchive(t *testing.T) {
	t.Parallel()
	h := start(t)
	cases := allRuntimes()
	stacks := map[string]*Stack{}
	for name, c := range cases {
		stacks[name] = h.create(t, c.tree(t), c.fields)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			st := h.mustLive(t, stacks[name])
			log := h.logs(t, st, "kind=build&tail=1000")
			for _, line := range c.plan {
				require.Regexp(t, `(?m)^  `+strings.ReplaceAll(regexp.QuoteMeta(line), " ", " +")+`( +#|$)`, log)
			}
			require.Contains(t, log, c.log)
			c.check(t, h, st)
		})
	}
}

// Cargo takes a source that is older than its last build for unchanged.
func TestRuntimes_RustCompilesChangesThatAnArchiveSaysAreOld(t *testing.T) {
	t.Parallel()
	h := start(t)
	tree := folder(t, "testdata/rust")
	st := h.live(t, tree, nil)
	const crate = "greeting/src/lib.rs"
	tree[crate] = strings.Replace(tree[crate], "hello from", "goodbye from", 1)
	r := h.postArchive(t, st, archiveAt(t, tree, time.Unix(0, 0)), nil)
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.Equal(t, 2, h.deployed(t, st).Generation)
	answers("", "^goodbye from a crate$")(t, h, st)
}

// symfony is a program that says what it was installed and runs with. Its
// framework is a package of its own, so that no registry is asked.
var symfony = Tree{
	"composer.json": `{
		"repositories": [{"type": "path", "url": "framework"}, {"packagist.org": false}],
		"require": {"symfony/framework-bundle": "*"},
		"scripts": {"post-update-cmd": ["test -e .env", "printenv APP_ENV > installed"]}
	}`,
	"framework/composer.json": `{"name": "symfony/framework-bundle", "version": "7.4.0"}`,
	"importmap.php":           "",
	"bin/console":             `<?php echo implode(" ", array_slice($argv, 1)), " in ", getenv("APP_ENV"), "\n";`,
	"public/index.php":        `<?php echo file_get_contents(__DIR__ . "/../installed"), $_ENV["APP_ENV"], " ", $_ENV["APP_SECRET"];`,
}

func TestRuntimes_SymfonyIsInProductionWithASecretThatStays(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, symfony, nil)
	require.Contains(t, h.logs(t, st, "kind=build&tail=1000"), "asset-map:compile in prod\n")
	first := h.get(t, st.url("web", "/")).body
	require.Regexp(t, "^prod\nprod [A-Z2-7]{32}$", first)
	require.Equal(t, 2, h.redeploy(t, st, symfony.plus(Tree{"more": ""}), nil).Generation)
	require.Equal(t, first, h.get(t, st.url("web", "/")).body)
}

func allRuntimes() map[string]aRuntime {
	all := map[string]aRuntime{}
	for _, group := range []map[string]aRuntime{
		nodeRuntimes(), nodeSites(), bunRuntimes(), denoRuntimes(), goRuntimes(), pythonRuntimes(), rubyRuntimes(), phpRuntimes(), rustRuntimes(), javaRuntimes(), staticRuntimes(),
	} {
		for name, c := range group {
			all[name] = c
		}
	}
	return all
}

func nodeRuntimes() map[string]aRuntime {
	return map[string]aRuntime{
		"npm":  {express("npm"), nil, []string{"install npm ci", "start node server.js"}, "added 68 packages", answers("", `{"express":"5\.`)},
		"yarn": {express("yarn"), nil, []string{"start node server.js"}, "yarn install v1.", answers("", `{"express":"5\.`)},
		"yarn of later years": {
			express("berry"), nil,
			[]string{"install yarn install --immutable", "start yarn start"},
			"68 packages were added",
			answers("", `{"express":"5\.`),
		},
		"pnpm":     {express("pnpm"), nil, []string{"start node server.js"}, "+ express 5.", answers("", `{"express":"5\.`)},
		"node@24":  {source(version), manifest("services: [{name: web, runtime: node@24, start: node index.js}]"), []string{"runtime node@24"}, "", answers("", `v24\.`)},
		"default":  {source(version), nil, []string{"runtime node@22", "install none", "start node index.js"}, "", answers("", `v22\.`)},
		"nvmrc":    {source(version.plus(Tree{".nvmrc": "v24\n"})), nil, []string{"runtime node@24"}, "", answers("", `v24\.`)},
		"engines":  {source(version.plus(Tree{"package.json": `{"engines": {"node": ">=24"}}`})), nil, []string{"runtime node@24"}, "", answers("", `v24\.`)},
		"Procfile": {source(version.plus(Tree{"Procfile": "web: node --title=procfile index.js\n"})), nil, []string{"start node --title=procfile index.js"}, "# Procfile web", answers("", `v22\.`)},
	}
}

// version is a program that reports the version of its Node.js.
var version = Tree{"index.js": `require("http").createServer((req, res) => res.end(process.version)).listen(process.env.PORT)`}

// express is the same small program of one dependency under the lock file of
// a package manager.
func express(manager string) func(*testing.T) Tree {
	return func(t *testing.T) Tree {
		tree := Tree{}
		for name, content := range folder(t, "testdata/express") {
			if lock, ok := strings.CutPrefix(name, "locks/"+manager+"/"); ok {
				tree[lock] = content
			}
			if !strings.Contains(name, "/") {
				tree[name] = content
			}
		}
		return tree
	}
}

func nodeSites() map[string]aRuntime {
	return map[string]aRuntime{
		"vite": {
			example("vite"), nil,
			[]string{"runtime static", "built with node@22", "install npm ci", "build npm run build", "publish dist"},
			"published from dist; number of files: 3",
			func(t *testing.T, h *Host, st *Stack) {
				require.Equal(t, "static", st.Services[0].Runtime)
				asset := regexp.MustCompile(`/assets/[^"]+\.js`).FindString(h.get(t, st.url("web", "/")).body)
				r := h.get(t, st.url("web", asset))
				require.Equal(t, http.StatusOK, r.status)
				require.Contains(t, r.header.Get("Cache-Control"), "immutable")
			},
		},
		"create-react-app": {
			folderOf("testdata/react"), nil,
			[]string{"runtime static", "publish build"},
			"Compiled with warnings",
			func(t *testing.T, h *Host, st *Stack) {
				page := h.get(t, st.url("web", "/")).body
				script := regexp.MustCompile(`src="(/static/js/main\.[0-9a-f]+\.js)"`).FindStringSubmatch(page)
				require.Len(t, script, 2, "the page's addresses are of any host: %s", page)
				require.Contains(t, h.get(t, st.url("web", script[1])).body, "Hello from React")
			},
		},
	}
}

func bunRuntimes() map[string]aRuntime {
	return map[string]aRuntime{
		"bun": {
			express("bun"), nil,
			[]string{"runtime bun@1", "install bun install --frozen-lockfile", "start node server.js"},
			"68 packages installed", answers("", `{"express":"5\.`),
		},
		"bun alone": {
			source(Tree{"index.ts": `const text: string = "hello from " + Bun.version; Bun.serve({ fetch: () => new Response(text) })`}), nil,
			[]string{"runtime bun@1", "install none", "start bun run index.ts"},
			"", answers("", `^hello from 1\.`),
		},
	}
}

func denoRuntimes() map[string]aRuntime {
	return map[string]aRuntime{
		"deno": {
			folderOf("testdata/deno"), nil,
			[]string{"runtime deno@2", "install deno install --frozen", "start env DENO_SERVE_ADDRESS=tcp:0.0.0.0:$PORT deno run -A main.ts"},
			"npm:ms 2.1.3", answers("", `^two days are 172800000 ms in deno 2\.`),
		},
	}
}

func goRuntimes() map[string]aRuntime {
	return map[string]aRuntime{
		"go with Procfile": {
			example("go"), nil,
			[]string{"install go mod download", "build go build -o bin/ .", "start notes"},
			"# Procfile web",
			func(t *testing.T, h *Host, st *Stack) {
				r := h.do(t, h.request(t, http.MethodPost, st.url("web", "/"), strings.NewReader("# Hello *you*")))
				require.Equal(t, http.StatusCreated, r.status, r.body)
				note := h.get(t, strings.TrimSpace(r.body))
				require.Equal(t, "<h1>Hello <em>you</em></h1>\n", note.body)
			},
		},
		"go without": {
			source(Tree{"go.mod": "module example.com/tool/v2\n\ngo 1.26\n", "cmd/tool/main.go": hello}), nil,
			[]string{"install none", "build go build -o bin/ ./cmd/tool", "start ./bin/tool"},
			"",
			answers("", "hello from go1.26"),
		},
	}
}

// hello serves without net/http, whose packages take as long to compile as all others.
const hello = `package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"runtime"
)

func main() {
	listener, err := net.Listen("tcp", ":"+os.Getenv("PORT"))
	for err == nil {
		var conn net.Conn
		if conn, err = listener.Accept(); err == nil {
			go answer(conn)
		}
	}
	panic(err)
}

func answer(conn net.Conn) {
	defer conn.Close()
	in, text := bufio.NewScanner(conn), "hello from "+runtime.Version()
	for in.Scan() && in.Text() != "" { // the head
	}
	fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
}
`

func pythonRuntimes() map[string]aRuntime {
	return map[string]aRuntime{
		"python": {
			example("python"), nil,
			[]string{"runtime python@3.13", "install none", "start python3 main.py"},
			"",
			func(t *testing.T, h *Host, st *Stack) {
				for _, answer := range []string{"/tea", "/tea", "/coffee"} {
					h.do(t, h.request(t, http.MethodPost, st.url("web", answer), nil))
				}
				require.JSONEq(t, `{"tea": 2, "coffee": 1}`, h.get(t, st.url("web", "/")).body)
			},
		},
		"python with requirements": {
			func(t *testing.T) Tree {
				return Tree{
					"requirements.txt":                     "./wheels/greeting-1.0-py3-none-any.whl\n",
					"wheels/greeting-1.0-py3-none-any.whl": wheel(t, "greeting", `TEXT = "hello from a wheel"`),
					"app.py":                               greeter("greeting.TEXT", "greeting"),
				}
			}, nil,
			[]string{"start python3 app.py"},
			"Successfully installed greeting-1.0",
			answers("", "hello from a wheel"),
		},
		"python with empty requirements": {
			source(Tree{"requirements.txt": "", "main.py": greeter("sys.prefix", "sys")}), nil,
			[]string{"start python3 main.py"},
			"pip install -r requirements.txt",
			answers("", "/app/.venv"),
		},
	}
}

// greeter is a Python program that answers with the value of an expression.
func greeter(expression, module string) string {
	return fmt.Sprintf(`import %s, os
from wsgiref.simple_server import make_server

def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [%s.encode()]

make_server("", int(os.environ["PORT"]), app).serve_forever()
`, module, expression)
}

// wheel is a Python package of one module, ready to install without an index.
func wheel(t *testing.T, name, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	info := name + "-1.0.dist-info/"
	for _, file := range [][2]string{
		{name + ".py", text},
		{info + "METADATA", "Metadata-Version: 2.1\nName: " + name + "\nVersion: 1.0\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "RECORD", name + ".py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"},
	} {
		f, err := w.Create(file[0])
		require.NoError(t, err)
		_, err = f.Write([]byte(file[1]))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.String()
}

func rubyRuntimes() map[string]aRuntime {
	return map[string]aRuntime{
		"ruby": {
			folderOf("testdata/ruby"), nil,
			[]string{"runtime ruby@3.3", "install sed -i '/^ *ruby[ (]/d; /^RUBY VERSION/,+2d' Gemfile Gemfile.lock && BUNDLE_FROZEN=true bundle install", "start bundle exec ruby app.rb"},
			"Bundle complete!", answers("", `^hello from a gem in ruby 3\.3`),
		},
	}
}

func phpRuntimes() map[string]aRuntime {
	return map[string]aRuntime{
		"php": {
			folderOf("testdata/php"), nil,
			[]string{"runtime php@8.4", "start php-server public"},
			"Installing example/greeting",
			func(t *testing.T, h *Host, st *Stack) {
				for _, visit := range []string{"1", "2"} {
					require.Equal(t, "hello from a package at /a/path, visit "+visit, h.get(t, st.url("web", "/a/path")).body)
				}
				require.Equal(t, "body {}\n", h.get(t, st.url("web", "/style.css")).body)
				require.Equal(t, http.StatusForbidden, h.get(t, st.url("web", "/.env")).status)
			},
		},
	}
}

func rustRuntimes() map[string]aRuntime {
	return map[string]aRuntime{
		"rust": {
			folderOf("testdata/rust"), nil,
			[]string{"runtime rust@1.85", "install none", "start ./target/release/hello"},
			"Finished `release` profile", answers("", "^hello from a crate$"),
		},
	}
}

func javaRuntimes() map[string]aRuntime {
	return map[string]aRuntime{
		"java": {
			folderOf("testdata/java"), nil,
			[]string{"runtime java@21", "install none", "start java -cp 'target/classes:lib/*' hello.Main"},
			"xargs -0 javac", answers("", `^hello from a class in java 21$`),
		},
	}
}

func staticRuntimes() map[string]aRuntime {
	return map[string]aRuntime{
		"page":          {source(page("hello")), nil, []string{"runtime static", "install none", "build none", "publish ."}, "number of files: 1", answers("", "^hello$")},
		"public folder": {source(Tree{"public/index.html": "hello", "README.md": ""}), nil, []string{"publish public"}, "number of files: 1", answers("", "^hello$")},
		"built by a command": {
			source(Tree{"page.txt": "hello"}), manifest("services: [{name: web, runtime: static, build: mkdir out && cp page.txt out/index.html}]"),
			[]string{"publish found after the build"},
			"published from out; number of files: 1", answers("", "^hello$"),
		},
	}
}

// source gives a tree that needs no test to make.
func source(tree Tree) func(*testing.T) Tree { return func(*testing.T) Tree { return tree } }

func folderOf(dir string) func(*testing.T) Tree {
	return func(t *testing.T) Tree { return folder(t, dir) }
}

// example is the source of one of the repository's examples.
func example(name string) func(*testing.T) Tree { return folderOf("../examples/" + name) }

// answers expects a path of the service web to answer 200 with a body.
func answers(path, body string) func(*testing.T, *Host, *Stack) {
	return func(t *testing.T, h *Host, st *Stack) {
		r := h.get(t, st.url("web", path))
		require.Equal(t, http.StatusOK, r.status, r.body)
		require.Regexp(t, body, r.body)
	}
}
