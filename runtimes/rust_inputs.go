package runtimes

import (
	"cmp"
	"path"
	"regexp"
	"strings"
)

var rustSettings = regexp.MustCompile(`^(CARGO_\w+|RUST\w*)$`)

// rustInputs collects what cargo fetch reads: the manifests of the crate and, in a
// workspace, those of all its crates. It also looks whether the files are there that the
// crates are compiled from, but does not read them.
func rustInputs(in *inputs) {
	in.cached, in.looks = true, "Cargo looks for the source of the program"
	top := ""
	for dir := range in.upward() {
		in.add(dir, "Cargo.toml", "Cargo.lock", ".cargo/config.toml", ".cargo/config", "rust-toolchain", "rust-toolchain.toml")
		for _, config := range []string{".cargo/config.toml", ".cargo/config"} {
			if found := cargoPaths.FindString(in.text(dir, config)); found != "" {
				in.doubt("%s sets %s", in.relative(path.Join(dir, config)), strings.TrimRight(found, " =\t"))
			}
		}
		if len(tomlSections(in.text(dir, "Cargo.toml"), "workspace")) > 0 {
			top = dir
		}
	}
	if !in.files[path.Join(cmp.Or(top, in.dir), "Cargo.lock")] {
		in.doubt("Cargo.toml is without Cargo.lock")
	}
	folders := []string{in.dir}
	if top != "" {
		folders = in.below(top, "Cargo.toml")
	}
	for _, dir := range folders {
		in.add(dir, "Cargo.toml", "Cargo.lock")
	}
	for _, dir := range folders {
		in.checkCrate(dir)
	}
}

// cargoPaths matches settings of Cargo that name files or folders.
var cargoPaths = regexp.MustCompile(`(?m)\b(?:directory|local-registry|paths|path|include|cafile|key|credential-provider)\s*=`)

var cargoPath = regexp.MustCompile(`\bpath\s*=\s*["']([^"']+)["']`)

// checkCrate doubts if a manifest depends on a crate that was not added. Other paths name
// files to compile.
func (in *inputs) checkCrate(dir string) {
	for _, m := range cargoPath.FindAllStringSubmatch(in.text(dir, "Cargo.toml"), -1) {
		if path.Ext(m[1]) != ".rs" && !in.files[path.Join(dir, m[1], "Cargo.toml")] {
			in.doubt("%s depends on a path", in.relative(path.Join(dir, "Cargo.toml")))
		}
	}
}
