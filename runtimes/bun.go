package runtimes

import (
	"cmp"
	"io/fs"
	"path"
	"strings"
)

var bun = Definition{
	Name:     "bun",
	Shows:    "`bun.lock`, `bun.lockb` or `bunfig.toml` without another lock file; `packageManager: bun`; a `start` script that runs bun; without a `start` script, a `dev` script that runs bun, or Bun's types; a file that calls `Bun.serve`",
	Versions: []string{"1"},
	Default:  "1",
	Aliases:  []string{"bunjs", "oven"},
	Example:  "bun run index.ts",
	sites:    true,
	Caches:   packageCaches,
	Marks:    packageMarks,
	programs: []string{"bun", "bunx"},
	inputs:   bunInputs,
	settings: packageSettings,
	path:     []string{"node_modules/.bin"},
	Env: map[string]string{
		"NODE_ENV":                "production",
		"DO_NOT_TRACK":            "1",
		"NEXT_TELEMETRY_DISABLED": "1",
	},
	buildEnv: map[string]string{
		"BUN_INSTALL_CACHE_DIR":    "/cache/bun",
		"TURBO_CACHE_DIR":          "/cache/turbo",
		"DO_NOT_TRACK":             "1",
		"NEXT_TELEMETRY_DISABLED":  "1",
		"ASTRO_TELEMETRY_DISABLED": "1",
		"NG_CLI_ANALYTICS":         "false",
	},
}

var (
	bunLocks = []string{"bun.lock", "bun.lockb"}
	// bunMarks are files that only Bun reads.
	bunMarks = []string{"bun.lock", "bun.lockb", "bunfig.toml", ".bun-version"}
)

func detectBun(src fs.FS) (Plan, bool) {
	pkg, ok := readPackage(src)
	if pkg.fault != "" {
		return Plan{Hint: pkg.fault}, false // which node says as well
	}
	m := manager{program: "bun run", entries: bunEntries, start: "bun run start", build: "bun run build"}
	m.install = Command{"bun install", "package.json"}
	lock := firstFile(src, bunLocks...)
	if lock != "" {
		m.install = Command{"bun install --frozen-lockfile", lock}
	}
	if pkg.Main == "" {
		pkg.Main = pkg.Module // as bun init writes it
	}
	p := planPackage(src, pkg, m)
	p.Version, p.VersionFrom = bun.firstVersion(
		source{firstLine(src, ".bun-version"), ".bun-version"},
		source{toolVersion(src, "bun"), ".tool-versions"},
		source{pkg.Engines.Bun, "package.json engines.bun"},
		source{strings.TrimPrefix(pkg.PackageManager, "bun@"), "package.json packageManager"},
	)
	if !ok {
		entry := firstFile(src, bunEntries...)
		p.From = cmp.Or(firstFile(src, bunMarks...), entry)
		p.Hint = "it has no package.json and no file of a usual name"
		return p, entry != "" && (p.From != entry || strings.Contains(readHead(src, entry), "Bun.serve("))
	}
	if !p.Static {
		p.From = cmp.Or(lock, p.From)
	}
	return p, isBun(src, pkg) && (p.runs() || !isFile(src, indexPage))
}

// isBun reports whether a project with a package.json uses Bun: it says so itself, or,
// if no other package manager has a lock file, it has a file of Bun's or is developed
// with it.
func isBun(src fs.FS, pkg packageJSON) bool {
	if strings.HasPrefix(pkg.PackageManager, "bun@") || runsBun(pkg.Scripts["start"]) {
		return true
	}
	others := append([]string{"pnpm-lock.yaml", "yarn.lock"}, npmLocks...)
	if pkg.PackageManager != "" || firstFile(src, others...) != "" {
		return false
	}
	typed := pkg.has("@types/bun") || pkg.has("bun-types")
	developed := typed || runsBun(pkg.Scripts["dev"])
	return firstFile(src, bunMarks...) != "" || developed && pkg.Scripts["start"] == ""
}

// runsBun reports whether a script is a command of Bun.
func runsBun(script string) bool {
	program, _, _ := strings.Cut(strings.TrimSpace(script), " ")
	return path.Base(program) == "bun" || path.Base(program) == "bunx"
}

// bunEntries are the files in which programs begin, Bun's own first.
var bunEntries = append([]string{
	"index.ts", "index.tsx", "server.ts", "server.tsx", "main.ts", "app.ts",
	"src/index.ts", "src/index.tsx", "src/server.ts", "src/main.ts", "src/app.ts",
}, nodeEntries...)

// bunInputs collects what package managers read, and the files of variables that Bun
// loads by itself.
func bunInputs(in *inputs) {
	packageInputs(in)
	in.add(in.dir, ".env", ".env.local", ".env.production", ".env.production.local", ".env.development", ".env.development.local", ".env.test", ".env.test.local")
}
