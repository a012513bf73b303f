package runtimes

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// packageSettings matches variables of Node.js and its package managers.
var packageSettings = regexp.MustCompile(`(?i)^(NODE_|NPM_|YARN_|PNPM_|COREPACK_|BUN_)`)

// packageFiles are what package managers read in the folder of a package, or above it.
var packageFiles = []string{
	"package.json", "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "pnpm-workspace.yaml",
	"bun.lock", "bun.lockb", "bunfig.toml",
	".npmrc", ".yarnrc", ".yarnrc.yml", ".yarnclean", ".env.yarn", ".pnp.cjs", ".pnp.loader.mjs",
}

// packageInputs collects what npm, pnpm, yarn and bun read: the files of the package,
// those of the folders above it, and in a workspace those of all its packages.
func packageInputs(in *inputs) {
	top := ""
	for dir := range in.upward() {
		in.addPackage(dir)
		if in.has(dir, "pnpm-workspace.yaml") || readManifest(in, dir).fields["workspaces"] != nil {
			top = dir
		}
	}
	folders := []string{in.dir}
	if top != "" {
		folders = in.below(top, "package.json")
	}
	for _, dir := range folders {
		in.addPackage(dir)
		in.checkPackage(dir, dir != in.dir && dir != top)
	}
	in.checkManagers()
	in.checkScripts(cmp.Or(top, in.dir))
}

// addPackage adds the files of one folder.
func (in *inputs) addPackage(dir string) {
	in.add(dir, packageFiles...)
	for _, folder := range []string{"patches", ".yarn/patches", ".yarn/plugins", ".yarn/releases"} {
		in.addTree(path.Join(dir, folder))
	}
	in.forbid(dir, "node_modules", ".yarn/cache", ".yarn/unplugged", ".pnp")
	for _, name := range []string{".pnpmfile.cjs", ".pnpmfile.mjs"} {
		if in.has(dir, name) {
			in.doubt("%s may read other files", in.relative(path.Join(dir, name)))
		}
	}
}

// packageManifest is a package.json of the source.
type packageManifest struct {
	name    string // its path as the service's folder sees it
	fields  map[string]json.RawMessage
	scripts map[string]string
}

func readManifest(in *inputs, dir string) packageManifest {
	name := path.Join(dir, "package.json")
	m := packageManifest{name: in.relative(name)}
	data, ok := read(in.src, name)
	if ok = ok && json.Unmarshal(bytes.TrimPrefix(data, []byte("\ufeff")), &m.fields) == nil; !ok && in.has(dir, "package.json") {
		in.doubt("%s cannot be read", m.name)
	}
	_ = json.Unmarshal(m.fields["scripts"], &m.scripts) // a script that is not a text is not run
	return m
}

// lifecycle are the scripts that an install runs.
var lifecycle = []string{
	"preinstall", "install", "postinstall", "prepublish", "preprepare", "prepare", "postprepare",
	"predependencies", "dependencies", "postdependencies", "pnpm:devPreinstall",
}

// knownScripts matches lifecycle scripts that read nothing but what is added anyway:
// patch-package reads patches, and husky does nothing outside of a Git repository.
var knownScripts = regexp.MustCompile(`^(?:(?:npx|pnpx|bunx)(?: -y| --yes)? )?(?:patch-package|only-allow (?:npm|pnpm|yarn|bun)|husky(?: install)?(?: \|\| (?:true|exit 0))?)$`)

// checkPackage doubts if a package may read other files when it is installed. A member
// of a workspace is linked into node_modules, with its programs.
func (in *inputs) checkPackage(dir string, member bool) {
	m := readManifest(in, dir)
	for _, name := range lifecycle {
		script := strings.TrimSpace(m.scripts[name])
		if script != "" && (!knownScripts.MatchString(script) || strings.Contains(script, "husky") && in.repository()) {
			in.doubt("%s has %s script", m.name, article(name))
		}
	}
	if in.has(dir, "binding.gyp") {
		in.doubt("%s is built on installation", in.relative(path.Join(dir, "binding.gyp")))
	}
	if member && (m.fields["bin"] != nil || m.fields["directories"] != nil) {
		in.doubt("%s has programs of its own", m.name)
	}
	for _, field := range dependencyFields {
		in.checkVersions(dir, m.name, string(m.fields[field]))
	}
}

func article(word string) string {
	if strings.ContainsAny(word[:1], "aeiou") {
		return "an " + word
	}
	return "a " + word
}

// dependencyFields are the fields of a package.json that name versions of packages.
var dependencyFields = []string{
	"dependencies", "devDependencies", "optionalDependencies", "peerDependencies",
	"overrides", "resolutions", "pnpm", "workspaces", "catalog", "catalogs", "patchedDependencies",
}

// checkVersions adds the patches that a field of a package.json names, and doubts if a
// version is a path.
func (in *inputs) checkVersions(dir, name, field string) {
	for _, patch := range patchFile.FindAllStringSubmatch(field, -1) {
		if !in.addNamed(dir, patch[1]) {
			in.doubt("%s names a patch outside of the source", name)
		}
	}
	for _, patch := range yarnPatch.FindAllString(field, -1) {
		if !strings.Contains(patch, "builtin<") && !strings.Contains(patch, ".yarn/patches/") {
			in.doubt("%s names a patch", name)
		}
	}
	field = patchFile.ReplaceAllString(yarnPatch.ReplaceAllString(field, ""), "")
	if localPackage.MatchString(field) {
		in.doubt("%s depends on a path", name)
	}
}

// repository reports whether the service's folder is part of a Git repository.
func (in *inputs) repository() bool {
	for dir := range in.upward() {
		if in.has(dir, ".git") {
			return true
		}
	}
	return false
}

var (
	// localPackage matches a version that is a path.
	localPackage = regexp.MustCompile(`:\s*"(?:(?:npm:)?(?:file|git\+file|link|portal|exec):|\.{1,2}(?:/|")|~?/|[^":/]+\.(?:tgz|tar\.gz|tar)")`)
	patchFile    = regexp.MustCompile(`"([^":]+\.(?:patch|diff))"`)
	yarnPatch    = regexp.MustCompile(`"patch:[^"]*"`)
)

var (
	// fileSettings matches settings of .npmrc that name files or folders.
	fileSettings = regexp.MustCompile(`(?im)^\s*(?:\S+:)?((?:[\w-]*-)?(?:cafile|certfile|keyfile|pnpmfile|path|dir|prefix|options|shell|config|cache|git))\s*=`)
	// yarnSettings does the same for .yarnrc.yml, and yarnOneSettings for .yarnrc.
	yarnSettings    = regexp.MustCompile(`(?m)^\s*-?\s*["']?(\w*(?:Path|Folder|Files?|Filename)|enableConstraintsChecks|injectEnvironmentFiles)["']?\s*:`)
	yarnOneSettings = regexp.MustCompile(`(?m)^\s*"?((?:--[\w.]+\.)?[\w-]*(?:mirror|folder|path|cafile|prefix|filename))"?\s`)
	yarnOwnPath     = regexp.MustCompile(`(?m)^\s*(?:yarnPath:|"?yarn-path"?|-?\s*path:)\s*["']?(?:\./)?\.yarn/(?:releases|plugins)/\S+\s*$`)
	pnpmSettings    = regexp.MustCompile(`(?m)^\s*["']?(\w*(?:Dir|Path|[fF]ile)|pnpmfile)["']?\s*:`)
	localEntry      = regexp.MustCompile(`(?m):\s*["']?(?:file|link|portal):`)
	patchEntry      = regexp.MustCompile(`(?m):\s*["']?([^\s"':]+\.(?:patch|diff))\b`)
)

// checkManagers doubts if the settings of a package manager name other files.
func (in *inputs) checkManagers() {
	for _, name := range slices.Sorted(maps.Keys(in.files)) {
		text := in.text(".", name)
		var setting string
		switch path.Base(name) {
		case ".npmrc":
			setting = group(fileSettings, text)
		case ".yarnrc.yml":
			setting = group(yarnSettings, yarnOwnPath.ReplaceAllString(text, ""))
		case ".yarnrc":
			setting = group(yarnOneSettings, yarnOwnPath.ReplaceAllString(text, ""))
		case "pnpm-workspace.yaml":
			setting = group(pnpmSettings, text)
			in.checkPnpmWorkspace(name, text)
		}
		if setting != "" {
			in.doubt("%s sets %s", in.relative(name), setting)
		}
	}
}

func (in *inputs) checkPnpmWorkspace(name, text string) {
	if localEntry.MatchString(text) {
		in.doubt("%s depends on a path", in.relative(name))
	}
	for _, patch := range patchEntry.FindAllStringSubmatch(text, -1) {
		if !in.addNamed(path.Dir(name), patch[1]) {
			in.doubt("%s names a patch outside of the source", in.relative(name))
		}
	}
}
