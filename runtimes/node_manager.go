package runtimes

import (
	"cmp"
	"encoding/json"
	"io"
	"io/fs"
	"maps"
	"regexp"
	"strings"
)

// manager is the package manager of a project, and what runs its files.
type manager struct {
	program   string   // runs a file
	entries   []string // files that programs begin in, most telling first
	install   Command
	build     string // runs scripts.build
	start     string // runs scripts.start
	plugnplay bool   // programs find their packages only through the manager
}

// findManager returns the manager whose lock file the project has, else the one that
// package.json names, else npm. npm ignores Bun's lock file.
func findManager(src fs.FS, pkg packageJSON) manager {
	var m manager
	named, _, _ := strings.Cut(pkg.PackageManager, "@")
	switch {
	case isFile(src, "pnpm-lock.yaml"), named == "pnpm" && firstFile(src, npmLocks...) == "" && !isFile(src, "yarn.lock"):
		m = pnpm(src)
	case isFile(src, "yarn.lock"), named == "yarn" && firstFile(src, npmLocks...) == "":
		m = yarn(src, pkg)
	default:
		m = npm(src, pkg)
	}
	m.program, m.entries = "node", nodeEntries
	return m
}

var npmLocks = []string{"npm-shrinkwrap.json", "package-lock.json"}

func npm(src fs.FS, pkg packageJSON) manager {
	m := manager{build: "npm run build", start: "npm start"}
	lock := firstFile(src, npmLocks...)
	switch {
	case lock != "" && lockMatches(src, lock, pkg):
		m.install = Command{"npm ci", lock}
	case lock != "":
		m.install = Command{"npm install", lock + ", which does not match package.json"}
	case firstFile(src, bunLocks...) != "":
		m.install = Command{"npm install", "package.json; npm does not read " + firstFile(src, bunLocks...)}
	default:
		m.install = Command{"npm install", "package.json"}
	}
	return m
}

// pnpm makes pnpm copy packages out of its store: the store is on the cache volume,
// which the running service does not see.
func pnpm(src fs.FS) manager {
	m := manager{build: "pnpm run build", start: "pnpm start"}
	m.install = Command{"pnpm install", "package.json packageManager"}
	if lock := readHead(src, "pnpm-lock.yaml"); lock != "" {
		m.install.From = "pnpm-lock.yaml"
		if pnpmLock.MatchString(lock) {
			m.install.Line += " --frozen-lockfile"
		} else {
			m.install.Line += " --no-frozen-lockfile"
		}
	}
	m.install.Line += " --prod=false --store-dir=/cache/pnpm --package-import-method=copy --config.confirm-modules-purge=false"
	return m
}

// pnpmLock matches a lock file in the format of the image's pnpm.
var pnpmLock = regexp.MustCompile(`(?m)^lockfileVersion: *['"]?9`)

// yarn distinguishes yarn 1 from the later versions ("berry"), which share only the
// name.
func yarn(src fs.FS, pkg packageJSON) manager {
	m := manager{build: "yarn run build", start: "yarn start"}
	lock := readHead(src, "yarn.lock")
	from := cmp.Or(firstFile(src, "yarn.lock"), "package.json packageManager")
	rc := readHead(src, ".yarnrc.yml")
	if !isBerry(lock, pkg.PackageManager) {
		line := "yarn install --production=false --cache-folder /cache/yarn"
		if lock != "" {
			line += " --frozen-lockfile"
		}
		m.install = Command{line, from}
		return m
	}
	m.plugnplay = !nodeModules.MatchString(rc)
	m.install = Command{"yarn install", from}
	if berryLock.MatchString(lock) || lock != "" && (yarnPath.MatchString(rc) || pkg.PackageManager != "") {
		m.install.Line += " --immutable"
	} else {
		m.install.Line += " --no-immutable"
	}
	return m
}

var (
	yarnOne     = regexp.MustCompile(`^yarn@[01]\.`)
	nodeModules = regexp.MustCompile(`(?m)^nodeLinker: *["']?(node-modules|pnpm)`)
	yarnPath    = regexp.MustCompile(`(?m)^yarnPath:`)
	berryLock   = regexp.MustCompile(`(?m)^__metadata:\n +version: *["']?([89]|\d\d)`)
)

func isBerry(lock, named string) bool {
	if strings.HasPrefix(named, "yarn@") {
		return !yarnOne.MatchString(named)
	}
	return strings.HasPrefix(lock, "__metadata:") || strings.Contains(lock, "\n__metadata:")
}

// lockMatches reports whether an npm lock file was made from this package.json, as npm
// ci requires.
func lockMatches(src fs.FS, name string, pkg packageJSON) bool {
	f, err := src.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	var locked dependencies
	d := json.NewDecoder(io.LimitReader(f, maxLock))
	if !seek(d, "packages") || !seek(d, "") || d.Decode(&locked) != nil {
		return false
	}
	want := pkg.dependencies
	return maps.Equal(locked.Dependencies, want.Dependencies) &&
		maps.Equal(locked.DevDependencies, want.DevDependencies) &&
		maps.Equal(locked.OptionalDependencies, want.OptionalDependencies)
}

// seek reads into an object up to the value of a key.
func seek(d *json.Decoder, key string) bool {
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return false
	}
	for d.More() {
		got, err := d.Token()
		if err != nil {
			return false
		}
		if got == key {
			return true
		}
		var skipped json.RawMessage
		if d.Decode(&skipped) != nil {
			return false
		}
	}
	return false
}

// maxLock limits what is read of an npm lock file, in bytes.
const maxLock = 32 << 20
