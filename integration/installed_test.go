package integration

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// anInstall is a project with a dependency.
type anInstall struct {
	tree    Tree
	program string // the file that changes between two generations
	fields  string // of the service in the manifest
	install string // what the runtime runs by itself, or the fields name
}

// withInstall returns the fields with an install command.
func (c *anInstall) withInstall(command string) string {
	return strings.Replace(c.fields, ", install: "+c.install, "", 1) + fmt.Sprintf(", install: %q", command)
}

const nodeServer = `require('http').createServer((q, r) => r.end(require('greeting'))).listen(process.env.PORT);
`

const rubyServer = `require 'socket'
require 'greeting'
server = TCPServer.new('0.0.0.0', ENV.fetch('PORT'))
loop do
  c = server.accept
  nil while (line = c.gets) && line != "\r\n"
  c.write "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
  c.close
end
`

const rustServer = `use std::io::{Read, Write};
fn main() {
    let port = std::env::var("PORT").unwrap();
    for stream in std::net::TcpListener::bind(format!("0.0.0.0:{port}")).unwrap().incoming() {
        let mut stream = stream.unwrap();
        let _ = stream.read(&mut [0; 4096]);
        let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n{}", greeting::TEXT);
    }
}
`

// installs are projects of all runtimes that install something. Java does so only on
// request: its build fetches what is missing. Gradle is not among them, as no image has it
// and a project's wrapper fetches the whole of Gradle.
func (p *packages) installs(t *testing.T) map[string]anInstall {
	pkg := `{"name": "x", "dependencies": {"greeting": "1.0.0"}, "scripts": {"start": "node server.js"}}`
	node := Tree{"package.json": pkg, "server.js": nodeServer}
	python := Tree{
		"requirements.txt": "-r base.txt\n", "base.txt": "greeting==1.0.0\n",
		"main.py": "import os, http.server, greeting\nclass H(http.server.BaseHTTPRequestHandler):\n    def do_GET(self):\n        self.send_response(200)\n        self.end_headers()\n        self.wfile.write(greeting.TEXT.encode())\nhttp.server.HTTPServer(('', int(os.environ['PORT'])), H).serve_forever()\n",
	}
	return map[string]anInstall{
		"npm": {node.plus(Tree{"package-lock.json": p.npmLock()}), "server.js", "runtime: node", "npm ci"},
		"npm in a folder": {
			Tree{"api/package.json": pkg, "api/server.js": nodeServer, "api/package-lock.json": p.npmLock(), "web/index.html": "x"},
			"api/server.js", "runtime: node, root: api", "npm ci",
		},
		"npm with a build": {
			Tree{"package.json": strings.Replace(pkg, `"start"`, `"build": "cp server.js built.js", "start"`, 1), "server.js": nodeServer, "package-lock.json": p.npmLock()},
			"server.js", "runtime: node", "npm ci",
		},
		"npm without a lock file": {node, "server.js", "runtime: node", "npm install"},
		"go": {Tree{
			"go.mod": "module x\n\ngo 1.26\n\nrequire " + goModule + " v1.0.0\n", "go.sum": p.goSum(t),
			"main.go": "package main\n\nimport (\n\t\"net/http\"\n\t\"os\"\n\n\t\"" + goModule + "\"\n)\n\nfunc main() {\n\thttp.HandleFunc(\"/\", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(greeting.Text)) })\n\thttp.ListenAndServe(\":\"+os.Getenv(\"PORT\"), nil)\n}\n",
		}, "main.go", "runtime: go", "go mod download"},
		"pip": {python, "main.py", "runtime: python", "python3 -m venv --clear .venv && .venv/bin/pip install -r requirements.txt"},
		"bundler": {Tree{
			"Gemfile": "source '" + p.url + "/gems'\ngem 'greeting', '1.0.0'\n", "app.rb": rubyServer,
			"Gemfile.lock": "GEM\n  remote: " + p.url + "/gems/\n  specs:\n    greeting (1.0.0)\n\nPLATFORMS\n  ruby\n  x86_64-linux-gnu\n\nDEPENDENCIES\n  greeting (= 1.0.0)\n\nBUNDLED WITH\n   2.5.22\n",
		}, "app.rb", "runtime: ruby", "BUNDLE_FROZEN=true bundle install"},
		"composer": {Tree{
			"composer.json": `{"repositories": [{"type": "composer", "url": "` + p.url + `/php"}, {"packagist.org": false}], "require": {"test/greeting": "1.0.0"}, "config": {"secure-http": false}}`,
			"composer.lock": p.composerLock(),
			"index.php":     "<?php require 'vendor/autoload.php'; echo Test\\Greeting\\Greeting::TEXT;\n",
		}, "index.php", "runtime: php", "composer install --no-dev --optimize-autoloader --no-progress"},
		"cargo": {Tree{
			"Cargo.toml":         "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[dependencies]\ngreeting = { version = \"1.0.0\", registry = \"test\" }\n",
			"Cargo.lock":         "version = 4\n\n[[package]]\nname = \"greeting\"\nversion = \"1.0.0\"\nsource = \"sparse+" + p.url + "/crates/\"\nchecksum = \"" + rustSum() + "\"\n\n[[package]]\nname = \"x\"\nversion = \"0.1.0\"\ndependencies = [\n \"greeting\",\n]\n",
			".cargo/config.toml": "[registries.test]\nindex = \"sparse+" + p.url + "/crates/\"\n",
			"src/main.rs":        rustServer,
		}, "src/main.rs", "runtime: rust", "cargo fetch --locked"},
		"maven": {
			p.mavenTree(), "Main.java",
			`runtime: java, build: "mkdir lib && cp ` + mavenRepository + greetingJar + ` lib && javac -d classes Main.java", start: "java -cp classes:lib/* Main", install: ` + mavenInstall,
			mavenInstall,
		},
		"maven with a repository of its own": {
			p.mavenTree(), "Main.java",
			`runtime: java, env: {MAVEN_OPTS: -Dmaven.repo.local=/home/app/.m2}, build: "javac -d classes Main.java", start: "java -cp classes:/home/app/.m2` + greetingJar + ` Main", install: ` + mavenInstall,
			mavenInstall,
		},
		"bun": {Tree{"package.json": strings.Replace(pkg, "node server.js", "bun server.js", 1), "server.js": nodeServer}, "server.js", "runtime: bun", "bun install"},
		// Otherwise Deno asks the registry again when a service starts, as docs/security.md says.
		"deno": {Tree{"deno.json": `{"nodeModulesDir": "manual", "imports": {"greeting": "npm:greeting@1.0.0"}}`, "main.ts": "import text from 'greeting';\nDeno.serve(() => new Response(text));\n"}, "main.ts", "runtime: deno", "deno install"},
	}
}

// What a deploy takes over is what a clean install with the whole source leaves. The third
// generation has the source of the second and sets an install command, which does
// the same.
func TestInstalled_TakenOverIsTheSameAsACleanInstall(t *testing.T) {
	t.Parallel()
	p := servePackages(t)
	h := start(t, p.asBuildEnv(t))
	for name, c := range p.installs(t) {
		t.Run(name, func(t *testing.T) {
			own := manifest("services: [{name: web, " + c.fields + "}]")
			st := h.live(t, c.tree, own)
			require.Contains(t, h.installLine(t, st), "install: run (for the first time)")
			changed := c.tree.plus(Tree{c.program: c.tree[c.program] + "\n"})
			require.Equal(t, 2, h.redeploy(t, st, changed, own).Generation)
			require.Contains(t, h.installLine(t, st), "install: taken over from generation 1 (")
			require.Equal(t, "hello", h.get(t, st.url("web", "/")).body)
			taken := h.treeOf(t, st, 2)

			whole := manifest("services: [{name: web, " + c.withInstall(c.install+" && true") + "}]")
			require.Equal(t, 3, h.redeploy(t, st, changed, whole).Generation)
			require.Contains(t, h.installLine(t, st), "install: run with the whole source (install is a command of the project's own)")
			require.Equal(t, h.treeOf(t, st, 3), taken)
		})
	}
}

// Cargo refuses manifests without the source of the program.
func TestInstalled_CargoSeesTheSourceWithoutABuildCommand(t *testing.T) {
	t.Parallel()
	p := servePackages(t)
	h := start(t, p.asBuildEnv(t))
	st := h.live(t, p.installs(t)["cargo"].tree, manifest(`services: [{name: web, runtime: rust, build: "", start: python3 -m http.server $PORT}]`))
	require.Equal(t, "install: run with the whole source (Cargo looks for the source of the program)", h.installLine(t, st))
	require.Equal(t, rustServer, h.get(t, st.url("web", "/src/main.rs")).body)
}

// A script of a dependency sees the project as in a clean install, also where no lock file
// says that there is one.
func TestInstalled_ScriptsOfDependenciesSeeTheSource(t *testing.T) {
	t.Parallel()
	p := servePackages(t)
	h := start(t, p.asBuildEnv(t))
	project := func(text, version string) Tree {
		return Tree{
			"server.js":    "// " + text + "\n" + strings.Replace(nodeServer, "greeting", "reader", 1),
			"package.json": `{"name": "x", "dependencies": {"reader": "` + version + `"}, "scripts": {"start": "node server.js"}}`,
		}
	}
	fields := manifest("services: [{name: web, runtime: node}]")
	st := h.live(t, project("one", "1.0.0"), fields)
	const has, failed = "install: run with the whole source (reader has an install script)", "install: run with the whole source (it failed without the rest of it)"
	for i, c := range []struct {
		text, version string
		lines         []string
	}{
		{"one", "1.0.0", []string{"install: run (for the first time)", has}},
		{"two", "1.0.0", []string{has}},
		{"three", "2.0.0", []string{"install: run (package.json changed)", failed}},
		{"four", "2.0.0", []string{failed}},
	} {
		if i > 0 {
			h.redeploy(t, st, project(c.text, c.version), fields)
		}
		require.Equal(t, "// "+c.text, h.get(t, st.url("web", "/")).body)
		require.Equal(t, c.lines, h.installLines(t, st))
	}
}

// A fresh build of the source that is served installs again what did not change.
func TestInstalled_FreshIsInstalledAgain(t *testing.T) {
	t.Parallel()
	p := servePackages(t)
	h := start(t, p.asBuildEnv(t))
	c := p.installs(t)["npm"]
	st := h.live(t, c.tree, manifest("services: [{name: web, "+c.fields+"}]"))
	before := h.treeOf(t, st, 1)
	r := h.do(t, h.request(t, http.MethodPost, "/v0/stacks/"+st.ID+"/deploy?fresh=true&wait=true&fail=true", nil, "Authorization", "Bearer "+st.ManageToken))
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.Equal(t, 2, h.deployed(t, st).Generation)
	require.Equal(t, "install: run (a fresh build was asked for)", h.installLine(t, st))
	require.Equal(t, before, h.treeOf(t, st, 2))
	require.Equal(t, "hello", h.get(t, st.url("web", "/")).body)
}

// installLine is the line of the latest build log on how install was done.
func (h *Host) installLine(t *testing.T, st *Stack) string {
	t.Helper()
	lines := h.installLines(t, st)
	return lines[len(lines)-1]
}

// installLines are all of them: install may run a second time.
func (h *Host) installLines(t *testing.T, st *Stack) []string {
	t.Helper()
	log := h.logs(t, st, "kind=build&service=web&tail=1000")
	lines := regexp.MustCompile(`(?m)^install: .*$`).FindAllString(log, -1)
	require.NotEmpty(t, lines, log)
	return lines
}

// timed matches what installers write of their own time, what they keep for the next run
// alone, and what Go counts of its own runs.
var timed = regexp.MustCompile(`/go/telemetry/local/|\.pyc$|_cache_v\d+(-shm|-wal)?$|/registry\.json$|/_remote\.repositories$|/resolver-status\.properties$`)

// treeOf maps each path of the container of the service web in a generation that a build may write to its mode
// and contents. What has a time in it is there by its name.
func (h *Host) treeOf(t *testing.T, st *Stack, generation int) map[string]string {
	t.Helper()
	docker, err := h.docker()
	require.NoError(t, err)
	defer docker.Close()
	found := map[string]string{}
	for _, folder := range []string{"/app", "/home/app"} {
		content, _, err := docker.CopyFromContainer(t.Context(), fmt.Sprintf("berth-%s-web-g%d", st.hex(), generation), folder)
		require.NoError(t, err)
		r := tar.NewReader(content)
		for {
			entry, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			var text bytes.Buffer
			_, err = io.Copy(&text, r)
			require.NoError(t, err)
			sum := fmt.Sprintf("%x", sha256.Sum256(text.Bytes()))
			if timed.MatchString(entry.Name) {
				sum = ""
			}
			found[path.Join(path.Dir(folder), entry.Name)] = fmt.Sprintf("%c %o %s %s", entry.Typeflag, entry.Mode, entry.Linkname, sum)
		}
		require.NoError(t, content.Close())
	}
	return found
}
