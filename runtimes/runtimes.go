// Package runtimes knows the languages of services: how to recognise a source folder,
// which commands install, build and start it, and which environment those commands
// need. It also knows the databases that services may have beside them. Each file defines
// one runtime, and registered sets its place in the order of detection; nothing else names
// it, so a new runtime takes a file and a line here and a folder under images/.
//
// A definition reads its folder only through fs.FS, in pieces of limited size, and runs
// nothing. Its commands are lines for sh -c in the service's folder. Code in this package
// does no other I/O and knows no stacks.
package runtimes

import (
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Definition is one runtime.
type Definition struct {
	Name     string
	Shows    string   // what marks it in a folder, for documents
	Versions []string // the available ones, oldest first; empty for a runtime without versions
	Default  string   // the version for a service that does not ask for one
	Also     []string // other names that are accepted for it
	Aliases  []string // names that people use for it and are not accepted; the error gives the right one
	Example  string   // a start command, for messages

	Env map[string]string // of the processes, the release command included

	// Caches are those of a build command. They count only as long as the contents of
	// Marks, files and folders in the service's folder, stay the same: tools do not notice
	// that a package has changed under the same version.
	Caches []Cache
	Marks  []string

	Database *Database // what the runtime is if services only use it; nil for a language

	// Detect returns the plan of a service from its folder, and reports whether the
	// folder is recognised as this runtime's; the plan is useful even if it is not.
	Detect func(src fs.FS) (Plan, bool)

	inputs   func(*inputs)     // collects what install reads; nil where that is not known
	installs *regexp.Regexp    // commands besides the plan's that read no more than that; nil for none
	settings *regexp.Regexp    // variables that may make install read other files; nil for none
	programs []string          // commands that mark a Procfile's web line as this runtime's
	sites    bool              // its build scripts may make a static site
	path     []string          // folders searched for programs first; a relative one lies in the service's folder
	buildEnv map[string]string // of install and build: where their caches lie below /cache, mostly
}

// Plan is how a runtime would install, build and start the service in a folder.
type Plan struct {
	From        string // the file that shows the runtime
	Version     string // one of Versions; "" for the default
	VersionFrom string // the file with the version, and how it was read if that is not obvious
	Install     Command
	Build       Command
	Release     Command
	Start       Command
	Static      bool    // the build leaves a site: nothing needs to run
	Publish     Command // its folder; Line is "" if it must be looked for after the build
	Name        string  // what the project calls itself
	Env         []Variable
	BuildEnv    map[string]string // of install and build, in place of the host's variables
	Hint        string            // why there is nothing to start, and what to do about it
}

// Command is a shell line or a folder, with the part of the source that it comes from
// ("package.json scripts.start").
type Command struct{ Line, From string }

// Variable is a variable that a framework needs. If the service's own env has it, or
// what takes its place, that stays.
type Variable struct {
	Name   string
	Value  string // "" for a secret that the host makes once, as {generate: true} does
	Unless string // another variable that takes its place; "" for none
	From   string // the framework
}

// Lookup returns the runtime with a name.
func Lookup(name string) (*Definition, bool) {
	i := slices.IndexFunc(registered, func(d *Definition) bool { return d.Name == name || slices.Contains(d.Also, name) })
	if i < 0 {
		return nil, false
	}
	return registered[i], true
}

// All returns all runtimes in alphabetical order.
func All() []*Definition {
	return slices.SortedFunc(slices.Values(registered), func(a, b *Definition) int { return strings.Compare(a.Name, b.Name) })
}

// Names returns the names of All.
func Names() []string {
	var names []string
	for _, d := range All() {
		names = append(names, d.Name)
	}
	return names
}

// Detect returns the runtime of a folder and its plan. If several recognise it, the one
// whose program a Procfile's web line runs comes first, then the first registered.
func Detect(src fs.FS) (*Definition, Plan, bool) {
	program, _, _ := strings.Cut(readProcfile(src)["web"], " ")
	var found *Definition
	var plan Plan
	for _, d := range registered {
		wanted := slices.Contains(d.programs, path.Base(program))
		if found != nil && !wanted {
			continue
		}
		if p, ok := d.Detect(src); ok {
			found, plan = d, p
			if wanted {
				break
			}
		}
	}
	return found, plan, found != nil
}

// DetectSite returns what builds the static site in a folder: a runtime whose build
// makes sites, else the runtime of the folder with its packages, so that a build
// command of the manifest can use them. It always finds one.
func DetectSite(src fs.FS) (*Definition, Plan) {
	var last *Definition
	var plan Plan
	for _, d := range registered {
		if !d.sites {
			continue
		}
		p, ok := d.Detect(src)
		if ok && p.Build.Line != "" {
			return d, p
		}
		last, plan = d, p
	}
	if d, p, ok := Detect(src); ok && len(d.Versions) > 0 {
		if !p.Static {
			p.Build = Command{}
		}
		return d, p
	}
	return last, plan
}

// Environ returns what the runtime adds to the environment of a command (building) or a
// process in the folder dir.
func (d *Definition) Environ(dir string, building bool) map[string]string {
	vars := d.Env
	if building {
		vars = d.buildEnv
	}
	folders := make([]string, 0, len(d.path)+1)
	for _, p := range d.path {
		if !path.IsAbs(p) {
			p = path.Join(dir, p)
		}
		folders = append(folders, p)
	}
	env := map[string]string{"PATH": strings.Join(append(folders, systemPath), ":")}
	maps.Copy(env, vars)
	return env
}

// systemPath is where every base image keeps its programs.
const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// registered lists the runtimes in the order in which detection asks them.
var registered = []*Definition{
	define(golang, detectGo),
	define(rust, detectRust),
	define(php, detectPHP),
	define(ruby, detectRuby),
	define(java, detectJava),
	define(python, detectPython),
	define(deno, detectDeno),
	define(bun, detectBun),
	define(node, detectNode),
	define(static, detectStatic),
	database(postgres),
	database(valkey),
}

// define adds a Detect to a definition that reads the Procfile of any runtime.
func define(d Definition, detect func(fs.FS) (Plan, bool)) *Definition {
	d.Detect = func(src fs.FS) (Plan, bool) {
		plan, ok := detect(src)
		plan.apply(readProcfile(src))
		return plan, ok
	}
	return &d
}

// apply replaces what was detected with a Procfile's lines.
func (p *Plan) apply(procfile map[string]string) {
	if web := procfile["web"]; web != "" {
		p.Start = Command{web, "Procfile web"}
	}
	if release := procfile["release"]; release != "" {
		p.Release = Command{release, "Procfile release"}
	}
}
