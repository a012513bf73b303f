package runtimes

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// inputsCase is what the plan's own install command of a folder reads.
type inputsCase struct {
	folder string // "" for the root
	src    fstest.MapFS
	env    string // one variable, as KEY=value
	want   string // the files, the lock file marked by a star; or the reason for the whole source, after an exclamation mark
}

func (c inputsCase) check(t *testing.T, runtime string) {
	t.Helper()
	c.folder = path.Clean(c.folder)
	d, _ := Lookup(runtime)
	sub, err := fs.Sub(c.src, c.folder)
	if err != nil {
		t.Fatal(err)
	}
	plan, _ := d.Detect(sub)
	if plan.Install.Line == "" {
		t.Fatalf("nothing is installed for %v", slices.Sorted(names(c.src)))
	}
	env := map[string]string{}
	if name, value, ok := strings.Cut(c.env, "="); ok {
		env[name] = value
	}
	if got := describe(d.InstallInputs(c.src, c.folder, plan.Install.Line, plan.Build.Line, env)); got != c.want {
		t.Errorf("%v in %s\n got %s\nwant %s", slices.Sorted(names(c.src)), c.folder, got, c.want)
	}
}

func describe(in Inputs) string {
	if in.Whole != "" {
		return "!" + in.Whole
	}
	var parts []string
	for _, name := range in.Files {
		if name == in.Lock {
			name += "*"
		}
		parts = append(parts, name)
	}
	return strings.Join(parts, " ")
}

// linked adds a symbolic link to a source.
func linked(src fstest.MapFS, name, target string) fstest.MapFS {
	src[name] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
	return src
}

const express = `package.json: {"dependencies": {"express": "5.1.0"}}`

// npmLock is a lock file that npm ci takes for express.
func npmLock(packages string) string {
	return `package-lock.json: {"lockfileVersion": 3, "packages": {"": {"dependencies": {"express": "5.1.0"}}` + packages + `}}`
}

func TestInstallInputs_OfAPackage(t *testing.T) {
	for _, c := range []inputsCase{
		{src: files(express, npmLock(""), "server.js: ", "README.md: "), want: "package-lock.json* package.json"},
		{src: files(express, npmLock(""), ".npmrc: legacy-peer-deps=true\n//registry.example.com/:_authToken=${NPM_TOKEN}"), want: ".npmrc package-lock.json* package.json"},
		{src: files(express, ".nvmrc: 22"), want: "package.json*"},
		{src: files(express, npmLock(""), ".npmrc: cafile=./ca.pem", "ca.pem: "), want: "!.npmrc sets cafile"},
		{src: files(express, npmLock(""), ".npmrc: node-options=--require ./x.js"), want: "!.npmrc sets node-options"},
		{src: files(`package.json: {"scripts": {"postinstall": "node setup.js"}, "dependencies": {"express": "5.1.0"}}`, npmLock("")), want: "!package.json has a postinstall script"},
		{src: files(`package.json: {"scripts": {"prepare": "svelte-kit sync || echo ''"}, "devDependencies": {"vite": "7"}}`), want: "!package.json has a prepare script"},
		{src: files(`package.json: {"scripts": {"prepare": "husky || true"}, "devDependencies": {"husky": "9"}}`), want: "package.json*"},
		{src: files(`package.json: {"scripts": {"prepare": "husky"}, "devDependencies": {"husky": "9"}}`, ".git/HEAD: "), want: "!package.json has a prepare script"},
		{src: files(`package.json: {"scripts": {"preinstall": "npx only-allow pnpm", "postinstall": "patch-package"}, "dependencies": {"a": "1"}}`, "pnpm-lock.yaml: lockfileVersion: '9.0'", "patches/a+1.0.0.patch: "), want: "package.json patches/a+1.0.0.patch pnpm-lock.yaml*"},
		{src: files(`package.json: {"scripts": {"postinstall": "patch-package && node x.js"}, "dependencies": {"a": "1"}}`), want: "!package.json has a postinstall script"},
		{src: files(express, npmLock(""), "binding.gyp: {}"), want: "!binding.gyp is built on installation"},
		{src: files(`package.json: {"dependencies": {"a": "file:libs/a"}}`, "libs/a/package.json: {}"), want: "!package.json depends on a path"},
		{src: files(`package.json: {"dependencies": {"a": "./libs/a"}}`), want: "!package.json depends on a path"},
		{src: files(`package.json: {"devDependencies": {"a": "link:../a"}}`, "yarn.lock: "), want: "!package.json depends on a path"},
		{src: files(`package.json: {"dependencies": {"a": "vendored.tgz"}}`), want: "!package.json depends on a path"},
		{src: files(`package.json: {"dependencies": {"a": "https://example.com/a.tgz", "b": "user/repo", "c": "~1.2", "d": "npm:e@1"}}`), want: "package.json*"},
		{src: files(`package.json: {"dependencies": {"a": "1"}, "overrides": {"b": {"c": "file:c"}}}`), want: "!package.json depends on a path"},
		{src: files(`package.json: {"dependencies": {"a": "1"}, "pnpm": {"patchedDependencies": {"a@1": "fixes/a.patch"}}}`, "pnpm-lock.yaml: lockfileVersion: '9.0'", "fixes/a.patch: "), want: "fixes/a.patch package.json pnpm-lock.yaml*"},
		{src: files(`package.json: {"dependencies": {"a": "1"}, "patchedDependencies": {"a@1": "../a.patch"}}`), want: "!package.json names a patch outside of the source"},
		{src: files(express, npmLock(""), "node_modules/express/index.js: "), want: "!node_modules is part of the source"},
		{src: linked(files(express, npmLock("")), "node_modules", "/somewhere"), want: "!node_modules is part of the source"},
		{src: linked(files(express, npmLock(""), "real: "), ".npmrc", "real"), want: "!.npmrc is a link"},
	} {
		c.check(t, "node")
	}
}

func TestInstallInputs_KnowsScriptsOfDependencies(t *testing.T) {
	script := func(name string) string { return `, "node_modules/` + name + `": {"hasInstallScript": true}` }
	prisma := `package.json: {"dependencies": {"@prisma/client": "6"}}`
	for _, c := range []inputsCase{
		{src: files(express, npmLock(script("esbuild")+script("a/node_modules/@parcel/watcher"))), want: "package-lock.json* package.json"},
		{src: files(express, npmLock(script("esbuild")+script("reads-all"))), want: "!reads-all has an install script"},
		{src: files(express, npmLock(script("@prisma/client"))), want: "!@prisma/client has an install script"},
		{src: files(prisma), want: "!@prisma/client has an install script"},
		{src: files(`package.json: {"dependencies": {"a": "1"}}`, "yarn.lock: # yarn lockfile v1\n\n\"@prisma/client@^6.0.0\":\n  version 6"), want: "!@prisma/client has an install script"},
		{src: files(`package.json: {"packageManager": "pnpm@9.15.0", "dependencies": {"a": "1"}}`, "pnpm-lock.yaml: lockfileVersion: '9.0'\npackages:\n  '@prisma/client@6.1.0':\n"), want: "!@prisma/client has an install script"},
		{src: files(`package.json: {"packageManager": "pnpm@9.15.0", "dependencies": {"nxt": "1"}}`, "pnpm-lock.yaml: lockfileVersion: '9.0'\npackages:\n  nxt@1.0.0:\n"), want: "package.json pnpm-lock.yaml*"},
	} {
		c.check(t, "node")
	}
}

func TestInstallInputs_OfAWorkspace(t *testing.T) {
	root := `package.json: {"workspaces": ["packages/*"]}`
	for _, c := range []inputsCase{
		{src: files(root, npmLock(""), "packages/a/package.json: {}", "packages/a/index.js: ", "packages/b/package.json: {}"), want: "package-lock.json* package.json packages/a/package.json packages/b/package.json"},
		{folder: "packages/a", src: files(root, npmLock(""), `packages/a/package.json: {"dependencies": {"express": "5.1.0"}}`, "packages/a/x.js: ", "packages/b/package.json: {}"), want: "package-lock.json package.json packages/a/package.json* packages/b/package.json"},
		{folder: "packages/a", src: files("pnpm-workspace.yaml: packages:\n  - packages/*", "pnpm-lock.yaml: ", "package.json: {}", `packages/a/package.json: {"dependencies": {"b": "workspace:*"}}`, "packages/b/package.json: {}"), want: "package.json packages/a/package.json* packages/b/package.json pnpm-lock.yaml pnpm-workspace.yaml"},
		{src: files(root, `packages/a/package.json: {"bin": "cli.js"}`), want: "!packages/a/package.json has programs of its own"},
		{src: files(root, `packages/a/package.json: {"scripts": {"prepare": "tsc"}}`), want: "!packages/a/package.json has a prepare script"},
		{folder: "packages/a", src: files(root, `packages/a/package.json: {"dependencies": {"x": "1"}}`, `packages/b/package.json: {"scripts": {"install": "make"}}`), want: "!../b/package.json has an install script"},
		{src: files(root, "packages/a/package.json: {}", "packages/a/node_modules/x/package.json: {}"), want: "!packages/a/node_modules is part of the source"},
		{src: files(root, "packages/a/package.json: {", "packages/b/package.json: {}"), want: "!packages/a/package.json cannot be read"},
		{src: files("pnpm-workspace.yaml: packages: [a]\noverrides:\n  x: link:./x", `package.json: {"dependencies": {"x": "1"}}`, "pnpm-lock.yaml: "), want: "!pnpm-workspace.yaml depends on a path"},
		{src: files("pnpm-workspace.yaml: patchedDependencies:\n  x@1: fix/x.patch", `package.json: {"dependencies": {"x": "1"}}`, "pnpm-lock.yaml: lockfileVersion: '9.0'", "fix/x.patch: "), want: "fix/x.patch package.json pnpm-lock.yaml* pnpm-workspace.yaml"},
		{folder: "api", src: files("api/"+express, "api/"+npmLock(""), "web/package.json: {}", "package.json: {}", "api/server.js: "), want: "api/package-lock.json* api/package.json package.json"},
		{folder: "api", src: linked(files("real/"+express), "api", "real"), want: "!../api is a link"},
	} {
		c.check(t, "node")
	}
}

func TestInstallInputs_OfYarn(t *testing.T) {
	berry := "yarn.lock: __metadata:\n  version: 8\n"
	pkg := `package.json: {"dependencies": {"a": "1"}}`
	for _, c := range []inputsCase{
		{src: files(pkg, "yarn.lock: # v1"), want: "package.json yarn.lock*"},
		{src: files(pkg, "yarn.lock: # v1", `.yarnrc: yarn-path ".yarn/releases/yarn-1.22.22.cjs"`, ".yarn/releases/yarn-1.22.22.cjs: "), want: ".yarn/releases/yarn-1.22.22.cjs .yarnrc package.json yarn.lock*"},
		{src: files(pkg, "yarn.lock: # v1", `.yarnrc: yarn-offline-mirror "./mirror"`), want: "!.yarnrc sets yarn-offline-mirror"},
		{src: files(pkg, berry, ".yarnrc.yml: nodeLinker: node-modules\nyarnPath: .yarn/releases/yarn-4.cjs\nplugins:\n  - path: .yarn/plugins/x.cjs\n    spec: x", ".yarn/releases/yarn-4.cjs: ", ".yarn/plugins/x.cjs: ", ".pnp.cjs: "), want: ".pnp.cjs .yarn/plugins/x.cjs .yarn/releases/yarn-4.cjs .yarnrc.yml package.json yarn.lock*"},
		{src: files(pkg, berry, ".yarnrc.yml: cacheFolder: ./.cache"), want: "!.yarnrc.yml sets cacheFolder"},
		{src: files(pkg, berry, ".yarnrc.yml: yarnPath: tools/yarn.cjs"), want: "!.yarnrc.yml sets yarnPath"},
		{src: files(pkg, berry, ".yarn/cache/a.zip: "), want: "!.yarn/cache is part of the source"},
		{src: files(`package.json: {"dependencies": {"a": "patch:a@npm%3A1.0.0#~/.yarn/patches/a.patch"}}`, berry, ".yarn/patches/a.patch: "), want: ".yarn/patches/a.patch package.json yarn.lock*"},
		{src: files(`package.json: {"dependencies": {"a": "patch:a@npm%3A1.0.0#./fix.patch"}}`, berry), want: "!package.json names a patch"},
		{src: files(`package.json: {"dependencies": {"a": "portal:../a"}}`, berry), want: "!package.json depends on a path"},
		{src: files(pkg, "pnpm-lock.yaml: ", ".pnpmfile.cjs: "), want: "!.pnpmfile.cjs may read other files"},
	} {
		c.check(t, "node")
	}
}

func TestInstallInputs_OfBunAndDeno(t *testing.T) {
	for _, c := range []inputsCase{
		{src: files(express, "bun.lock: {}", "bunfig.toml: ", ".env: A=1", "index.ts: "), want: ".env bun.lock* bunfig.toml package.json"},
		{src: files(`package.json: {"dependencies": {"a": "1"}, "patchedDependencies": {"a@1": "p/a.patch"}}`, "bun.lockb: ", "p/a.patch: "), want: "bun.lockb* p/a.patch package.json"},
		{src: files(`package.json: {"dependencies": {"a": "1"}, "trustedDependencies": ["a"]}`, `bun.lock: {"packages": {`+"\n"+`"msw": ["msw@2"]`), want: "!msw has an install script"},
	} {
		c.check(t, "bun")
	}
	for _, c := range []inputsCase{
		{src: files(`deno.json: {"imports": {"std": "jsr:@std/http", "@/": "./src/"}}`, "deno.lock: {}", "main.ts: "), want: "deno.json deno.lock*"},
		{src: files(`deno.jsonc: {"imports": {"lib": "./lib/mod.ts", "a": "npm:a"}} // x`, "main.ts: "), want: "!deno.json imports a file"},
		{src: files("main.ts: import a from 'npm:a';", "deno.lock: {}"), want: "!the program imports packages by their addresses"},
		{src: files(`deno.json: {"imports": {"a": "npm:a"}, "importMap": "map.json"}`, "main.ts: "), want: "!deno.json sets importMap"},
		{src: files(`deno.json: {"workspace": ["a"], "imports": {"a": "npm:a"}}`, "a/deno.json: {}", "main.ts: "), want: "a/deno.json deno.json*"},
		{src: files(`package.json: {"dependencies": {"a": "1"}, "scripts": {"install": "x"}}`, "deno.json: {}", "main.ts: "), want: "!package.json has an install script"},
	} {
		c.check(t, "deno")
	}
}

func TestInstallInputs_OfGo(t *testing.T) {
	mod := "go.mod: module x\n\ngo 1.26\n\nrequire example.com/a v1.0.0\n"
	for _, c := range []inputsCase{
		{src: files(mod, "go.sum: ", "main.go: package main", "go.work.sum: "), want: "go.mod go.sum*"},
		{src: files(mod, "main.go: package main"), want: "!go.mod is without go.sum"},
		{src: files(mod+"replace example.com/a => ../a\n", "go.sum: "), want: "!go.mod replaces example.com/a by a folder"},
		{src: files(mod+"replace example.com/a => example.com/b v1.0.0\n", "go.sum: "), want: "go.mod go.sum*"},
		{folder: "api", src: files("api/"+mod, "api/go.sum: ", "lib/go.mod: module y", "lib/y.go: ", "go.work: go 1.26\nuse (\n\t./api\n\t./lib\n)", "go.work.sum: "), want: "api/go.mod api/go.sum* go.work go.work.sum lib/go.mod"},
		{folder: "api", src: files("api/"+mod, "api/go.sum: ", "go.work: go 1.26\nuse ./api\nuse ../lib\n"), want: "!../go.work uses a folder that is not in the source"},
		{folder: "api", src: files("api/"+mod, "api/go.sum: ", "go.work: go 1.26\nuse ./api\n", "vendor/modules.txt: "), want: "!../vendor is part of the source"},
		{src: files(mod, "go.sum: "), env: "GOFLAGS=-modfile=other.mod", want: "go.mod go.sum*"},
		{src: files(mod, "go.sum: ", "other.mod: "), env: "GOFLAGS=-modfile=other.mod", want: "!the variable GOFLAGS may name a file of the source"},
	} {
		c.check(t, "go")
	}
}

func TestInstallInputs_OfPython(t *testing.T) {
	for _, c := range []inputsCase{
		{src: files("requirements.txt: flask==3.0 --hash=sha256:00\nrequests>=2; python_version < '4'  # why\nuvicorn[standard]\n--extra-index-url https://example.com/simple\n", "app.py: "), want: "requirements.txt*"},
		{src: files("requirements.txt: -r requirements/base.txt\n-cconstraints.txt", "requirements/base.txt: -r more.txt\na", "requirements/more.txt: b", "constraints.txt: c==1"), want: "constraints.txt requirements.txt* requirements/base.txt requirements/more.txt"},
		{src: files("requirements.txt: -r requirements.txt\n--requirement=a.txt", "a.txt: -r requirements.txt"), want: "a.txt requirements.txt*"},
		{folder: "api", src: files("api/requirements.txt: -r ../shared.txt", "shared.txt: x"), want: "api/requirements.txt* shared.txt"},
		{folder: "api", src: files("api/requirements.txt: -r ../../shared.txt"), want: "!requirements.txt includes ../../shared.txt"},
		{src: files("requirements.txt: -r $WHICH.txt"), want: "!requirements.txt includes $WHICH.txt"},
		{src: files("requirements.txt: -e ."), want: "!requirements.txt has the line -e ."},
		{src: files("requirements.txt: ./libs/a"), want: "!requirements.txt has the line ./libs/a"},
		{src: files("requirements.txt: libs/a"), want: "!requirements.txt has the line libs/a"},
		{src: files("requirements.txt: a-1.0-py3-none-any.whl"), want: "!requirements.txt has the line a-1.0-py3-none-any.whl"},
		{src: files("requirements.txt: a @ file:///app/a"), want: "!requirements.txt has the line a @ file:///app/a"},
		{src: files("requirements.txt: --find-links wheels\na"), want: "!requirements.txt has the line --find-links wheels"},
		{src: files("requirements.txt: a @ git+https://example.com/a@v1\n-e git+https://example.com/b#egg=b\nhttps://example.com/c-1.whl"), want: "requirements.txt*"},
		{src: files("requirements.txt: a \\\n  --hash=sha256:1"), want: "requirements.txt*"},
		{src: files("requirements.txt: \xff\xfea\x00"), want: "!requirements.txt is not plain text"},
		{src: files("requirements.txt: a", ".venv/bin/python: "), want: "!.venv is part of the source"},
		{src: files("requirements.txt: a", "types.py: "), want: "!types.py takes the place of a module of Python"},
		{src: files("requirements.txt: a"), env: "PIP_CONSTRAINT=./c.txt", want: "!the variable PIP_CONSTRAINT may name a file of the source"},
		{src: files("requirements.txt: a"), env: "PIP_INDEX_URL=https://example.com/simple", want: "requirements.txt*"},
		{src: files("pyproject.toml: [project]\nname = 'x'\ndependencies = ['flask', 'b @ https://example.com/b.whl']\n[tool.x]\npath = './src'", "main.py: "), want: "pyproject.toml*"},
		{src: files("pyproject.toml: [project]\ndependencies = ['a @ file:./a']"), want: "!pyproject.toml depends on a path"},
		{src: files("pyproject.toml: [build-system]\nrequires = []\n[project]"), want: "!the project is a package of its own"},
		{src: files("pyproject.toml: [project]", "uv.lock: [[package]]\nsource = { virtual = \".\" }\n[[package]]\nsource = { registry = \"https://pypi.org/simple\" }", "uv.toml: ", ".python-version: 3.13"), want: ".python-version pyproject.toml uv.lock* uv.toml"},
		{src: files("pyproject.toml: [project]\n[build-system]", "uv.lock: "), want: "!the project is a package of its own"},
		{src: files("pyproject.toml: [project]", "uv.lock: source = { editable = \"lib\" }"), want: "!uv.lock depends on a path"},
		{src: files("pyproject.toml: [project]\n[tool.uv.workspace]\nmembers = []", "uv.lock: "), want: "!pyproject.toml has a workspace"},
		{src: files("pyproject.toml: [tool.poetry]\nname = \"x\"\n[build-system]", "poetry.lock: ", "poetry.toml: ", "README.md: "), want: "poetry.lock* poetry.toml pyproject.toml"},
		{src: files("pyproject.toml: [tool.poetry]", "poetry.lock: [package.source]\ntype = \"directory\""), want: "!poetry.lock depends on a path"},
		{src: files("Pipfile: [packages]\nflask = '*'", "Pipfile.lock: {}"), want: "Pipfile Pipfile.lock*"},
		{src: files("Pipfile: [packages]\nx = {path = '.', editable = true}"), want: "!Pipfile depends on a path"},
	} {
		c.check(t, "python")
	}
}

func TestInstallInputs_OfRust(t *testing.T) {
	crate := "Cargo.toml: [package]\nname = 'x'\n[dependencies]\nserde = '1'\n"
	lock := "Cargo.lock: [[package]]\nsource = \"registry+https://github.com/rust-lang/crates.io-index\"\n"
	for _, c := range []inputsCase{
		{src: files(crate, lock, "src/main.rs: fn main() {}", "src/lib.rs: ", "src/util.rs: ", "src/bin/a.rs: ", "src/bin/b/main.rs: ", "src/bin/c/d.rs: ", "build.rs: ", "tests/t.rs: "), want: "Cargo.lock* Cargo.toml"},
		{src: files(crate+"[[bin]]\nname = 'y'\npath = 'cmd/y.rs'\n", lock, "cmd/y.rs: "), want: "Cargo.lock* Cargo.toml"},
		{src: files(crate+"y = { path = '../y' }\n", lock), want: "!Cargo.toml depends on a path"},
		{folder: "api", src: files("Cargo.toml: [workspace]\nmembers = ['api', 'lib']", lock, "api/"+crate+"lib = { path = '../lib' }\n", "api/src/main.rs: ", "lib/Cargo.toml: [package]\nname = 'lib'", "lib/src/lib.rs: "), want: "Cargo.lock Cargo.toml api/Cargo.toml* lib/Cargo.toml"},
		{src: files(crate, lock, "src/main.rs: ", ".cargo/config.toml: [net]\ngit-fetch-with-cli = true"), want: ".cargo/config.toml Cargo.lock* Cargo.toml"},
		{src: files(crate, lock, "src/main.rs: ", ".cargo/config.toml: [source.x]\ndirectory = 'crates'"), want: "!.cargo/config.toml sets directory"},
	} {
		c.check(t, "rust")
	}
	rust, _ := Lookup("rust")
	for _, c := range []struct {
		build string
		env   map[string]string
		want  string
	}{
		{"cargo build --release", nil, "Cargo.lock* Cargo.toml"},
		{"", nil, "!Cargo looks for the source of the program"},
		{"cargo build --release", map[string]string{"CARGO_HOME": "/home/app/.cargo"}, "!Cargo looks for the source of the program"},
	} {
		if got := describe(rust.InstallInputs(files(crate, lock, "src/main.rs: "), ".", "cargo fetch --locked", c.build, c.env)); got != c.want {
			t.Errorf("build %q, %v\n got %s\nwant %s", c.build, c.env, got, c.want)
		}
	}
}

func TestInstallInputs_OfRuby(t *testing.T) {
	for _, c := range []inputsCase{
		{src: files("Gemfile: source 'https://rubygems.org'\n# File\ngem 'bootsnap', require: false\ngem 'open4'\ngroup(:test) { gem 'x' }\n", "Gemfile.lock: GEM", ".ruby-version: 3.3", "app.rb: "), want: ".ruby-version Gemfile Gemfile.lock*"},
		{src: files("Gemfile: ruby file: '.ruby-version'\nruby File.read('.ruby-version').strip", ".ruby-version: 3.3.8"), want: ".ruby-version Gemfile*"},
		{src: files("Gemfile: gem 'x', path: 'gems/x'\n", "gems/x/x.gemspec: Gem::Specification.new { |s| s.files = `git ls-files` }", "gems/x/lib/x.rb: "), want: "Gemfile* gems/x/lib/x.rb gems/x/x.gemspec"},
		{src: files("Gemfile: gem 'x', path: 'gems/x'\n", "gems/x/x.gemspec: `git ls-files`", ".git/HEAD: "), want: "!gems/x/x.gemspec may read other files"},
		{src: files("Gemfile: gem 'x', path: 'gems/x'\n", "gems/x/x.gemspec: File.read('../../VERSION')"), want: "!gems/x/x.gemspec may read other files"},
		{src: files("Gemfile: path '../x' do\ngem 'x'\nend\n"), want: "!Gemfile depends on the path ../x"},
		{src: files("Gemfile: gem 'x', path: ENV['X']\n"), want: "!Gemfile uses path: E"},
		{src: files("Gemfile: source 'x'\ngemspec\n", "x.gemspec: "), want: "!Gemfile uses gemspec"},
		{src: files("Gemfile: eval_gemfile 'other'\n"), want: "!Gemfile uses eval_gemfile"},
		{src: files("Gemfile: require_relative 'version'\n"), want: "!Gemfile uses require_relative '"},
		{src: files("Gemfile: gem 'x'", "vendor/cache/x-1.gem: "), want: "Gemfile* vendor/cache/x-1.gem"},
	} {
		c.check(t, "ruby")
	}
}

func TestInstallInputs_OfPHP(t *testing.T) {
	for _, c := range []inputsCase{
		{src: files(`composer.json: {"require": {"slim/slim": "4"}, "autoload-dev": {"psr-4": {}}}`, "composer.lock: {}", "auth.json: {}", "index.php: "), want: "auth.json composer.json composer.lock*"},
		{src: files(`composer.json: {"autoload": {"psr-4": {"App\\": "src/"}}}`), want: "!composer.json loads the project's own classes"},
		{src: files(`composer.json: {"scripts": {"post-install-cmd": ["x"], "test": "phpunit"}}`), want: "!composer.json has scripts that run on installation"},
		{src: files(`composer.json: {"scripts": {"test": "phpunit"}}`), want: "composer.json*"},
		{src: files(`composer.json: {"repositories": [{"type": "path", "url": "packages/x"}]}`), want: "!composer.json has a repository in the source"},
		{src: files(`composer.json: {"repositories": [{"type": "composer", "url": "https://example.com"}]}`), want: "composer.json*"},
		{src: files(`composer.json: {"config": {"allow-plugins": {"symfony/flex": true}}}`), want: "!composer.json allows plugins"},
		{src: files("composer.json: {}", "vendor/autoload.php: "), want: "!vendor is part of the source"},
		{src: files("composer.json: {}", ".git/HEAD: "), want: "!.git is part of the source"},
	} {
		c.check(t, "php")
	}
}

// The plan of a Java project installs nothing, but a project's own command may only
// fetch what it depends on.
func TestInstallInputs_OfJava(t *testing.T) {
	java, _ := Lookup("java")
	const mvn, gradle = "mvn -B dependency:resolve", "./gradlew dependencies"
	for _, c := range []struct {
		src           fstest.MapFS
		command, want string
	}{
		{files("pom.xml: <project/>", "mvnw: ", ".mvn/wrapper/maven-wrapper.properties: ", "core/pom.xml: ", "core/src/A.java: "), "sh mvnw -B dependency:go-offline", ".mvn/wrapper/maven-wrapper.properties core/pom.xml mvnw pom.xml"},
		{files("pom.xml: <systemPath>"), mvn, "!pom.xml depends on a path"},
		{files("pom.xml: "), "mvn package", "!install is a command of the project's own"},
		{files("pom.xml: <modules><module>core</module></modules>", "core/pom.xml: <parent><relativePath>../pom.xml</relativePath></parent>"), mvn, "core/pom.xml pom.xml"},
		{files("pom.xml: <module>core/other.xml</module>", "core/other.xml: "), mvn, "!pom.xml depends on a path"},
		{files("pom.xml: <module>core</module>", "core/pom.xml: ", "core/target/classes/A.class: "), mvn, "!core/target is part of the source"},
		{files("pom.xml: <parent><relativePath>build/parent.xml</relativePath></parent>", "build/parent.xml: "), mvn, "!pom.xml depends on a path"},
		{files("pom.xml: <parent><relativePath/></parent>", "build.gradle: apply from: 'x'"), mvn, "pom.xml"},
		{files("pom.xml: <build><extensions>"), mvn, "!pom.xml may read or write other files"},
		{files("pom.xml: ", `.mvn/extensions.xml: <extensions xmlns="x">`), mvn, "!.mvn/extensions.xml may read or write other files"},
		{files("pom.xml: ", ".mvn/maven.config: -s\n.mvn/settings.xml", ".mvn/settings.xml: "), mvn, ".mvn/maven.config .mvn/settings.xml pom.xml"},
		{files("pom.xml: ", ".mvn/settings.xml: <url>file:lib"), mvn, "!.mvn/settings.xml depends on a path"},
		{files("pom.xml: ", ".mvn/maven.config: # settings.xml\n-Pdev", "settings.xml: "), mvn, ".mvn/maven.config pom.xml"},
		{files("pom.xml: ", ".mvn/maven.config: -s\nsettings.xml", "settings.xml: "), mvn, "!.mvn/maven.config may name a file of the source"},
		{files("pom.xml: ", ".mvn/jvm.config: -Djavax.net.ssl.trustStore=${MAVEN_PROJECTBASEDIR}/x.jks"), mvn, "!.mvn/jvm.config may name a file of the source"},
		{files("build.gradle: plugins {}", "settings.gradle: include 'app'", "gradlew: ", "gradle/libs.versions.toml: ", "app/build.gradle.kts: "), gradle, "app/build.gradle.kts build.gradle gradle/libs.versions.toml gradlew settings.gradle"},
		{files("build.gradle: apply from: 'other.gradle'"), gradle, "!build.gradle may read other files"},
		{files("build.gradle: dependencies { implementation files('lib/x.jar') }"), gradle, "!build.gradle may read other files"},
		{files("build.gradle: ", "settings.gradle: include ':app'", "app/src/A.java: "), gradle, "!app has no build.gradle"},
		{files("build.gradle: ", "settings.gradle: include ':back:web'", "back/web/build.gradle: "), gradle, "back/web/build.gradle build.gradle settings.gradle"},
	} {
		if got := describe(java.InstallInputs(c.src, ".", c.command, "", nil)); got != c.want {
			t.Errorf("%v\n got %s\nwant %s", slices.Sorted(names(c.src)), got, c.want)
		}
	}
}

// A project in a subfolder inherits from the folders above.
func TestInstallInputs_OfJavaInAFolder(t *testing.T) {
	java, _ := Lookup("java")
	for _, c := range []struct {
		src           fstest.MapFS
		command, want string
	}{
		{files("app/pom.xml: ", "pom.xml: <module>app</module><module>lib</module>", "lib/pom.xml: "), "mvn dependency:resolve", "app/pom.xml pom.xml"},
		{files("app/pom.xml: <relativePath>../parent</relativePath>", "parent/pom.xml: "), "mvn dependency:resolve", "!pom.xml depends on a path"},
		{files("app/pom.xml: ", "app/.mvn/maven.config: -s ../.mvn/settings.xml", ".mvn/settings.xml: "), "mvn dependency:resolve", ".mvn/settings.xml app/.mvn/maven.config app/pom.xml"},
		{files("app/build.gradle: ", "settings.gradle: include 'app'"), "./gradlew dependencies", "!../settings.gradle includes other projects"},
		{files("app/build.gradle: ", "app/settings.gradle: ", "settings.gradle: include 'app'"), "./gradlew dependencies", "app/build.gradle app/settings.gradle"},
	} {
		if got := describe(java.InstallInputs(c.src, "app", c.command, "", nil)); got != c.want {
			t.Errorf("%v\n got %s\nwant %s", slices.Sorted(names(c.src)), got, c.want)
		}
	}
}

// What an install command leaves lies in the build cache unless a setting moves it.
func TestInstallInputs_KnowWhatLiesInTheBuildCache(t *testing.T) {
	const mvn = "mvn dependency:resolve"
	for i, c := range []struct {
		runtime, command, env string
		src                   fstest.MapFS
		cached                bool
	}{
		{"java", mvn, "", files("pom.xml: "), true},
		{"java", mvn, "MAVEN_OPTS=-Xmx1g", files("pom.xml: "), false},
		{"java", mvn, "MAVEN_ARGS=-Dmaven.repo.local=/home/app/m2", files("pom.xml: "), false},
		{"java", mvn, "MAVEN_ARGS=-e", files("pom.xml: "), true},
		{"java", mvn, "", files("pom.xml: ", ".mvn/maven.config: -Dmaven.repo.local=.m2"), false},
		{"java", "./gradlew dependencies", "", files("build.gradle: ", "gradlew: "), false},
		{"go", "go mod download", "", files("go.mod: module x\nrequire example.com/y v1.0.0", "go.sum: "), true},
		{"go", "go mod download", "GOFLAGS=-v", files("go.mod: module x\nrequire example.com/y v1.0.0", "go.sum: "), true},
		{"go", "go mod download", "GOMODCACHE=/home/app/mod", files("go.mod: module x\nrequire example.com/y v1.0.0", "go.sum: "), false},
	} {
		d, _ := Lookup(c.runtime)
		name, value, _ := strings.Cut(c.env, "=")
		in := d.InstallInputs(c.src, ".", c.command, "", map[string]string{name: value})
		if in.Cached != c.cached || in.Whole != "" {
			t.Errorf("%d: %+v", i, in)
		}
	}
}

func TestInstallInputs_OfAnotherCommandAreTheWholeSource(t *testing.T) {
	node, _ := Lookup("node")
	src := files(express, npmLock(""))
	for _, command := range []string{"npm ci && node setup.js", "npm install", "make", "npm ci "} {
		if got := node.InstallInputs(src, ".", command, "", nil); got.Whole != "install is a command of the project's own" || got.Files != nil {
			t.Errorf("%s: %+v", command, got)
		}
	}
	static, _ := Lookup("static")
	if got := static.InstallInputs(src, ".", "", "", nil); got.Whole == "" {
		t.Errorf("%+v", got)
	}
}

func TestInstallInputs_HeedVariablesThatNameFiles(t *testing.T) {
	for _, c := range []inputsCase{
		{env: "NODE_OPTIONS=--max-old-space-size=4096", want: ""},
		{env: "NODE_OPTIONS=--import=./tracing.js", want: "NODE_OPTIONS"},
		{env: "NODE_OPTIONS=--env-file settings", want: "NODE_OPTIONS"},
		{env: "npm_config_userconfig=/app/api/settings", want: "npm_config_userconfig"},
		{env: "NODE_ENV=production", want: ""},
		{env: "DATABASE_URL=file:./dev.db", want: ""},
		{env: "HOME=/app", want: "HOME"},
		{env: "PATH=/app/bin:/usr/bin", want: "PATH"},
		{env: "NPM_TOKEN=a/b+c", want: ""},
	} {
		if c.want == "" {
			c.want = "package-lock.json* package.json"
		} else {
			c.want = "!the variable " + c.want + " may name a file of the source"
		}
		c.src = files(express, npmLock(""), "settings: ")
		c.check(t, "node")
	}
}

func TestInstallInputs_KeepControlCharactersOutOfReasons(t *testing.T) {
	node, _ := Lookup("node")
	src := files(`package.json: {"workspaces": ["*"]}`, "a\n== build ok/package.json: {")
	if got := node.InstallInputs(src, ".", "npm install", "", nil); strings.ContainsAny(got.Whole, "\n") || !strings.Contains(got.Whole, "a?== build ok") {
		t.Errorf("%q", got.Whole)
	}
}

func TestRelative(t *testing.T) {
	for _, c := range []struct{ folder, name, want string }{
		{".", "a/b", "a/b"},
		{"a", "a/b", "b"},
		{"a/b", "a/c", "../c"},
		{"a/b", "c", "../../c"},
		{"a", "ab/c", "../ab/c"},
	} {
		if got := Relative(c.folder, c.name); got != c.want {
			t.Errorf("Relative(%q, %q) = %q, want %q", c.folder, c.name, got, c.want)
		}
	}
}
