package runtimes

import (
	"testing"
	"testing/fstest"
)

func TestBun_TakesWhatIsMeantForIt(t *testing.T) {
	const pkg = `package.json: {"scripts": {"start": "node a.js"}}`
	for i, c := range []struct {
		src  fstest.MapFS
		want string
	}{
		{files(pkg, "bun.lock: {}"), "bun"},
		{files(pkg, "bun.lockb: "), "bun"},
		{files(pkg, "bunfig.toml: "), "bun"},
		{files(pkg, "bun.lock: {}", "package-lock.json: {}"), "node"},
		{files(pkg, "bun.lock: {}", "pnpm-lock.yaml: "), "node"},
		{files(pkg), "node"},
		{files(`package.json: {"packageManager": "bun@1.3.0", "scripts": {"start": "x"}}`, "yarn.lock: "), "bun"},
		{files(`package.json: {"packageManager": "npm@11", "scripts": {"start": "x"}}`, "bun.lock: "), "node"},
		{files(`package.json: {"scripts": {"start": "bun run a.ts"}}`), "bun"},
		{files(`package.json: {"scripts": {"start": "bunyan"}}`), "node"},
		{files(`package.json: {"scripts": {"start": "bunx --bun vite preview"}}`), "bun"},
		{files(`package.json: {"devDependencies": {"@types/bun": "latest"}, "module": "index.ts"}`, "index.ts: "), "bun"},
		{files(`package.json: {"devDependencies": {"bun-types": "1"}, "module": "index.ts"}`, "index.ts: ", "package-lock.json: {}"), "node"},
		{files(`package.json: {"devDependencies": {"@types/bun": "1"}, "scripts": {"start": "node a.js"}}`), "node"},
		{files(`package.json: {"scripts": {"dev": "bun --watch index.ts"}}`, "index.ts: "), "bun"},
		{files(`package.json: {"scripts": {"dev": "bun x", "start": "node a.js"}}`), "node"},
		{files("index.ts: Bun.serve({ fetch() {} })"), "bun"},
		{files("index.ts: Deno()"), "node"},
		{files("package.json: [", "bun.lock: "), "node"},
		{files("package.json: {}", "bun.lock: ", "index.html: "), "static"},
		{files(pkg, "Procfile: web: bun a.ts"), "node"},
		{files(pkg, "Procfile: web: bun a.ts", "bun.lock: "), "bun"},
	} {
		if d, _, _ := Detect(c.src); d == nil || d.Name != c.want {
			t.Errorf("%d: %+v, want %s", i, d, c.want)
		}
	}
}

func TestBun_InstallsBuildsAndStarts(t *testing.T) {
	for i, c := range []struct {
		src                   fstest.MapFS
		install, build, start string
	}{
		{files(`package.json: {"module": "index.ts", "dependencies": {"a": "1"}}`, "bun.lock: ", "index.ts: "), "bun install --frozen-lockfile", "", "bun run index.ts"},
		{files(`package.json: {"dependencies": {"a": "1"}, "scripts": {"build": "x", "start": "y"}}`), "bun install", "bun run build", "bun run start"},
		{files(`package.json: {"scripts": {"start": "bun --smol run a.ts"}}`), "", "", "bun --smol run a.ts"},
		{files(`package.json: {"scripts": {"start": "bun run a && bun run b"}}`), "", "", "bun run start"},
		{files(`package.json: {"dependencies": {"nuxt": "4"}}`, "bun.lockb: "), "bun install --frozen-lockfile", "", "bun run .output/server/index.mjs"},
		{files("package.json: {}", "src/server.ts: "), "", "", "bun run src/server.ts"},
		{files("package.json: {}"), "", "", ""},
		{files("server.ts: "), "", "", "bun run server.ts"},
	} {
		plan, _ := detectBun(c.src)
		if plan.Install.Line != c.install || plan.Build.Line != c.build || plan.Start.Line != c.start || c.start == "" && plan.Hint == "" {
			t.Errorf("%d: %+v", i, plan)
		}
	}
}

func TestBun_BuildsSites(t *testing.T) {
	src := files(`package.json: {"scripts": {"build": "vite build"}, "devDependencies": {"vite": "7"}}`, "bun.lock: ")
	if d, plan := DetectSite(src); d.Name != "bun" || plan.Build.Line != "bun run build" || plan.Publish.Line != "dist" {
		t.Errorf("%s: %+v", d.Name, plan)
	}
	delete(src, "bun.lock")
	if d, _ := DetectSite(src); d.Name != "node" {
		t.Error(d.Name)
	}
}

func TestBun_ReadsItsVersion(t *testing.T) {
	for file, want := range map[string]string{
		".bun-version: 1.2.3":                                     "1 .bun-version",
		".tool-versions: bun 1.1":                                 "1 .tool-versions",
		`package.json: {"engines": {"bun": ">=1.0"}}`:             "1 package.json engines.bun",
		`package.json: {"packageManager": "bun@1.2.19+sha512.x"}`: "1 package.json packageManager",
		".bun-version: 2":                                         "1 .bun-version asks for 2, which is not offered; 1 is the nearest",
	} {
		plan, _ := detectBun(files(file, "index.ts: "))
		if got := plan.Version + " " + plan.VersionFrom; got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
}
