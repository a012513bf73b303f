package runtimes

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
)

func TestNode_InstallsWithTheManagerOfTheLockFile(t *testing.T) {
	const pnpmFlags = " --prod=false --store-dir=/cache/pnpm --package-import-method=copy --config.confirm-modules-purge=false"
	const yarnFlags = " --production=false --cache-folder /cache/yarn"
	for _, c := range []struct {
		packageManager string
		lock           string
		install, build string
	}{
		{"", "", "npm install", "npm run build"},
		{"", `package-lock.json: {"packages": {"": {"dependencies": {"a": "1"}}}}`, "npm ci", "npm run build"},
		{"", `npm-shrinkwrap.json: {"lockfileVersion": 3, "x": [1, {"y": []}], "packages": {"node_modules/a": {}, "": {"dependencies": {"a": "1"}}}}`, "npm ci", "npm run build"},
		{"", `package-lock.json: {"packages": {"": {"dependencies": {"a": "2"}}}}`, "npm install", "npm run build"},
		{"", `package-lock.json: {"packages": {"": {"dependencies": {"a": "1"}, "devDependencies": {"b": "1"}}}}`, "npm install", "npm run build"},
		{"", `package-lock.json: {"lockfileVersion": 1, "dependencies": {}}`, "npm install", "npm run build"},
		{"", `package-lock.json: {"packages": `, "npm install", "npm run build"},
		{"", "bun.lock: {}", "npm install", "npm run build"},
		{"pnpm@10.1.0", "", "pnpm install" + pnpmFlags, "pnpm run build"},
		{"", "pnpm-lock.yaml: lockfileVersion: '9.0'\n", "pnpm install --frozen-lockfile" + pnpmFlags, "pnpm run build"},
		{"", "pnpm-lock.yaml: lockfileVersion: 5.4\n", "pnpm install --no-frozen-lockfile" + pnpmFlags, "pnpm run build"},
		{"", "yarn.lock: # yarn lockfile v1\n", "yarn install" + yarnFlags + " --frozen-lockfile", "yarn run build"},
		{"yarn@1.22.22", "", "yarn install" + yarnFlags, "yarn run build"},
		{"", "yarn.lock: __metadata:\n  version: 8\n", "yarn install --immutable", "yarn run build"},
		{"", "yarn.lock: __metadata:\n  version: 6\n", "yarn install --no-immutable", "yarn run build"},
		{"yarn@3.8.0", "yarn.lock: __metadata:\n  version: 6\n", "yarn install --immutable", "yarn run build"},
		{"yarn@4.9.0", "", "yarn install --no-immutable", "yarn run build"},
		{"yarn@4.9.0", `package-lock.json: {"packages": {"": {"dependencies": {"a": "1"}}}}`, "npm ci", "npm run build"},
	} {
		src := files(fmt.Sprintf(`package.json: {"packageManager": %q, "scripts": {"build": "x", "start": "y"}, "dependencies": {"a": "1"}}`, c.packageManager), c.lock)
		if c.lock == "" {
			delete(src, "")
		}
		plan, ok := detectNode(src)
		if !ok || plan.Install.Line != c.install || plan.Build.Line != c.build {
			t.Errorf("%s %.60s: %q, %q", c.packageManager, c.lock, plan.Install.Line, plan.Build.Line)
		}
	}
}

func TestNode_Starts(t *testing.T) {
	for _, c := range []struct{ pkg, file, want string }{
		{`{"scripts": {"start": "node --no-warnings server.js --port 1"}}`, "", "node --no-warnings server.js --port 1"},
		{`{"scripts": {"start": "node a.js && node b.js"}}`, "", "npm start"},
		{`{"scripts": {"start": "node a.js", "poststart": "x"}}`, "", "npm start"},
		{`{"scripts": {"start": "node $npm_package_main"}}`, "", "npm start"},
		{`{"scripts": {"start": "next start"}}`, "", "npm start"},
		{`{"dependencies": {"next": "16"}}`, "", "next start"},
		{`{"dependencies": {"nuxt": "4"}, "scripts": {"build": "nuxt build"}}`, "", "node .output/server/index.mjs"},
		{`{"devDependencies": {"@sveltejs/kit": "2", "vite": "7", "@sveltejs/adapter-node": "5"}, "scripts": {"build": "vite build"}}`, "", "node build"},
		{`{"main": "lib/a b.js"}`, "lib/a b.js", "node 'lib/a b.js'"},
		{`{"main": "../x.js"}`, "index.js", "node index.js"},
		{`{"main": "missing.js"}`, "src/index.ts", "node src/index.ts"},
		{`{"main": "data.json"}`, "data.json", ""},
		{`{"scripts": [], "main": 1, "dependencies": "x"}`, "app.mjs", "node app.mjs"},
	} {
		plan, _ := detectNode(files("package.json: "+c.pkg, c.file+": "))
		if plan.Start.Line != c.want || plan.Static || c.want == "" && plan.Hint == "" {
			t.Errorf("%s: %+v, want %q", c.pkg, plan.Start, c.want)
		}
	}
}

func TestNode_BuildsSites(t *testing.T) {
	site := func(scripts, dependencies string, more ...string) fstest.MapFS {
		return files(append(more, fmt.Sprintf(`package.json: {"scripts": {%s}, "devDependencies": {%s}}`, scripts, dependencies))...)
	}
	const build = `"build": "x build"`
	for i, c := range []struct {
		src     fstest.MapFS
		static  bool
		publish string
	}{
		{site(build, `"vite": "7"`), true, "dist"},
		{site(build, `"vite": "7"`, "vite.config.ts: build: { outDir: outputs() }"), true, ""},
		{site(build, `"vite": "7"`, "vite.config.ts: build: { outDir: '../out' }"), true, ""},
		{site(build, `"vite": "7"`, "vite.config.mjs: build: { outDir: \"www/app\" }"), true, "www/app"},
		{site(`"build": "vite build --outDir x"`, `"vite": "7"`), true, ""},
		{site(`"dev": "vite"`, `"vite": "7"`), false, ""},
		{site(build+`, "start": "vite --host"`, `"vite": "7"`), true, "dist"},
		{site(build+`, "start": "serve -s dist"`, `"vite": "7"`), true, "dist"},
		{site(build+`, "start": "npm run preview"`, `"vite": "7"`), true, "dist"},
		{site(build+`, "start": "node server"`, `"vite": "7"`), false, ""},
		{site(build, `"vite": "7", "express": "5"`, "server.js: "), false, ""},
		{site(build, `"vite": "7", "@sveltejs/kit": "2"`), false, ""},
		{site(build, `"vite": "7", "@sveltejs/kit": "2", "@sveltejs/adapter-static": "3"`), true, "build"},
		{site(build+`, "start": "react-scripts start"`, `"react-scripts": "5"`), true, "build"},
		{site(build+`, "start": "cross-env PORT=3 react-scripts start"`, `"react-scripts": "5"`), true, "build"},
		{site(build, `"@docusaurus/core": "3"`), true, "build"},
		{site(build, `"astro": "5"`), true, "dist"},
		{site(build, `"astro": "5", "@astrojs/node": "9"`), false, ""},
		{site(build, `"@11ty/eleventy": "3"`), true, "_site"},
		{site(build, `"vitepress": "1"`), true, ""},
		{site(build, `"@angular/core": "20"`, `angular.json: {"projects": {"a": {"build": {"options": {"outputPath": "dist/b"}}}}}`), true, "dist/b"},
		{site(build, `"@angular/core": "20", "@angular/ssr": "20"`), false, ""},
		{site(`"build": "webpack"`, `"webpack": "5"`), true, ""},
		{site(`"build": "tsc"`, `"webpack": "5"`), false, ""},
		{site(`"build": "esbuild a.ts"`, `"esbuild": "1", "fastify": "5"`), false, ""},
		{site(`"build": "nuxt generate"`, `"nuxt": "4"`), true, ".output/public"},
		{site(build, `"next": "16"`, "next.config.js: // output: 'export'"), false, ""},
		{site(build, `"next": "16"`, "next.config.ts: const c = { output: \"export\" }"), true, "out"},
	} {
		plan, _ := detectNode(c.src)
		if plan.Static != c.static || plan.Publish.Line != c.publish {
			t.Errorf("%d %s: %+v", i, c.src["package.json"].Data, plan)
		}
	}
}

func TestNode_BuildsReactScriptsWithoutAPublicURL(t *testing.T) {
	for dependencies, want := range map[string]string{
		`"dependencies": {"react-scripts": "5"}`:                                              "map[PUBLIC_URL:]",
		`"devDependencies": {"react-scripts": "5"}, "scripts": {"start": "serve -s build"}`:   "map[PUBLIC_URL:]",
		`"dependencies": {"react": "19", "vite": "7"}`:                                        "map[]",
		`"dependencies": {"@docusaurus/core": "3"}, "scripts": {"build": "docusaurus build"}`: "map[]",
	} {
		plan, _ := detectNode(files("package.json: {" + dependencies + "}"))
		if got := fmt.Sprint(plan.BuildEnv); got != want {
			t.Errorf("%s: %s, want %s", dependencies, got, want)
		}
	}
}

func TestNode_SaysThatItsPackageIsBroken(t *testing.T) {
	for _, broken := range []string{`{"scripts": {"start": "node s.js",}}`, `{"name": "x",`, `[]`} {
		plan, ok := detectNode(files("package.json: "+broken, "server.js: x"))
		if !ok || plan.Start.Line != "" || !strings.Contains(plan.Hint, "package.json is not valid JSON") {
			t.Errorf("%s: %+v, %v", broken, plan, ok)
		}
	}
}

func TestNode_ReadsItsVersionFromTheFirstSourceThatSaysOne(t *testing.T) {
	for _, c := range []struct {
		src  fstest.MapFS
		want string
	}{
		{files(`package.json: {"engines": {"node": "24"}}`, ".nvmrc: 22"), "24 package.json engines.node"},
		{files(`package.json: {"engines": {"node": "what"}}`, ".nvmrc: # old\n v24.1\n"), "24 .nvmrc"},
		{files(`package.json: {"engines": [">=1"]}`, ".node-version: 24.0.0", ".tool-versions: nodejs 22"), "24 .node-version"},
		{files("server.js: ", ".tool-versions: ruby 3\nnodejs 24.1 22.0\n"), "24 .tool-versions"},
		{files("package.json: {}", ".nvmrc: lts/Krypton"), "24 .nvmrc"},
		{files("package.json: {}", ".nvmrc: lts/*"), "22 .nvmrc"},
		{files("package.json: {}"), " "},
	} {
		plan, _ := detectNode(c.src)
		if got := plan.Version + " " + plan.VersionFrom; got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

func TestNode_ReadsALockOfAnySizeInPieces(t *testing.T) {
	big := strings.Repeat(`"node_modules/x": {"version": "1"}, `, 100_000)
	src := files(`package.json: {"dependencies": {"a": "1"}}`,
		`package-lock.json: {"packages": {"": {"dependencies": {"a": "1"}}, `+big+`"z": {}}}`)
	if plan, _ := detectNode(src); plan.Install.Line != "npm ci" {
		t.Errorf("%+v", plan.Install)
	}
	late := files(`package.json: {"dependencies": {"a": "1"}}`,
		`package-lock.json: {"pad": "`+strings.Repeat("x", maxLock)+`", "packages": {"": {"dependencies": {"a": "1"}}}}`)
	if plan, _ := detectNode(late); plan.Install.Line != "npm install" {
		t.Errorf("%+v", plan.Install)
	}
}
