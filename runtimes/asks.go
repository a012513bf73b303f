package runtimes

import (
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Ask is a database that the source of a service looks as if it needed.
type Ask struct {
	Definition *Definition
	Driver     string // the package with which it connects
	DriverFrom string // the list of dependencies that has it
	From       string // the file that names the variable of the connection string
}

// Asks returns the databases that the service in a folder looks as if it needed: a driver
// is among its dependencies, and a file names the variable in which programs expect the
// connection string.
func Asks(src fs.FS) (asks []Ask) {
	for _, d := range All() {
		if d.Database == nil {
			continue
		}
		driver, from := findDriver(src, d.Database.Drivers)
		if driver == "" {
			continue
		}
		if file := fileWith(src, d.Database.URL); file != "" {
			asks = append(asks, Ask{d, driver, from, file})
		}
	}
	return asks
}

// dependencyFiles are the lists of dependencies, besides package.json and those in the folder
// requirements, in which a name is looked for as a word.
var dependencyFiles = []string{
	"requirements.txt", "pyproject.toml", "Pipfile", "go.mod", "Gemfile", "composer.json", "Cargo.toml",
	"pom.xml", "build.gradle", "build.gradle.kts", "deno.json", "deno.jsonc", "prisma/schema.prisma",
	"setup.cfg", "Gemfile.lock",
}

// findDriver returns the first of the drivers that is a dependency, and the file that lists
// it.
func findDriver(src fs.FS, drivers []string) (driver, from string) {
	if pkg, ok := readPackage(src); ok {
		if i := slices.IndexFunc(drivers, pkg.has); i >= 0 {
			return drivers[i], "package.json"
		}
	}
	ofPip, _ := fs.Glob(src, "requirements/*.txt")
	for _, file := range slices.Concat(dependencyFiles, ofPip) {
		text := readHead(src, file)
		for _, name := range drivers {
			if text != "" && hasWord(text, name) {
				return name, file
			}
		}
	}
	return "", ""
}

// hasWord reports whether a list of dependencies has a name, not as a part of another.
func hasWord(text, name string) bool {
	found, err := regexp.MatchString(`(?m)(?:^|[\s"'>:])`+regexp.QuoteMeta(name)+`(?:[\s"'<>=~!;:,\[@]|$)`, text)
	return found && err == nil
}

// What fileWith looks at, at most.
const (
	askFiles = 300
	askBytes = 256 << 10 // of each
)

// results are folders with what a build has made.
var results = []string{"dist", "build", "target", "out"}

// fileWith returns the first file of a program or its configuration that has a word; "" if
// there is none. What cannot be read is passed over.
func fileWith(src fs.FS, word string) (found string) {
	looked := 0
	_ = fs.WalkDir(src, ".", func(name string, entry fs.DirEntry, err error) error {
		base := path.Base(name)
		switch {
		case err != nil:
			return nil
		case entry.IsDir() && name != "." && (notSource.MatchString(base) || slices.Contains(results, base)):
			return fs.SkipDir
		case !entry.Type().IsRegular() || !isSource(base):
			return nil
		case looked == askFiles:
			return fs.SkipAll
		}
		looked++
		if data, _ := readUpTo(src, name, askBytes); strings.Contains(string(data), word) {
			found = name
			return fs.SkipAll
		}
		return nil
	})
	return found
}

// sourceKinds are the extensions of files of programs and their configuration. Scripts and
// files such as Procfile have none.
var sourceKinds = strings.Fields(`
	.js .cjs .mjs .jsx .ts .cts .mts .tsx .vue .svelte .astro .prisma .py .go .rb .ru .rake .erb .php .rs
	.java .kt .kts .groovy .gradle .scala .clj .sh
	.yml .yaml .json .jsonc .json5 .toml .ini .cfg .conf .config .properties .xml .env`)

// isSource reports whether a file is one of a program or its configuration, and no example of
// what others may set.
func isSource(base string) bool {
	ext := path.Ext(base)
	known := ext == "" || slices.Contains(sourceKinds, ext) || strings.HasPrefix(base, ".env.")
	return known && !strings.Contains(base, "example") && base != "package-lock.json"
}
