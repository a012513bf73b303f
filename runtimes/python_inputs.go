package runtimes

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

var pythonSettings = regexp.MustCompile(`^(PYTHON\w*|PIP_\w+|UV_\w+|POETRY_\w+|PIPENV_\w+|VIRTUAL_ENV)$`)

// pythonInputs collects what the installer of the project's lock file reads.
func pythonInputs(in *inputs) {
	in.forbid(in.dir, ".venv")
	in.checkModules()
	switch path.Base(in.lock) {
	case "uv.lock":
		in.addUv()
	case "poetry.lock":
		in.addPoetry()
	case "Pipfile", "Pipfile.lock":
		in.add(in.dir, "Pipfile", "Pipfile.lock", ".env")
		if localPipfile.MatchString(in.text(in.dir, "Pipfile") + in.text(in.dir, "Pipfile.lock")) {
			in.doubt("%s depends on a path", path.Base(in.lock))
		}
	case "requirements.txt":
		in.addRequirements(in.lock, 0)
	default:
		in.addProject()
	}
}

var (
	buildSystem  = regexp.MustCompile(`(?m)^\s*\[\s*build-system\s*\]|^\s*package\s*=\s*true`)
	uvWorkspace  = regexp.MustCompile(`(?m)^\s*\[\s*tool\.uv\.workspace\s*\]|^\s*uv\.workspace|workspace\s*=`)
	uvSource     = regexp.MustCompile(`(?m)source = \{ (?:editable|directory|path|virtual = "[^."]|virtual = "\.[^"]|registry = "[^"h])`)
	poetrySource = regexp.MustCompile(`(?m)^type = "(?:directory|file)"`)
	localPipfile = regexp.MustCompile(`(?:path"?\s*[=:]|file"?\s*[=:]|["'](?:\.{1,2}/|file:))`)
	localProject = regexp.MustCompile(`@\s*(?:file:|\.|/)|["']\s*(?:\.{1,2}/|/)`)
	namedFile    = regexp.MustCompile(`\bfile\s*=\s*["']([^"']+)["']`)
)

// addUv adds the files of uv sync, which also reads the settings in the folders above.
// It builds a project that is a package.
func (in *inputs) addUv() {
	for dir := range in.upward() {
		in.add(dir, "pyproject.toml", "uv.lock", "uv.toml", ".python-version", ".python-versions")
		if uvWorkspace.MatchString(in.text(dir, "pyproject.toml")) {
			in.doubt("%s has a workspace", in.relative(path.Join(dir, "pyproject.toml")))
		}
	}
	if buildSystem.MatchString(in.text(in.dir, "pyproject.toml")) {
		in.doubt("the project is a package of its own")
	}
	if uvSource.MatchString(in.text(in.dir, "uv.lock")) {
		in.doubt("uv.lock depends on a path")
	}
}

func (in *inputs) addPoetry() {
	in.add(in.dir, "pyproject.toml", "poetry.lock", "poetry.toml", ".python-version")
	project := in.text(in.dir, "pyproject.toml")
	if poetrySource.MatchString(in.text(in.dir, "poetry.lock")) {
		in.doubt("poetry.lock depends on a path")
	}
	if strings.Contains(project, "requires-plugins") {
		in.doubt("pyproject.toml requires plugins of Poetry")
	}
	for _, file := range namedFile.FindAllStringSubmatch(project, -1) {
		in.addNamed(in.dir, file[1])
	}
}

// addProject adds the files of a project without a lock file: its dependencies, but not
// the project itself, are installed.
func (in *inputs) addProject() {
	in.add(in.dir, "pyproject.toml")
	project := in.text(in.dir, "pyproject.toml")
	switch {
	case strings.Contains(project, "[build-system]"):
		in.doubt("the project is a package of its own")
	case slices.ContainsFunc(tomlSections(project, "project"), localProject.MatchString):
		in.doubt("pyproject.toml depends on a path")
	}
}

// modules are modules of Python that making a virtual environment, and listing the
// dependencies of a project, import: a file of the project with such a name takes their
// place, as Python finds it in the folder that it runs in.
var modules = strings.Fields(`
	argparse bz2 collections contextlib copyreg datetime ensurepip enum fcntl fnmatch functools gettext importlib keyword
	linecache locale logging lzma math operator re reprlib runpy select selectors shlex shutil signal string subprocess
	sysconfig textwrap threading tomllib traceback types typing venv warnings weakref zlib`)

// checkModules doubts if a file of the project takes the place of a module of Python.
func (in *inputs) checkModules() {
	for _, name := range modules {
		for _, file := range []string{name + ".py", name + "/__init__.py"} {
			if in.has(in.dir, file) {
				in.doubt("%s takes the place of a module of Python", file)
			}
		}
	}
}

// maxIncludes is how deep requirements files may include others.
const maxIncludes = 20

// addRequirements adds a requirements file and the files that it includes.
func (in *inputs) addRequirements(name string, depth int) {
	if in.files[name] {
		return
	}
	in.addFile(name)
	text := in.text(".", name)
	if strings.ContainsAny(text, "\x00") || strings.HasPrefix(text, "\xff\xfe") || strings.HasPrefix(text, "\xfe\xff") {
		in.doubt("%s is not plain text", in.relative(name))
		return
	}
	text = strings.NewReplacer("\\\r\n", " ", "\\\n", " ").Replace(strings.TrimPrefix(text, "\ufeff"))
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(requirementComment.ReplaceAllString(line, ""))
		include := requirementInclude.FindStringSubmatch(line)
		switch {
		case line == "" || plainOption.MatchString(line):
		case include != nil && strings.Contains(include[1], "://"):
		case include != nil:
			in.include(name, include[1], depth)
		case !plainRequirement.MatchString(line) || packageFile.MatchString(line):
			in.doubt("%s has the line %s", in.relative(name), clip(line))
		}
	}
}

// include adds a requirements file that another one names.
func (in *inputs) include(from, name string, depth int) {
	full := path.Join(path.Dir(from), name)
	if strings.ContainsAny(name, `$"'\ `) || path.IsAbs(name) || full == ".." || strings.HasPrefix(full, "../") || depth == maxIncludes {
		in.doubt("%s includes %s", in.relative(from), clip(name))
		return
	}
	in.addRequirements(full, depth+1)
}

var (
	requirementComment = regexp.MustCompile(`(^|\s)#.*`)
	requirementInclude = regexp.MustCompile(`^(?:-[rc]|--requirement|--constraint)(?:\s+|\s*=\s*|)(\S.*)$`)
	// plainOption matches options that name no file.
	plainOption = regexp.MustCompile(`^(?:(?:-i|--index-url|--extra-index-url|-f|--find-links)[\s=]+https?://\S+|(?:--trusted-host|--no-binary|--only-binary|--use-feature)[\s=]+\S+|--no-index|--prefer-binary|--require-hashes|--pre|(?:-e|--editable)[\s=]+(?:git|hg)\+(?:https?|ssh)://\S+)$`)
	// plainRequirement matches a package by its name, or by its address.
	plainRequirement = regexp.MustCompile(`^(?:[A-Za-z0-9][\w.-]*\s*(?:\[[^\]]*\])?\s*(?:$|[<>=!~;(].*|--hash.*|@\s*(?:(?:git|hg)\+)?(?:https?|ssh)://.*)|(?:(?:git|hg)\+)?(?:https?|ssh)://\S.*)$`)
	// packageFile matches a package that lies in the folder.
	packageFile = regexp.MustCompile(`^[\w.-]+\.(?:whl|zip|tgz|tar|tar\.\w+)(?:\s|;|\[|$)`)
)
