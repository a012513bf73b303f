package runtimes

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"slices"
)

// packageJSON holds the relevant parts of a package.json. A field of an unexpected type
// counts as absent.
type packageJSON struct {
	Name           string
	Main           string
	PackageManager string
	Module         string
	Engines        struct{ Node, Bun string }
	Scripts        map[string]string
	dependencies   dependencies
	workspaces     bool
	fault          string // what is wrong with one that npm could not read either
}

// dependencies are the three groups that a lock file repeats.
type dependencies struct {
	Dependencies         map[string]string `json:"dependencies"`
	DevDependencies      map[string]string `json:"devDependencies"`
	OptionalDependencies map[string]string `json:"optionalDependencies"`
}

// readPackage reads package.json; false unless there is one that is a JSON object.
func readPackage(src fs.FS) (packageJSON, bool) {
	var p packageJSON
	data, ok := read(src, "package.json")
	if !ok {
		return p, false
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(bytes.TrimPrefix(data, []byte("\ufeff")), &fields); err != nil {
		p.fault = "its package.json is not valid JSON (" + err.Error() + ")"
	}
	if fields == nil {
		return p, false
	}
	for name, to := range map[string]any{
		"name": &p.Name, "main": &p.Main, "module": &p.Module, "packageManager": &p.PackageManager,
		"engines": &p.Engines, "scripts": &p.Scripts,
		"dependencies":         &p.dependencies.Dependencies,
		"devDependencies":      &p.dependencies.DevDependencies,
		"optionalDependencies": &p.dependencies.OptionalDependencies,
	} {
		_ = json.Unmarshal(fields[name], to) // a value of another type leaves it empty
	}
	p.workspaces = fields["workspaces"] != nil
	return p, true
}

// has reports whether the package depends on name, for running or for development.
func (p packageJSON) has(name string) bool {
	_, run := p.dependencies.Dependencies[name]
	_, develop := p.dependencies.DevDependencies[name]
	return run || develop
}

// installs reports whether there is anything to install: dependencies, or scripts that
// run on installation.
func (p packageJSON) installs() bool {
	d := p.dependencies
	if len(d.Dependencies)+len(d.DevDependencies)+len(d.OptionalDependencies) > 0 || p.workspaces {
		return true
	}
	onInstall := []string{"preinstall", "install", "postinstall", "prepare"}
	return slices.ContainsFunc(onInstall, func(script string) bool { return p.Scripts[script] != "" })
}

// startsNode reports whether a package.json starts what is in the folder: files of
// another language beside it are then helpers, unless a Procfile decides.
func startsNode(src fs.FS) bool {
	pkg, _ := readPackage(src)
	return pkg.Scripts["start"] != "" && readProcfile(src)["web"] == ""
}
