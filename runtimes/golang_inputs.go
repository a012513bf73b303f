package runtimes

import (
	"path"
	"regexp"

	"golang.org/x/mod/modfile"
)

var goSettings = regexp.MustCompile(`^(GO[A-Z0-9]*|CGO_\w+)$`)

// goInputs collects what go mod download reads: the module's go.mod and go.sum, and those
// of its workspace. A replacement by a folder is read as far as Go likes.
func goInputs(in *inputs) {
	in.cached = true
	in.addModule(in.dir)
	if !in.files[path.Join(in.dir, "go.sum")] {
		in.doubt("go.mod is without go.sum")
	}
	for dir := range in.upward() {
		if in.has(dir, "go.work") {
			in.addWorkspace(dir)
		}
	}
}

func (in *inputs) addModule(dir string) {
	name := path.Join(dir, "go.mod")
	in.add(dir, "go.mod", "go.sum")
	in.forbid(dir, "vendor")
	data, ok := read(in.src, name)
	if !ok || len(data) > maxGoMod {
		in.doubt("%s cannot be read", in.relative(name))
		return
	}
	file, err := modfile.Parse(name, data, anyVersion)
	if err != nil {
		in.doubt("%s cannot be read", in.relative(name))
		return
	}
	in.checkReplacements(name, file.Replace)
}

func (in *inputs) addWorkspace(dir string) {
	name := path.Join(dir, "go.work")
	in.add(dir, "go.work", "go.work.sum")
	in.forbid(dir, "vendor")
	data, _ := read(in.src, name)
	file, err := modfile.ParseWork(name, data, anyVersion)
	if err != nil || len(data) > maxGoMod {
		in.doubt("%s cannot be read", in.relative(name))
		return
	}
	in.checkReplacements(name, file.Replace)
	for _, use := range file.Use {
		if path.IsAbs(use.Path) || !in.has(dir, path.Join(use.Path, "go.mod")) {
			in.doubt("%s uses a folder that is not in the source", in.relative(name))
			return
		}
		in.addModule(path.Join(dir, use.Path))
	}
}

// checkReplacements doubts if a module is replaced by a folder.
func (in *inputs) checkReplacements(name string, replaced []*modfile.Replace) {
	for _, r := range replaced {
		if modfile.IsDirectoryPath(r.New.Path) {
			in.doubt("%s replaces %s by a folder", in.relative(name), r.Old.Path)
		}
	}
}
