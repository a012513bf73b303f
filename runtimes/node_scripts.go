package runtimes

import (
	"encoding/json"
	"io"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// checkScripts doubts if a dependency has a script that may read the project's files. root
// is the folder with the lock file. Where nothing says which scripts are run, it doubts
// only about the ones known to read; what is installed shows the others.
func (in *inputs) checkScripts(root string) {
	if names, ok := in.scripts(root); ok {
		for _, name := range names {
			if !selfContained[name] {
				in.doubt("%s has an install script", name)
			}
		}
		return
	}
	in.unlisted = true
	for _, name := range slices.Sorted(maps.Keys(in.files)) {
		switch path.Base(name) {
		case "yarn.lock", "pnpm-lock.yaml", "bun.lock":
			if found := group(readerLocked, in.text(".", name)); found != "" {
				in.doubt("%s has an install script", found)
			}
		}
	}
	m := readManifest(in, in.dir)
	for _, field := range dependencyFields[:3] {
		if found := group(readerNamed, string(m.fields[field])); found != "" {
			in.doubt("%s has an install script", found)
		}
	}
}

// scripts returns the dependencies whose scripts the command may run; false if that is not
// known.
func (in *inputs) scripts(root string) ([]string, bool) {
	for name := range in.env {
		if scriptSettings.MatchString(name) {
			return nil, false
		}
	}
	program, _, _ := strings.Cut(in.command, " ")
	switch {
	case strings.HasPrefix(in.command, "npm ci"):
		return in.npmScripts(root)
	case program == "pnpm":
		return in.pnpmScripts()
	case program == "yarn":
		return in.yarnScripts(root)
	}
	return nil, false
}

// scriptSettings matches variables that set which scripts pnpm and yarn run.
var scriptSettings = regexp.MustCompile(`(?i)^(?:yarn_enable_scripts|p?npm_config_(?:dangerously|only|never|allow|config_dep)\w*)$`)

// npmScripts returns what the lock files of the service's folder and of the root list:
// those of npm 6 and before do not.
func (in *inputs) npmScripts(root string) (names []string, ok bool) {
	for _, dir := range slices.Compact([]string{in.dir, root}) {
		for _, lock := range npmLocks {
			if !in.files[path.Join(dir, lock)] {
				continue
			}
			packages, listed := lockedPackages(in.src, path.Join(dir, lock))
			if !listed {
				return nil, false
			}
			names, ok = append(names, withScripts(packages)...), true
		}
	}
	return names, ok
}

func withScripts(packages map[string]lockedPackage) (names []string) {
	for _, at := range slices.Sorted(maps.Keys(packages)) {
		i := strings.LastIndex(at, "node_modules/")
		if i >= 0 && packages[at].HasInstallScript { // the project's own are in its package.json
			names = append(names, at[i+len("node_modules/"):])
		}
	}
	return names
}

type lockedPackage struct {
	HasInstallScript bool `json:"hasInstallScript"`
}

// lockedPackages returns what an npm lock file contains by folder; false if it has an
// older format.
func lockedPackages(src fs.FS, name string) (packages map[string]lockedPackage, ok bool) {
	f, err := src.Open(name)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	d := json.NewDecoder(io.LimitReader(f, maxLock))
	ok = seek(d, "packages") && d.Decode(&packages) == nil
	return packages, ok
}

var (
	// pnpmRunsAll matches what makes pnpm run all scripts, or others than the settings name:
	// a version before 10, and some settings.
	pnpmRunsAll = regexp.MustCompile(`(?i)"packageManager"\s*:\s*(?:\{|"pnpm@\d\.)|dangerously-?allow-?all-?builds|never-?built-?dependencies|only-?built-?dependencies-?file|config-?dependencies|only-built-dependencies|allow-builds`)
	pnpmAllows  = regexp.MustCompile(`(?m)^(?:onlyBuiltDependencies|allowBuilds):(.*(?:\n(?:[ \t#-].*)?)*)`)
	pnpmMention = regexp.MustCompile(`onlyBuiltDependencies|allowBuilds`)
	yamlRefusal = regexp.MustCompile(`(?m)#.*$|^.*:\s*false\s*$`)
	yamlWord    = regexp.MustCompile(`@?[\w*][^\s"',:\[\]{}]*`)
)

// pnpmScripts returns the dependencies that the settings allow: from version 10 on, pnpm
// runs no other scripts.
func (in *inputs) pnpmScripts() (names []string, ok bool) {
	for _, name := range slices.Sorted(maps.Keys(in.files)) {
		var allowed []string
		text := in.text(".", name)
		switch ok = true; path.Base(name) {
		case "package.json":
			allowed, ok = allowedInPackage(text)
		case "pnpm-workspace.yaml":
			allowed, ok = allowedInWorkspace(text)
		case ".npmrc":
		default:
			continue
		}
		if !ok || pnpmRunsAll.MatchString(text) {
			return nil, false
		}
		names = append(names, allowed...)
	}
	return withoutVersions(names), true
}

func allowedInPackage(text string) (names []string, ok bool) {
	var m struct {
		Pnpm struct {
			OnlyBuiltDependencies []string       `json:"onlyBuiltDependencies"`
			AllowBuilds           map[string]any `json:"allowBuilds"`
		} `json:"pnpm"`
	}
	err := json.Unmarshal([]byte(text), &m)
	return slices.AppendSeq(m.Pnpm.OnlyBuiltDependencies, maps.Keys(m.Pnpm.AllowBuilds)), err == nil
}

func allowedInWorkspace(text string) (names []string, ok bool) {
	allowed := pnpmAllows.FindAllStringSubmatch(text, -1)
	for _, m := range allowed {
		names = append(names, yamlWord.FindAllString(yamlRefusal.ReplaceAllString(m[1], ""), -1)...)
	}
	names = slices.DeleteFunc(names, func(word string) bool { return word == "true" })
	return names, len(allowed) == len(pnpmMention.FindAllString(text, -1))
}

// withoutVersions returns the names of packages that may have versions after an @.
func withoutVersions(names []string) []string {
	for i, name := range names {
		if at := strings.LastIndex(name, "@"); at > 0 {
			names[i] = name[:at]
		}
	}
	return names
}

var (
	yarnLock    = regexp.MustCompile(`(?m)^__metadata:\n +version: *["']?(\d+)`)
	yamlComment = regexp.MustCompile(`(?m)#.*$`)
	yarnEnables = regexp.MustCompile(`enableScripts["']?\s*:\s*(\S+)`)
)

// yarnScripts returns the dependencies that the project's package.json allows, where all
// others are forbidden: Yarn writes lock files of version 9 since it forbids them unless
// the settings say otherwise. Yarn 1 runs all.
func (in *inputs) yarnScripts(root string) (names []string, ok bool) {
	lock := yarnLock.FindStringSubmatch(in.text(root, "yarn.lock"))
	if lock == nil {
		return nil, false
	}
	version, _ := strconv.Atoi(lock[1])
	forbidden := version >= 9
	for name := range in.files {
		if path.Base(name) != ".yarnrc.yml" {
			continue
		}
		text := yamlComment.ReplaceAllString(in.text(".", name), "")
		for _, m := range yarnEnables.FindAllStringSubmatch(text, -1) {
			if forbidden = m[1] == "false"; !forbidden {
				return nil, false
			}
		}
	}
	var allowed map[string]struct{ Built bool }
	if data := readManifest(in, root).fields["dependenciesMeta"]; data != nil && json.Unmarshal(data, &allowed) != nil {
		return nil, false
	}
	for _, name := range slices.Sorted(maps.Keys(allowed)) {
		if allowed[name].Built {
			names = append(names, name)
		}
	}
	return withoutVersions(names), forbidden
}

// FindScripts is a shell command for the root of the source, after an install command with
// Unlisted inputs. What it prints, 64 KiB at most, is for Reader.
const FindScripts = `
package='.*/node_modules/(@[^/]+/)?[^/]+'
{
	find . -regextype posix-extended -type f -regex "$package/package[.]json" -exec grep -lE '"(pre|post)?install"[[:space:]]*:' {} +
	find . -regextype posix-extended -type f -regex "$package/binding[.]gyp"
} 2>/dev/null | head -c 65536`

// Reader returns an installed dependency with a script that may have looked for files of
// the project, from what FindScripts has printed; "" if there is none.
func Reader(found string) string {
	if len(found) >= 65536 {
		return "a dependency"
	}
	for line := range strings.Lines(found) {
		dir := path.Dir(strings.TrimSuffix(line, "\n"))
		i := strings.LastIndex(dir, "node_modules/")
		if i < 0 {
			return "a dependency" // with a name of several lines
		}
		if name := dir[i+len("node_modules/"):]; !selfContained[name] {
			return strings.Map(plainRune, name[:min(len(name), 214)]) // npm allows no longer ones
		}
	}
	return ""
}

// readers are dependencies whose install scripts are known to read the project's files.
const readers = `@prisma/client|msw|nx|lefthook|simple-git-hooks|puppeteer`

var (
	readerNamed  = regexp.MustCompile(`"(` + readers + `)"\s*:`)
	readerLocked = regexp.MustCompile(`(?m)^\s*["']?/?(` + readers + `)["']?(?:@|:)`)
)

// selfContained are dependencies whose install scripts read nothing of the project: most
// fetch or compile a program into their own folders.
var selfContained = func() map[string]bool {
	all := map[string]bool{}
	for name := range strings.FieldsSeq(`
		@apollo/protobufjs @biomejs/biome @bufbuild/buf @firebase/util @mongodb-js/zstd @nestjs/core @parcel/watcher
		@prisma/engines @scarf/scarf @sentry/cli @sentry/profiling-node @serialport/bindings-cpp @swc/core
		@tailwindcss/oxide @tensorflow/tfjs-node @vscode/ripgrep
		argon2 aws-crt bcrypt better-sqlite3 bigint-buffer bufferutil canvas classic-level core-js core-js-bundle
		core-js-pure cpu-features cypress deasync dtrace-provider electron es5-ext esbuild ffmpeg-static fsevents
		geckodriver gifsicle gl isolated-vm jpegtran-bin kerberos keytar leveldown libpq lmdb lz4
		mongodb-client-encryption mozjpeg msgpackr-extract node-pty node-sass onnxruntime-node optipng-bin oracledb
		phantomjs-prebuilt playwright playwright-chromium pngquant-bin prisma protobufjs re2 realm secp256k1
		serialport sharp sqlite3 ssh2 styled-components supabase svelte-preprocess tree-sitter ttf2woff2 unix-dgram
		unrs-resolver usb utf-8-validate vue-demi web3 workerd zeromq`) {
		all[name] = true
	}
	return all
}()
