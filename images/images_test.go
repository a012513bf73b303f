package images

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestLookup_FindsEveryVersionThatHasAnArgsFile(t *testing.T) {
	for _, want := range All() {
		got, err := Lookup(want.Name, want.Version)
		if err != nil || got != want {
			t.Errorf("Lookup(%q, %q) = %v, %v", want.Name, want.Version, got, err)
		}
	}
}

func TestLookup_NamesWhatThereIs(t *testing.T) {
	var names []string
	for _, image := range All() {
		names = append(names, image.Name)
	}
	all := strings.Join(slices.Compact(names), ", ")
	for _, c := range []struct{ runtime, version, want string }{
		{"node", "8", "no base image for node@8: the versions of node are 22, 24"},
		{"cobol", "85", "no base image for cobol: there is one for " + all},
		{"common", "", "no base image for common: there is one for " + all},
	} {
		if _, err := Lookup(c.runtime, c.version); err == nil || err.Error() != c.want {
			t.Errorf("Lookup(%q, %q): %v, want %q", c.runtime, c.version, err, c.want)
		}
	}
}

func TestRef_NamesRuntimeVersionAndContent(t *testing.T) {
	seen := map[string]Image{}
	for _, image := range All() {
		ref := image.Ref()
		form := "^berth/base-" + image.Name + ":" + regexp.QuoteMeta(image.Version) + "-[0-9a-f]{12}$"
		if !regexp.MustCompile(form).MatchString(ref) {
			t.Errorf("%v: the reference is %s", image, ref)
		}
		hash := ref[strings.LastIndex(ref, "-"):]
		if other, ok := seen[hash]; ok {
			t.Errorf("%v and %v differ in content, not in %s", image, other, hash)
		}
		seen[hash] = image
	}
}

func TestArgs_PinWhatTheDockerfileAsksFor(t *testing.T) {
	hosts := []string{"DEBIAN_MIRROR", "NPM_CONFIG_REGISTRY", "GOPROXY"}
	for _, image := range All() {
		var declared []string
		for _, line := range regexp.MustCompile(`(?m)^ARG (.+)$`).FindAllSubmatch(read(image.Name+"/Dockerfile"), -1) {
			declared = append(declared, strings.Fields(string(line[1]))...)
		}
		args := image.Args()
		for _, key := range declared {
			if args[key] == "" && !slices.Contains(hosts, key) {
				t.Errorf("%v: the Dockerfile asks for %s and nothing pins it", image, key)
			}
		}
		for key, value := range args {
			if !slices.Contains(declared, key) {
				t.Errorf("%v: %s is pinned and not asked for", image, key)
			}
			checkPin(t, image, key, value)
		}
	}
}

// checkPin looks at the form of a checksum or version.
func checkPin(t *testing.T, image Image, key, value string) {
	t.Helper()
	length := 0
	switch {
	case strings.Contains(key, "_SHA512"):
		length = 64
	case strings.Contains(key, "_SUM"):
		value, length = strings.TrimPrefix(value, "h1:"), 32
	case strings.HasSuffix(key, "_PACKAGE"):
		// As Debian writes it: the program's version, Debian's changes to it, and its revision.
		if !regexp.MustCompile(`^\d+(\.\d+)*(\+[a-z0-9-]+)?-[a-z0-9+]+$`).MatchString(value) {
			t.Errorf("%v: %s=%s is not a version of Debian", image, key, value)
		}
	case !regexp.MustCompile(`^\d+(\.\d+)*$`).MatchString(value):
		t.Errorf("%v: %s=%s is not a version", image, key, value)
	}
	if sum, err := base64.StdEncoding.DecodeString(value); length > 0 && (err != nil || len(sum) != length) {
		t.Errorf("%v: %s=%s is not a checksum of %d bytes", image, key, value, length)
	}
}

func TestContext_HoldsTheDockerfileWhatItCopiesAndTheCertificates(t *testing.T) {
	for _, image := range All() {
		contents := unpack(t, image, []byte("PEM"))
		if contents["ca.crt"] != "PEM" {
			t.Errorf("%v: ca.crt holds %q", image, contents["ca.crt"])
		}
		dockerfile := contents["Dockerfile"]
		if !strings.Contains(dockerfile, "\nFROM "+Debian+"\n") {
			t.Errorf("%v is not built from %s", image, Debian)
		}
		for _, line := range regexp.MustCompile(`(?m)^COPY (.+) \S+$`).FindAllStringSubmatch(dockerfile, -1) {
			for _, name := range strings.Fields(line[1]) {
				if _, ok := contents[name]; !ok {
					t.Errorf("%v: the Dockerfile copies %s, which is not there", image, name)
				}
			}
		}
	}
}

func TestContext_IsTheSameEveryTime(t *testing.T) {
	for _, image := range All() {
		if !bytes.Equal(pack(t, image, nil), pack(t, image, nil)) {
			t.Errorf("%v: two contexts differ", image)
		}
	}
}

// A registry's or mirror's address in a definition would break whoever needs
// another one; the clients' settings are the only source.
func TestDefinitions_NameNoHost(t *testing.T) {
	host := regexp.MustCompile(`https?://[a-z]`)
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && host.Match(read(name)) {
			t.Errorf("%s names a host: %s", name, host.Find(read(name)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestScripts_AreSoundShell(t *testing.T) {
	for _, name := range append(glob("*/*.sh"), "debian.sh") {
		text, shell := read(name), "sh"
		if bytes.HasPrefix(text, []byte("#!/bin/bash\n")) {
			shell = "bash"
		}
		if _, err := exec.LookPath(shell); err != nil {
			t.Skip("no shell here")
		}
		check := exec.Command(shell, "-n")
		check.Stdin = bytes.NewReader(text)
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

// TestBuild_MakesEveryImage builds the images with the engine's classic builder,
// as berthd does, and runs a little program in each. It takes some minutes the
// first time; the images stay in the engine.
func TestBuild_MakesEveryImage(t *testing.T) {
	if os.Getenv("BERTH_TEST_IMAGES") == "" {
		t.Skip("set BERTH_TEST_IMAGES=1 to build the base images")
	}
	for _, image := range All() {
		t.Run(image.Name+"@"+image.Version, func(t *testing.T) {
			began := time.Now()
			build(t, image)
			t.Logf("%s built in %.1fs, %s bytes", image.Ref(), time.Since(began).Seconds(),
				strings.TrimSpace(docker(t, nil, "image", "inspect", "--format", "{{.Size}}", image.Ref())))
			if !slices.Contains(databases, image.Name) {
				run(t, image, everyImage)
			}
			run(t, image, programs[image.Name])
		})
	}
}

// databases are the images in which no command of a stack runs.
var databases = []string{"postgres", "valkey"}

// everyImage is what a stack's commands count on whatever the runtime is.
const everyImage = `set -e
for directory in /app /cache /data /home/app; do touch $directory/x; done
for command in bash git curl gcc g++ make python3 tar xz unzip; do command -v $command >/dev/null; done
[ "$(locale charmap)" = UTF-8 ]
[ "$(TZ=Europe/Zurich date -d @0 +%H)" = 01 ]
[ -s /etc/ssl/certs/ca-certificates.crt ]
[ ! -e /berth ]
`

// programs are built and run without a network, as a user of its own.
var programs = map[string]string{
	"node": `set -e
cd /app
node -e 'process.exit(process.version === "v" + process.argv[1] ? 0 : 1)' "$NODE_VERSION"
[ "$(npm --version)" = "$NPM_VERSION" ]
[ "$(pnpm --version)" = "$PNPM_VERSION" ]
[ "$(yarn --version)" = "$YARN_VERSION" ]
mkdir berry && cd berry
printf '__metadata:\n  version: 8\n' >yarn.lock
echo '{}' >package.json
mkdir below && cd below
[ "$(yarn --version)" = "$BERRY_VERSION" ]
mkdir /app/native && cd /app/native
echo '{"name":"native","version":"1.0.0"}' >package.json
echo '{"targets":[{"target_name":"native","sources":["native.c"]}]}' >binding.gyp
cat >native.c <<C
#include <node_api.h>
NAPI_MODULE_INIT() { napi_value v; napi_create_int32(env, 42, &v); return v; }
C
npm install --no-audit
[ "$(node -p 'require("./build/Release/native.node")')" = 42 ]`,
	"go": `set -e
cd /app
[ "$(go env GOVERSION)" = "go$GO_VERSION" ]
go mod init example
cat >main.go <<GO
package main

// int answer(void) { return 42; }
import "C"

func main() { println(C.answer()) }
GO
go vet . && go build -race -o main . && [ "$(./main 2>&1)" = 42 ]`,
	"python": `set -e
cd /app
python -m venv venv
venv/bin/pip --version
[ "$(venv/bin/python -c 'import sys, ssl, sqlite3; print("%d.%d" % sys.version_info[:2])')" = "$PYTHON_VERSION" ]
cat >native.c <<C
#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "native", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_native(void) { return PyModule_Create(&module); }
C
gcc -shared -fPIC $(python3-config --includes) -o native.so native.c
python -c 'import native'`,
	"bun": `set -e
cd /app
[ "$(bun --version)" = "$BUN_VERSION" ]
echo 'export const answer: number = 42' >answer.ts
echo 'import { answer } from "./answer"; console.log(answer)' >main.ts
[ "$(bun run main.ts)" = 42 ]
printf '#!/usr/bin/env node\nconsole.log(process.versions.bun)' >tool
chmod +x tool && [ "$(./tool)" = "$BUN_VERSION" ]`,
	"deno": `set -e
cd /app
[ "$(deno eval 'console.log(Deno.version.deno)')" = "$DENO_VERSION" ]
echo '{"tasks": {"answer": "deno run main.ts"}}' >deno.json
echo 'const answer: number = 42; console.log(answer)' >main.ts
[ "$(deno task --quiet answer)" = 42 ]`,
	"ruby": `set -e
cd /app
[ "$(ruby -e 'puts RUBY_VERSION[/\d+\.\d+/]')" = "$RUBY_VERSION" ]
ruby -r openssl -r psych -r fiddle -e ''
mkdir -p gem/ext
echo 'require "mkmf"; create_makefile("native")' >gem/ext/extconf.rb
cat >gem/ext/native.c <<C
#include <ruby.h>
static VALUE answer(VALUE self) { return INT2FIX(42); }
void Init_native(void) { rb_define_global_function("answer", answer, 0); }
C
cat >gem/native.gemspec <<RUBY
Gem::Specification.new do |s|
  s.name, s.version, s.summary, s.authors = "native", "1.0", "-", ["-"]
  s.files, s.extensions = ["ext/extconf.rb", "ext/native.c"], ["ext/extconf.rb"]
end
RUBY
(cd gem && gem build --quiet native.gemspec) && mkdir -p vendor/cache && mv gem/*.gem vendor/cache
printf 'source "https://gems.invalid"\ngem "native"\n' >Gemfile
export BUNDLE_PATH=vendor/bundle
bundle install --local
[ "$(bundle exec ruby -r native -e 'puts answer')" = 42 ]`,
	"php": `set -e
cd /app
[ "$(php -r 'echo PHP_MAJOR_VERSION, ".", PHP_MINOR_VERSION;')" = "$PHP_VERSION" ]
for extension in apcu bcmath curl dom exif gd intl mbstring mysqli opcache openssl pcntl pdo_mysql pdo_pgsql pdo_sqlite redis simplexml sodium xmlwriter zip; do
	php -r 'exit(extension_loaded($argv[1]) || $argv[1] == "opcache" && extension_loaded("Zend OPcache") ? 0 : 1);' $extension
done
composer --version
mkdir -p public/.well-known public/vendor
echo '<?php echo $_SERVER["REQUEST_URI"], " ", $_SERVER["HTTPS"] ?? "plain", " ", $_SERVER["REMOTE_ADDR"], " ", $_ENV["GREETING"];' >public/index.php
echo text >public/.well-known/text
echo text >public/style.css
echo secret | tee public/.env public/composer.json public/vendor/x.php >/dev/null
GREETING=hello PORT=8080 PUBLIC_URL=https://web.example php-server public &
get() { curl -s -H 'X-Forwarded-Proto: https' -H 'X-Forwarded-For: 203.0.113.7' "http://127.0.0.1:8080$1"; }
until get / >/dev/null; do kill -0 $! && sleep 0.1; done
[ "$(get /any/path?x=1)" = "/any/path?x=1 on 203.0.113.7 hello" ]
[ "$(get /style.css)$(get /.well-known/text)" = texttext ]
[ "$(curl -s -o /dev/null -w '%{redirect_url}' -H 'Host: web.example' http://127.0.0.1:8080/vendor)" = https://web.example/vendor/ ]
for hidden in .env composer.json vendor/x.php; do get /$hidden | grep -q Forbidden; done
kill $! && wait $! || [ $? = 0 ]`,
	"postgres": `set -e
export DATA_DIR=/data PORT=5432 PGHOST=127.0.0.1 PGPORT=5432 PGUSER=app PGDATABASE=app PGPASSWORD=secret
failed=$(PGUSER=pg_app postgres-start 2>&1) && exit 1
echo "$failed" | grep 'role name "pg_app" is reserved'
echo "$failed" | grep secret && exit 1
[ ! -e /data/postgres ]
for start in first second; do
	postgres-start & server=$!
	until postgres-ready; do [ $? -lt 3 ]; sleep 0.1; done
	psql -v ON_ERROR_STOP=1 -c 'CREATE TABLE IF NOT EXISTS t (n int); INSERT INTO t VALUES (1); CREATE EXTENSION IF NOT EXISTS pg_trgm'
	kill -INT $server; wait $server
done
postgres-start & server=$!
until postgres-ready; do sleep 0.1; done
[ "$(psql -At -c 'SELECT sum(n) FROM t')" = 2 ]
psql -At -c 'SHOW server_version' | grep "^$POSTGRES_VERSION\."
for user in app postgres; do PGPASSWORD=wrong psql -U $user && exit 1; done
PGHOST=/tmp psql -w -U postgres && exit 1
kill -INT $server`,
	"valkey": `set -e
export DATA_DIR=/data PORT=6379 REDISCLI_AUTH=secret
for start in first second; do
	valkey-start & server=$!
	until valkey-ready; do [ $? -lt 3 ]; sleep 0.1; done
	valkey-cli INCR n
	[ "$(REDISCLI_AUTH= valkey-cli GET n 2>&1 | grep -c NOAUTH)" = 1 ]
	kill -KILL $server; wait $server || true
done
valkey-start & server=$!
until valkey-ready; do sleep 0.1; done
[ "$(valkey-cli GET n)" = 2 ]
kill $server`,
	"rust": `set -e
cd /app
rustc --version | grep -F " $RUST_VERSION."
cargo init --vcs none --name answer .
cat >native.c <<C
int answer(void) { return 42; }
C
gcc -c native.c && ar rcs libnative.a native.o
cat >build.rs <<'RUST'
fn main() { println!("cargo:rustc-link-search=/app\ncargo:rustc-link-lib=static=native"); }
RUST
cat >src/main.rs <<'RUST'
unsafe extern "C" { fn answer() -> i32; }
fn main() { println!("{}", unsafe { answer() }) }
RUST
cargo build --release --offline
[ "$(target/release/answer)" = 42 ]`,
	"java": `set -e
cd /app
java --version | grep -F " $JAVA_VERSION."
mvn --version | grep -F "Java version: $JAVA_VERSION."
echo 'public class Main { public static void main(String[] a) { System.out.println(40 + a.length); } }' >Main.java
javac -d classes Main.java && jar --create --file answer.jar --main-class Main -C classes .
[ "$(java -jar answer.jar x y)" = 42 ]`,
}

func build(t *testing.T, image Image) {
	t.Helper()
	args := []string{"build", "--tag", image.Ref()}
	for key, value := range image.Args() {
		args = append(args, "--build-arg", key+"="+value)
	}
	for line := range strings.Lines(string(optional(t, "BERTH_BUILD_ENV_FILE"))) {
		if line = strings.TrimSpace(line); line != "" {
			args = append(args, "--build-arg", line)
		}
	}
	docker(t, bytes.NewReader(pack(t, image, optional(t, "BERTH_BUILD_CA_FILE"))), append(args, "-")...)
}

// run runs a script as a user that the image does not know.
func run(t *testing.T, image Image, script string) {
	t.Helper()
	args := []string{"run", "--rm", "--interactive", "--network", "none", "--user", "10001:10001", "--env", "HOME=/home/app"}
	for key, value := range image.Args() {
		args = append(args, "--env", key+"="+value)
	}
	docker(t, strings.NewReader(script), append(args, image.Ref(), "sh", "-x")...)
}

func docker(t *testing.T, in io.Reader, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "docker", args...)
	command.Env = append(os.Environ(), "DOCKER_BUILDKIT=0")
	command.Stdin = in
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("docker %s: %v\n%s", args[0], err, out)
	}
	return string(out)
}

// optional reads the file that an environment variable names, if it names one.
func optional(t *testing.T, variable string) []byte {
	t.Helper()
	name := os.Getenv(variable)
	if name == "" {
		return nil
	}
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func pack(t *testing.T, image Image, ca []byte) []byte {
	t.Helper()
	content, err := io.ReadAll(image.Context(ca))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// unpack returns the context's files; each must be there once, at the root.
func unpack(t *testing.T, image Image, ca []byte) map[string]string {
	t.Helper()
	contents := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(pack(t, image, ca))); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return contents
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := contents[header.Name]; twice || path.Base(header.Name) != header.Name {
			t.Errorf("%v: %s is in the context twice, or below its root", image, header.Name)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		contents[header.Name] = string(content)
	}
}
