package runtimes

import (
	"io/fs"
	"path"
	"regexp"
	"strings"
)

var rubySettings = regexp.MustCompile(`^(BUNDLE_\w+|BUNDLER_\w+|RUBY\w*|GEM_\w+)$`)

// rubyInputs collects what bundle install reads: the Gemfile with its lock file, gems
// that are kept in the source, and the folders of local gems.
func rubyInputs(in *inputs) {
	in.add(in.dir, "Gemfile", "Gemfile.lock", ".bundle/config", ".ruby-version", ".tool-versions")
	in.addTree(path.Join(in.dir, "vendor/cache"))
	in.forbid(in.dir, "vendor/bundle")
	gemfile := in.text(in.dir, "Gemfile")
	for _, m := range localGem.FindAllStringSubmatch(gemfile, -1) {
		in.addGem(m[1])
	}
	if found := gemfileReads.FindString(plainGemfile.ReplaceAllString(gemfile, "")); found != "" {
		in.doubt("Gemfile uses %s", found)
	}
}

var (
	localGem = regexp.MustCompile(`(?:\bpath:\s*|:path\s*=>\s*|(?m:^)\s*path[ (]+)["']([^"']+)["']`)
	// gemfileReads matches what a Gemfile, a program in Ruby, reads other files with.
	gemfileReads = regexp.MustCompile(`\b(?:eval_gemfile|instance_eval|eval|File|IO|Dir|Pathname|Kernel|gemspec|__dir__|__FILE__|(?:require|require_relative|load|open|system|exec|spawn)[ (]+["':])|%x|` + "`" + `|\bpath[ (]+[^"'\s]|path(?::|\s*=>)\s*[^"'\s]`)
	// plainGemfile matches comments, and what reads the version of Ruby.
	plainGemfile = regexp.MustCompile(`(?m)^\s*#.*$|\bFile\.read\(["']\.ruby-version["']\)`)
)

// addGem adds the folder of a local gem. A gem without a gemspec is found by its name.
func (in *inputs) addGem(name string) {
	folder := path.Join(in.dir, name)
	if path.IsAbs(name) || !fs.ValidPath(folder) || !isDir(in.src, folder) || folder == in.dir || folder == "." {
		in.doubt("Gemfile depends on the path %s", clip(name))
		return
	}
	in.addTree(folder)
	specs, _ := fs.Glob(in.src, path.Join(folder, "*.gemspec"))
	for _, spec := range specs {
		text := in.text(".", spec)
		if strings.Contains(text, "../") || strings.Contains(text, "git") && in.repository() {
			in.doubt("%s may read other files", in.relative(spec))
		}
	}
	if len(specs) == 0 {
		in.doubt("the local gem %s has no gemspec", clip(name))
	}
}
