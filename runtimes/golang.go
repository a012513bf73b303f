package runtimes

import (
	"cmp"
	"fmt"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

var golang = Definition{
	Name:     "go",
	Shows:    "`go.mod`",
	Versions: []string{"1.26"},
	Default:  "1.26",
	Aliases:  []string{"golang"},
	Example:  "./bin/server",
	inputs:   goInputs,
	settings: goSettings,
	programs: []string{"go"},
	// What the build puts in bin can be named alone, as a Procfile does.
	path: []string{"bin", "/usr/local/go/bin"},
	buildEnv: map[string]string{
		"GOMODCACHE": "/cache/go-mod",
		"GOCACHE":    "/cache/go-build",
		"GOFLAGS":    "-buildvcs=false",
	},
}

func detectGo(src fs.FS) (Plan, bool) {
	mod, ok := read(src, "go.mod")
	if !ok {
		return Plan{Hint: "it has no go.mod"}, false
	}
	p := Plan{From: "go.mod"}
	file := parseGoMod(mod)
	p.Version, p.VersionFrom = goVersion(src, file.Go)
	modulePath := modfile.ModulePath(mod)
	if modulePath != "" {
		p.Name = moduleName(modulePath)
	}
	p.Install = goInstall(src, file.Require)
	mains := mainPackages(src, ".", 0)
	if len(mains) == 0 {
		p.Hint = "its module does not have a main package"
		return p, true
	}
	p.Build = Command{"go build -o bin/", "go.mod"}
	for _, dir := range mains {
		p.Build.Line += " " + word(packagePath(dir))
	}
	p.Start, p.Hint = goStart(mains, modulePath)
	return p, true
}

// maxGoMod limits the part of a go.mod that is parsed, in bytes: parsing takes a
// hundred times as much memory.
const maxGoMod = 128 << 10

// parseGoMod returns an empty file for a go.mod that Go refuses: Go itself reports what
// is wrong with it.
func parseGoMod(mod []byte) *modfile.File {
	if len(mod) > maxGoMod {
		return new(modfile.File)
	}
	file, err := modfile.ParseLax("go.mod", mod, anyVersion)
	if err != nil {
		return new(modfile.File)
	}
	return file
}

// anyVersion allows a requirement to name a branch or a commit, which Go replaces with
// a version: it returns the first version that the path may have.
func anyVersion(path, _ string) (string, error) {
	_, major, _ := module.SplitPathVersion(path)
	return cmp.Or(module.PathMajorPrefix(major), "v0") + ".0.0", nil
}

// goVersion treats the version in go.mod as the minimum, as Go itself does.
func goVersion(src fs.FS, directive *modfile.Go) (string, string) {
	sources := []source{{">=" + toolVersion(src, "golang", "go"), ".tool-versions"}}
	if directive != nil {
		sources = append(sources, source{">=" + directive.Version, "go.mod"})
	}
	return golang.firstVersion(sources...)
}

func goInstall(src fs.FS, requirements []*modfile.Require) Command {
	switch {
	case len(requirements) == 0 || isDir(src, "vendor"):
		return Command{}
	case isFile(src, "go.sum"):
		return Command{"go mod download", "go.sum"}
	default:
		return Command{"go mod tidy", "go.mod without go.sum"}
	}
}

var majorSuffix = regexp.MustCompile(`^v[0-9]+$`)

// moduleName returns the last element of a module's path that is not a version.
func moduleName(modulePath string) string {
	if base := path.Base(modulePath); !majorSuffix.MatchString(base) {
		return base
	}
	return path.Base(path.Dir(modulePath))
}

// goStart picks the program to run: the one in the module's root folder, the only one,
// or the one named like the module or like a server.
func goStart(mains []string, modulePath string) (Command, string) {
	binaries := make([]string, len(mains))
	for i, dir := range mains {
		binaries[i] = path.Base(dir)
		if dir == "." {
			binaries[i] = moduleName(modulePath)
		}
	}
	i := pickProgram(binaries, moduleName(modulePath))
	if mains[0] == "." {
		i = 0
	}
	if i >= 0 {
		return Command{"./bin/" + word(binaries[i]), "package main in " + mains[i]}, ""
	}
	return Command{}, fmt.Sprintf("it builds several programs: %s", strings.Join(binaries[:min(len(binaries), 8)], ", "))
}

func packagePath(dir string) string {
	if dir == "." {
		return "."
	}
	return "./" + dir
}

// mainPackages returns the folders, down to three levels, that contain a package main,
// the module's root folder first.
func mainPackages(src fs.FS, dir string, depth int) []string {
	var mains []string
	if isMainPackage(src, dir) {
		mains = append(mains, dir)
	}
	if depth == 3 {
		return mains
	}
	for _, sub := range subfolders(src, dir) {
		if path.Base(sub) != "bin" && !isFile(src, path.Join(sub, "go.mod")) && len(mains) < 20 {
			mains = append(mains, mainPackages(src, sub, depth+1)...)
		}
	}
	return mains
}

// isMainPackage reports whether a folder has a package main, by the package clauses of
// files that are built without tags.
func isMainPackage(src fs.FS, dir string) bool {
	files, err := fs.ReadDir(src, dir)
	if err != nil {
		return false
	}
	for _, f := range files {
		name := f.Name()
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || strings.ContainsAny(name[:1], "._") {
			continue
		}
		data, ok := read(src, path.Join(dir, name))
		if !ok || ignored(data) {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, data, parser.PackageClauseOnly)
		return err == nil && file.Name.Name == "main"
	}
	return false
}

// ignored reports whether a file's build constraint excludes it on Linux.
func ignored(data []byte) bool {
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "package ") {
			return false
		}
		if constraint.IsGoBuild(line) {
			expr, err := constraint.Parse(line)
			return err == nil && !expr.Eval(func(tag string) bool {
				return tag == "linux" || tag == "unix" || strings.HasPrefix(tag, "go1") || tag == "amd64" || tag == "arm64"
			})
		}
	}
	return false
}
