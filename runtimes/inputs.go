package runtimes

import (
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Inputs are the files of a source that an install command reads. Paths are
// slash-separated, from the root of the source.
type Inputs struct {
	Files []string // sorted
	Lock  string   // the one of Files that decides what is installed, for messages; "" if it is not known

	// Cached reports whether all that the command leaves lies in the build cache, where
	// later commands find it, and fetch what is missing.
	Cached bool

	// Unlisted reports whether nothing in Files says whether dependencies have scripts that
	// may read any other file. What is installed does: see FindScripts.
	Unlisted bool

	// Whole says why the command may read any other file ("package.json has a
	// postinstall script"): it must then see the whole source, and the rest is empty. It
	// is "" if Files are all that the command can read.
	Whole string
}

// InstallInputs returns what an install command, run in a folder of a source, reads of
// that source. build is the command that follows, "" for none. env has the variables that
// a project sets for its commands: some of them make a tool read more files.
func (d *Definition) InstallInputs(src fs.FS, folder, command, build string, env map[string]string) Inputs {
	in := &inputs{src: src, dir: path.Clean(folder), command: command, env: env, files: map[string]bool{}}
	sub, err := fs.Sub(src, in.dir)
	if err != nil {
		return Inputs{Whole: "its folder cannot be read"}
	}
	plan, _ := d.Detect(sub)
	own := plan.Install.Line == command
	switch {
	case d.inputs == nil || !own && !(d.installs != nil && d.installs.MatchString(command)):
		return Inputs{Whole: "install is a command of the project's own"}
	case own:
		lock, _, _ := strings.Cut(plan.Install.From, " ")
		in.lock = path.Join(in.dir, strings.Trim(lock, ",;"))
	}
	in.checkEnv(d.settings)
	d.inputs(in)
	in.cached = in.cached && !d.movesCache(env)
	if in.looks != "" && (build == "" || !in.cached) {
		in.doubt("%s", in.looks)
	}
	return in.result()
}

// movesCache reports whether env leads a tool to another folder than its build cache.
func (d *Definition) movesCache(env map[string]string) bool {
	for name, value := range d.buildEnv {
		if own, ok := env[name]; ok && own != value && strings.Contains(value, "/cache/") {
			return true
		}
	}
	return false
}

// inputs collects the Inputs of a command.
type inputs struct {
	src      fs.FS
	dir      string // the service's folder
	command  string
	env      map[string]string
	lock     string // the file that the plan has the command from
	files    map[string]bool
	whole    string
	cached   bool
	unlisted bool
	looks    string // why files alone are not enough; "" if they are, as they are where a build command goes on from the cache
}

func (in *inputs) result() Inputs {
	if in.whole != "" {
		return Inputs{Whole: in.whole}
	}
	r := Inputs{Files: slices.Sorted(maps.Keys(in.files)), Cached: in.cached, Unlisted: in.unlisted}
	if in.files[in.lock] {
		r.Lock = in.lock
	}
	return r
}

// doubt records why the command may read other files. The first reason stays.
func (in *inputs) doubt(format string, args ...any) {
	if in.whole == "" {
		in.whole = strings.Map(plainRune, fmt.Sprintf(format, args...))
	}
}

// plainRune replaces what must not get from a name into a log.
func plainRune(r rune) rune {
	if unicode.IsGraphic(r) {
		return r
	}
	return '?'
}

// add adds those of the names in a folder that are files.
func (in *inputs) add(folder string, names ...string) {
	for _, name := range names {
		in.addFile(path.Join(folder, name))
	}
}

func (in *inputs) addFile(name string) {
	if link := in.link(name); link != "" {
		in.doubt("%s is a link", in.relative(link))
	} else if isFile(in.src, name) {
		in.files[name] = true
	}
}

// link returns the first part of a path that is a symbolic link; "" if none is.
func (in *inputs) link(name string) string {
	for i := range len(name) + 1 {
		if i < len(name) && name[i] != '/' {
			continue
		}
		info, err := fs.Lstat(in.src, name[:i])
		if err != nil {
			return ""
		}
		if info.Mode().Type() == fs.ModeSymlink {
			return name[:i]
		}
	}
	return ""
}

// addTree adds all files below a folder.
func (in *inputs) addTree(folder string) {
	if link := in.link(folder); link != "" {
		in.doubt("%s is a link", in.relative(link))
		return
	}
	_ = fs.WalkDir(in.src, folder, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil //nolint:nilerr // most often there is no such folder
		case d.Type() == fs.ModeSymlink:
			in.doubt("%s is a link", in.relative(name))
		case d.Type().IsRegular():
			in.files[name] = true
		}
		return nil
	})
}

// addNamed adds the pointed-at file of a setting that lies in a folder, and reports
// whether it lies in the source.
func (in *inputs) addNamed(folder, name string) bool {
	full := path.Join(folder, name)
	if path.IsAbs(name) || !fs.ValidPath(full) {
		return false
	}
	in.add(".", full)
	return true
}

// forbid doubts if one of the names in a folder is in the source: the command writes
// there.
func (in *inputs) forbid(folder string, names ...string) {
	for _, name := range names {
		if in.has(folder, name) {
			in.doubt("%s is part of the source", in.relative(path.Join(folder, name)))
		}
	}
}

// has reports whether the source has anything of a name in a folder.
func (in *inputs) has(folder, name string) bool {
	_, err := fs.Lstat(in.src, path.Join(folder, name))
	return err == nil
}

// text returns a file of a folder, "" if there is none. It doubts if the file is too
// large to be read.
func (in *inputs) text(folder, name string) string {
	data, _ := readUpTo(in.src, path.Join(folder, name), maxLock+1)
	if len(data) > maxLock {
		in.doubt("%s is too large to be read", in.relative(path.Join(folder, name)))
		return ""
	}
	return string(data)
}

// upward yields the service's folder, then each that contains it, up to the root.
func (in *inputs) upward() iter.Seq[string] {
	return func(yield func(string) bool) {
		for dir := in.dir; yield(dir) && dir != "."; {
			dir = path.Dir(dir)
		}
	}
}

// below returns the folders below one, itself included, that have a file of one of the
// names. It does not search what was installed, or a repository of Git.
func (in *inputs) below(folder string, names ...string) []string {
	var found []string
	_ = fs.WalkDir(in.src, folder, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil //nolint:nilerr // it has no files then
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git"):
			return fs.SkipDir
		case slices.Contains(names, d.Name()):
			found = append(found, path.Dir(name))
		}
		return nil
	})
	slices.Sort(found)
	return slices.Compact(found)
}

// relative returns a path as the service's folder sees it.
func (in *inputs) relative(name string) string { return Relative(in.dir, name) }

// Relative returns how a path of the source is written in one of its folders.
func Relative(folder, name string) string {
	up := ""
	for dir := path.Clean(folder); dir != "."; dir = path.Dir(dir) {
		if rest, ok := strings.CutPrefix(name, dir+"/"); ok {
			return up + rest
		}
		up += "../"
	}
	return up + name
}

// generalSettings matches variables that make any tool read other files.
var generalSettings = regexp.MustCompile(`^(HOME|PATH|TMPDIR|LD_\w+|XDG_\w+|GIT_\w+)$`)

// checkEnv doubts if a variable that the tools read may name a file of the source.
func (in *inputs) checkEnv(settings *regexp.Regexp) {
	for _, name := range slices.Sorted(maps.Keys(in.env)) {
		read := generalSettings.MatchString(name) || settings != nil && settings.MatchString(name)
		if read && slices.ContainsFunc(envWords.FindAllString(in.env[name], -1), in.named) {
			in.doubt("the variable %s may name a file of the source", name)
		}
	}
}

// envWords matches the words of a variable's value.
var envWords = regexp.MustCompile(`[^\s=:,;"'()]+`)

// localPath matches the beginning of a path in the source.
var localPath = regexp.MustCompile(`^(?:\.{1,2}|~|/app)(?:/|$)`)

// named reports whether a word may be the path of something in the source.
func (in *inputs) named(word string) bool {
	if localPath.MatchString(word) {
		return true
	}
	return !path.IsAbs(word) && in.has(in.dir, word)
}
