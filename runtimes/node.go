package runtimes

import (
	"io/fs"
	"path"
	"slices"
	"strings"
)

var node = Definition{
	Name:     "node",
	Shows:    "`package.json`, or a file such as `server.js`; with a `build` script of Vite or the like and nothing to start, a static site",
	Versions: []string{"22", "24"},
	Default:  "22",
	Aliases:  []string{"nodejs", "javascript", "js", "typescript", "ts"},
	Example:  "node server.js",
	sites:    true,
	Caches:   packageCaches,
	Marks:    packageMarks,
	programs: []string{"node", "npm", "npx", "yarn", "pnpm", "next", "nuxt", "tsx", "ts-node"},
	inputs:   packageInputs,
	settings: packageSettings,
	path:     []string{"node_modules/.bin"},
	Env: map[string]string{
		"NODE_ENV":                   "production",
		"NPM_CONFIG_UPDATE_NOTIFIER": "false",
		"NEXT_TELEMETRY_DISABLED":    "1",
	},
	// NODE_ENV is not among these, and npm is told to install devDependencies
	// even where the service's own env sets it: a build needs them. Yarn 2 and
	// newer keeps its packages in the project, where a plug'n'play program
	// reads them, so the cache must not be global.
	buildEnv: map[string]string{
		"NPM_CONFIG_CACHE":           "/cache/npm",
		"TURBO_CACHE_DIR":            "/cache/turbo",
		"NPM_CONFIG_INCLUDE":         "dev",
		"NPM_CONFIG_AUDIT":           "false",
		"NPM_CONFIG_FUND":            "false",
		"NPM_CONFIG_UPDATE_NOTIFIER": "false",
		"YARN_ENABLE_GLOBAL_CACHE":   "false",
		"YARN_ENABLE_TELEMETRY":      "0",
		"NEXT_TELEMETRY_DISABLED":    "1",
		"ASTRO_TELEMETRY_DISABLED":   "1",
		"NG_CLI_ANALYTICS":           "false",
	},
}

func detectNode(src fs.FS) (Plan, bool) {
	pkg, ok := readPackage(src)
	if pkg.fault != "" {
		return Plan{From: "package.json", Hint: pkg.fault}, true
	}
	if !ok {
		return detectNodeFile(src)
	}
	p := planPackage(src, pkg, findManager(src, pkg))
	p.Version, p.VersionFrom = nodeVersion(src, pkg)
	// A page beside a package.json that neither builds nor starts is a site
	// with development tools.
	return p, p.runs() || !isFile(src, indexPage)
}

// planPackage returns the plan of a folder with a package.json.
func planPackage(src fs.FS, pkg packageJSON, m manager) Plan {
	p := Plan{From: "package.json"}
	if pkg.Name != "" {
		p.Name = path.Base(pkg.Name)
	}
	if pkg.installs() {
		p.Install = m.install
	}
	if pkg.has("react-scripts") {
		// Its build puts PUBLIC_URL before the address of every asset, and browsers
		// load fonts from no other host than the page's.
		p.BuildEnv = map[string]string{"PUBLIC_URL": ""}
	}
	if pkg.Scripts["build"] != "" {
		p.Build = Command{m.build, "package.json scripts.build"}
	}
	if site, ok := findSite(src, pkg); ok {
		p.Static = true
		p.Publish = site
		p.From = site.From
		p.Hint = "its package.json makes a site, which a static service serves"
		return p
	}
	p.Start = findStart(src, pkg, m)
	if p.Start.Line == "" {
		p.Hint = startHint(pkg)
	}
	return p
}

// detectNodeFile detects a folder with a program and no package.json.
func detectNodeFile(src fs.FS) (Plan, bool) {
	p := Plan{Hint: "it has no package.json"}
	p.Version, p.VersionFrom = nodeVersion(src, packageJSON{})
	entry := firstFile(src, nodeEntries...)
	if entry == "" {
		return p, false
	}
	p.From = entry
	p.Start = Command{"node " + entry, entry}
	return p, strings.HasPrefix(entry, "server.") || !isFile(src, indexPage)
}

func nodeVersion(src fs.FS, pkg packageJSON) (string, string) {
	sources := []source{
		{pkg.Engines.Node, "package.json engines.node"},
		{firstLine(src, ".nvmrc"), ".nvmrc"},
		{firstLine(src, ".node-version"), ".node-version"},
		{toolVersion(src, "nodejs", "node"), ".tool-versions"},
	}
	for i := range sources {
		if r, ok := nodeNames[strings.ToLower(sources[i].asked)]; ok {
			sources[i].asked = r
		}
	}
	return node.firstVersion(sources...)
}

// nodeNames maps names in version files to releases.
var nodeNames = map[string]string{
	"node": "*", "latest": "*", "current": "*", "stable": "*", "lts": "*", "lts/*": "*",
	"lts/hydrogen": "18", "lts/iron": "20", "lts/jod": "22", "lts/krypton": "24",
}

// nodeEntries are the files in which programs begin, the most telling first.
var nodeEntries = []string{
	"server.js", "server.mjs", "server.cjs", "app.js", "app.mjs", "index.js", "index.mjs", "index.cjs", "main.js", "main.mjs",
	"src/server.js", "src/app.js", "src/index.js", "src/main.js",
	"server.ts", "app.ts", "index.ts", "main.ts", "src/server.ts", "src/index.ts", "src/main.ts",
}

// runs reports whether there is something to build or to start.
func (p Plan) runs() bool { return p.Static || p.Start.Line != "" || p.Build.Line != "" }

// findStart finds what runs a server: package.json's start, what its
// framework's build leaves, its main file, or a file of the usual name.
func findStart(src fs.FS, pkg packageJSON, m manager) Command {
	if start := pkg.Scripts["start"]; start != "" {
		return Command{startLine(pkg, m), "package.json scripts.start"}
	}
	for _, f := range servers {
		if pkg.has(f.dependency) {
			start := f.start
			if file, ok := strings.CutPrefix(start, "node "); ok {
				start = m.program + " " + file
			}
			return Command{start, "package.json dependency " + f.dependency}
		}
	}
	if main := path.Clean(pkg.Main); pkg.Main != "" && isFile(src, main) && isScript(main) {
		return Command{m.program + " " + word(main), "package.json main"}
	}
	if entry := firstFile(src, m.entries...); entry != "" {
		return Command{m.program + " " + entry, entry}
	}
	return Command{}
}

// servers are frameworks whose build has its own start command.
var servers = []struct{ dependency, start string }{
	{"next", "next start"},
	{"nuxt", "node .output/server/index.mjs"},
	{"@sveltejs/adapter-node", "node build"},
	{"@astrojs/node", "node dist/server/entry.mjs"},
	{"@nestjs/core", "node dist/main"},
	{"@remix-run/serve", "remix-serve build/server/index.js"},
	{"@react-router/serve", "react-router-serve build/server/index.js"},
}

// startLine runs the start script: directly if it is a single command of node or bun,
// so that signals reach the program, else through the package manager.
func startLine(pkg packageJSON, m manager) string {
	start := strings.TrimSpace(pkg.Scripts["start"])
	wrapped := pkg.Scripts["prestart"] != "" || pkg.Scripts["poststart"] != ""
	program, _, _ := strings.Cut(start, " ")
	direct := program == "node" || strings.HasPrefix(m.program, program+" ")
	if direct && !wrapped && !m.plugnplay && !strings.ContainsAny(start, "&|;<>$`\n") {
		return start
	}
	return m.start
}

func isScript(name string) bool {
	return slices.Contains([]string{".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".jsx", ".tsx"}, path.Ext(name))
}

func startHint(pkg packageJSON) string {
	switch {
	case pkg.has("@sveltejs/kit"):
		return "a SvelteKit project needs @sveltejs/adapter-node to run, or @sveltejs/adapter-static to become a site"
	case pkg.has("astro"):
		return "an Astro project that renders on the server needs @astrojs/node"
	default:
		return "its package.json has no scripts.start and no main file that exists"
	}
}
