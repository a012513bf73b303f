package runtimes

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

var rust = Definition{
	Name:     "rust",
	Shows:    "`Cargo.toml`",
	Versions: []string{"1.85"},
	Default:  "1.85",
	Aliases:  []string{"cargo", "rs"},
	Example:  "./target/release/server",
	inputs:   rustInputs,
	settings: rustSettings,
	programs: []string{"cargo"},
	path:     []string{"target/release"},
	Env: map[string]string{
		"ROCKET_ADDRESS": "0.0.0.0",
	},
	buildEnv: map[string]string{
		"CARGO_HOME":                   "/cache/cargo",
		"CARGO_NET_GIT_FETCH_WITH_CLI": "true",
		"CARGO_TERM_PROGRESS_WHEN":     "never",
	},
}

func detectRust(src fs.FS) (Plan, bool) {
	text, ok := read(src, "Cargo.toml")
	if !ok {
		return Plan{Hint: "it has no Cargo.toml"}, false
	}
	c := cargo{src, "", string(text)}
	p := Plan{From: "Cargo.toml", Name: c.value("package", "name")}
	p.Version, p.VersionFrom = rustVersion(c)
	p.Install = c.install()
	programs := c.programs()
	build := "cargo build --release"
	if len(programs) == 0 {
		for _, member := range c.members() {
			programs = append(programs, member.programs()...)
		}
		build += " --workspace"
	}
	if len(programs) == 0 {
		p.Hint = "none of its packages has a program: a src/main.rs, or a [[bin]] in its Cargo.toml"
		// A library beside a project of another language is a part of that.
		return p, firstFile(src, "package.json", "pyproject.toml") == ""
	}
	p.Build = c.build(build, programs)
	p.Start, p.Hint = c.startCommand(programs)
	return p, true
}

// rustVersion treats the project's version as the minimum: newer ones compile the same.
// It ignores the name of a channel.
func rustVersion(c cargo) (string, string) {
	var sources []source
	for _, name := range []string{"rust-toolchain.toml", "rust-toolchain"} {
		text := readHead(c.src, name)
		channel := cmp.Or(cargo{text: text}.value("toolchain", "channel"), strings.TrimSpace(text))
		sources = append(sources, source{">=" + channel, name})
	}
	return rust.firstVersion(append(sources,
		source{">=" + toolVersion(c.src, "rust"), ".tool-versions"},
		source{">=" + c.value("package", "rust-version"), "Cargo.toml rust-version"},
		source{">=" + c.value("workspace.package", "rust-version"), "Cargo.toml rust-version"},
	)...)
}

// cargo is a package, or a workspace of packages, and its Cargo.toml.
type cargo struct {
	src  fs.FS
	dir  string // "" for the service's folder
	text string
}

var (
	tomlText = regexp.MustCompile(`["']([^"']*)["']`)
	tomlList = regexp.MustCompile(`(?m)^\s*members\s*=\s*\[([^\]]*)\]`)
)

// sections returns the text below each header with a name.
func (c cargo) sections(name string) []string { return tomlSections(c.text, name) }

// value returns a text of a section; "" if there is none.
func (c cargo) value(section, key string) string {
	for _, text := range c.sections(section) {
		if v := tomlKey(text, key); v != "" {
			return v
		}
	}
	return ""
}

func tomlKey(text, key string) string {
	return group(regexp.MustCompile(`(?m)^\s*`+regexp.QuoteMeta(key)+`\s*=\s*["']([^"']*)["']`), text)
}

// members returns the packages of a workspace, at most a hundred.
func (c cargo) members() []cargo {
	var found []cargo
	for _, text := range c.sections("workspace") {
		for _, m := range tomlText.FindAllStringSubmatch(group(tomlList, text), -1) {
			names, _ := fs.Glob(c.src, path.Join(path.Clean(m[1]), "Cargo.toml"))
			for _, name := range names {
				if data, ok := read(c.src, name); ok && len(found) < 100 {
					found = append(found, cargo{c.src, path.Dir(name), string(data)})
				}
			}
		}
	}
	return found
}

// programs returns the names of the programs that a package's build makes, as Cargo
// does: src/main.rs, src/bin and each [[bin]].
func (c cargo) programs() []string {
	name := c.value("package", "name")
	if name == "" {
		return nil
	}
	var found []string
	named := map[string]bool{} // the files that a [[bin]] names
	for _, bin := range c.sections("bin") {
		named[path.Clean(tomlKey(bin, "path"))] = true
		if !strings.Contains(bin, "required-features") {
			found = append(found, tomlKey(bin, "name"))
		} else {
			named["src/bin/"+tomlKey(bin, "name")+".rs"] = true
		}
	}
	if isFile(c.src, path.Join(c.dir, "src/main.rs")) && !named["src/main.rs"] {
		found = append(found, name)
	}
	entries, _ := fs.ReadDir(c.src, path.Join(c.dir, "src/bin"))
	for _, e := range entries {
		file := "src/bin/" + e.Name()
		if e.IsDir() {
			file += "/main.rs"
		}
		if path.Ext(file) == ".rs" && !named[file] && isFile(c.src, path.Join(c.dir, file)) {
			found = append(found, strings.TrimSuffix(e.Name(), ".rs"))
		}
	}
	slices.Sort(found)
	return slices.DeleteFunc(slices.Compact(found), func(name string) bool { return name == "" })
}

// locked returns the flag that makes Cargo use the lock file.
func (c cargo) locked() (flag, from string) {
	if isFile(c.src, "Cargo.lock") {
		return " --locked", "Cargo.lock"
	}
	return "", "Cargo.toml"
}

var cargoDependencies = regexp.MustCompile(`(?m)^\s*\[.*\bdependencies\b`)

func (c cargo) install() Command {
	flag, from := c.locked()
	lock := readHead(c.src, "Cargo.lock")
	if isDir(c.src, "vendor") || flag != "" && !strings.Contains(lock, "\nsource = ") || flag == "" && !cargoDependencies.MatchString(c.text) {
		return Command{}
	}
	return Command{"cargo fetch" + flag, from}
}

// build compiles in the cache volume, where the next build finds the compiled crates,
// and keeps only the programs: everything else that Cargo leaves would become part of
// the service's image. Cargo compares the times of files, and new files of an archive
// may be older than its last build, so build first touches every file of the archive:
// the service may be only a part of it.
//
// A build command of the project's own compiles everything each time: this Cargo leaves
// what it compiles and the programs in one folder, so that with another one the start
// command would not find its program. A link in the place of a part of it would take files
// from the image that a program, or cargo run, may read. Cargo 1.91 has a folder for each.
func (c cargo) build(line string, programs []string) Command {
	flag, from := c.locked()
	line = "find /app -type f -exec touch {} + && " + line + flag + " --target-dir /cache/target && install -Dt target/release"
	for _, name := range programs {
		line += " /cache/target/release/" + word(name)
	}
	return Command{line, from}
}

func (c cargo) startCommand(programs []string) (Command, string) {
	i := pickProgram(programs, c.value("package", "default-run"), c.value("package", "name"))
	if i < 0 {
		return Command{}, fmt.Sprintf("it builds several programs: %s", strings.Join(programs[:min(len(programs), 8)], ", "))
	}
	line := "./target/release/" + word(programs[i])
	if strings.Contains(readHead(c.src, "Cargo.lock")+c.text, "rocket") {
		line = "env ROCKET_PORT=$PORT " + line // which does not read PORT
	}
	return Command{line, "Cargo.toml"}, ""
}
