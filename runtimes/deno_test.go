package runtimes

import (
	"encoding/json"
	"testing"
	"testing/fstest"
)

func TestDeno_TakesWhatIsMeantForIt(t *testing.T) {
	const pkg = `package.json: {"scripts": {"start": "node a.js"}}`
	for i, c := range []struct {
		src  fstest.MapFS
		want string
	}{
		{files("deno.json: {}", "main.ts: "), "deno"},
		{files("deno.lock: {}", "main.ts: "), "deno"},
		{files("main.ts: Deno.serve(() => new Response())"), "deno"},
		{files("main.ts: console.log(1)"), "node"},
		{files("main.ts: import { Hono } from 'jsr:@hono/hono'"), "deno"},
		{files("server.ts: import {\n  serve,\n} from \"https://deno.land/std/http/mod.ts\""), "deno"},
		{files("main.js: import 'npm:express'"), "deno"},
		{files("main.ts: import x from 'jsr:@x/y'", `package.json: {"scripts": {"start": "node a.js"}}`), "node"},
		{files("main.js: import x from 'https://esm.sh/x'", "index.html: "), "static"},
		{files("main.js: import x from 'node:fs'\nexport const from = 'https://example.com'"), "node"},
		{files("deno.json: {}", pkg), "node"},
		{files(`deno.jsonc: {"tasks": {"start": "deno run x.ts"}}`, pkg), "deno"},
		{files("deno.json: {}", pkg, "Procfile: web: deno run -A x.ts"), "deno"},
	} {
		if d, _, _ := Detect(c.src); d == nil || d.Name != c.want {
			t.Errorf("%d: %+v, want %s", i, d, c.want)
		}
	}
}

func TestDeno_InstallsBuildsAndStarts(t *testing.T) {
	const listen = "env DENO_SERVE_ADDRESS=tcp:0.0.0.0:$PORT "
	for i, c := range []struct {
		src                   fstest.MapFS
		install, build, start string
	}{
		{files("deno.json: {}", "main.ts: "), "", "", listen + "deno run -A main.ts"},
		{files("deno.json: {}", "main.ts: const SUPPORTED = 1, DB_PORT = 2"), "", "", listen + "deno run -A main.ts"},
		{files("deno.json: {}", "main.ts: Deno.serve({port: Number(Deno.env.get('PORT'))})"), "", "", "deno run -A main.ts"},
		{files("main.ts: import x from \"npm:x\"\nDeno.serve()"), "deno install --entrypoint main.ts", "", listen + "deno run -A main.ts"},
		{files(`deno.json: {"imports": {"x": "jsr:@x/y"}}`, "deno.lock: {}", "src/main.ts: "), "deno install --frozen", "", listen + "deno run -A src/main.ts"},
		{files(`deno.json: {"imports": {"x": "jsr:@x/y"}}`, "server.ts: export default {\n  fetch() {} }"), "deno install", "", listen + "deno serve -A server.ts"},
		{files(`deno.json: {"tasks": {"start": "deno run --allow-net web.ts", "build": "x"}}`, "web.ts: PORT"), "", "deno task build", "deno run --allow-net web.ts"},
		{files(`deno.json: {"tasks": {"start": "deno task build && deno run x.ts"}}`), "", "", listen + "deno task start"},
		{files(`deno.json: {"tasks": {"start": {"command": "deno run x.ts", "dependencies": ["build"]}}}`), "", "", listen + "deno task start"},
		{files("deno.jsonc: {\"tasks\": {\n// how it starts\n\"start\": \"deno run x.ts\",\n}}"), "", "", listen + "deno run x.ts"},
		{files("deno.json: {}", `package.json: {"dependencies": {"x": "1"}, "scripts": {"start": "deno serve --port $PORT x.ts"}}`), "deno install", "", "deno task start"},
		{files(`deno.json: {"tasks": {"build": "x"}}`), "", "deno task build", ""},
		{files(`deno.json: {"tasks": [], "imports": 1}`), "", "", ""},
		{files("deno.json: not JSON"), "", "", ""},
	} {
		plan, _ := detectDeno(c.src)
		if plan.Install.Line != c.install || plan.Build.Line != c.build || plan.Start.Line != c.start || c.start == "" && plan.Hint == "" {
			t.Errorf("%d: %+v", i, plan)
		}
		if plan.Static != (c.build != "" && c.start == "") {
			t.Errorf("%d: static is %v", i, plan.Static)
		}
	}
}

func TestDeno_ReadsItsVersion(t *testing.T) {
	for file, want := range map[string]string{
		".dvmrc: 2.1.0":             "2 .dvmrc",
		".deno-version: v2":         "2 .deno-version",
		".tool-versions: deno 1.46": "2 .tool-versions asks for 1.46, which is not offered; 2 is the nearest",
	} {
		plan, _ := detectDeno(files(file, "main.ts: "))
		if got := plan.Version + " " + plan.VersionFrom; got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
}

func TestPlainJSON(t *testing.T) {
	for text, want := range map[string]string{
		"{\"a\": \"// b\", // c\n\"d\": [1, 2, /* e */ ], }": `{"a":"// b","d":[1,2]}`,
		`{"a": "\"/*", "b": "*/,}"}`:                         `{"a":"\"/*","b":"*/,}"}`,
		"{} // {":                                            `{}`,
	} {
		var v any
		if err := json.Unmarshal(plainJSON([]byte(text)), &v); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if got, _ := json.Marshal(v); string(got) != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}
