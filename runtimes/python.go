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

var python = Definition{
	Name:     "python",
	Shows:    "`requirements.txt`, `pyproject.toml`, `uv.lock`, `poetry.lock`, `Pipfile`, or a file such as `main.py`",
	Versions: []string{"3.13"},
	Default:  "3.13",
	Aliases:  []string{"python3", "py", "django", "flask", "fastapi"},
	Example:  "python3 main.py",
	inputs:   pythonInputs,
	settings: pythonSettings,
	programs: []string{"python", "python3", "gunicorn", "uvicorn", "hypercorn", "daphne", "waitress-serve", "flask", "fastapi", "streamlit"},
	// Packages lie in a virtual environment in the service's folder, so that
	// they are part of its image and their programs can be named alone.
	path: []string{".venv/bin"},
	Env: map[string]string{
		"PYTHONUNBUFFERED":        "1",
		"PYTHONDONTWRITEBYTECODE": "1",
	},
	buildEnv: map[string]string{
		"PYTHONUNBUFFERED":              "1",
		"PIP_CACHE_DIR":                 "/cache/pip",
		"PIP_DISABLE_PIP_VERSION_CHECK": "1",
		"PIP_NO_INPUT":                  "1",
		"UV_CACHE_DIR":                  "/cache/uv",
		"UV_LINK_MODE":                  "copy",
		"UV_PYTHON_DOWNLOADS":           "never",
		"POETRY_CACHE_DIR":              "/cache/poetry",
		"POETRY_VIRTUALENVS_IN_PROJECT": "true",
		"PIPENV_CACHE_DIR":              "/cache/pipenv",
		"PIPENV_VENV_IN_PROJECT":        "1",
	},
}

func detectPython(src fs.FS) (Plan, bool) {
	s := readPython(src)
	var p Plan
	p.Version, p.VersionFrom = s.version()
	p.Name = group(projectName, s.project)
	p.Install = s.install()
	if s.django() && s.collects() {
		p.Build = Command{"python3 manage.py collectstatic --noinput", "manage.py"}
	}
	p.Start = s.startCommand()
	p.From = cmp.Or(p.Install.From, p.Start.From)
	if p.Start.Line == "" {
		p.Hint = "no " + strings.Join(pythonEntries[:3], ", ") + " or other usual file"
	}
	if p.Install.Line == "" && p.Start.Line == "" && firstFile(src, "setup.py") == "" {
		return p, false
	}
	return p, !startsNode(src)
}

// pythonSource holds the relevant parts of a Python project's files.
type pythonSource struct {
	src          fs.FS
	requirements string // requirements.txt
	project      string // pyproject.toml
	pipfile      string
}

func readPython(src fs.FS) pythonSource {
	requirements, _ := read(src, "requirements.txt")
	project, _ := read(src, "pyproject.toml")
	pipfile, _ := read(src, "Pipfile")
	return pythonSource{src, string(requirements), string(project), string(pipfile)}
}

var (
	projectName    = regexp.MustCompile(`(?m)^name\s*=\s*["']([^"']+)["']`)
	requiresPython = regexp.MustCompile(`(?m)^(?:requires-python|python|python_version|python_full_version)\s*=\s*["']([^"']+)["']`)
)

func (s pythonSource) version() (string, string) {
	return python.firstVersion(
		source{firstLine(s.src, ".python-version"), ".python-version"},
		source{toolVersion(s.src, "python"), ".tool-versions"},
		source{group(requiresPython, s.project), "pyproject.toml"},
		source{group(requiresPython, s.pipfile), "Pipfile"},
	)
}

// install creates the virtual environment, replacing one in the archive, and fills it
// from the first of the usual files.
func (s pythonSource) install() Command {
	const venv = "python3 -m venv --clear .venv && .venv/bin/pip install "
	switch {
	case isFile(s.src, "uv.lock"):
		return tool("uv", "sync --frozen --no-dev", "uv.lock")
	case isFile(s.src, "poetry.lock"):
		return tool("poetry", "install --no-interaction --no-root --only main", "poetry.lock")
	case isFile(s.src, "Pipfile.lock"):
		return tool("pipenv", "sync", "Pipfile.lock")
	case isFile(s.src, "requirements.txt"):
		return Command{venv + "-r requirements.txt", "requirements.txt"}
	case s.pipfile != "":
		return tool("pipenv", "install --skip-lock", "Pipfile")
	case strings.Contains(s.project, "[build-system]"):
		return Command{venv + "-e .", "pyproject.toml"}
	case strings.Contains(s.project, "[project]"):
		return Command{"python3 -m venv --clear .venv && " + listDependencies + " | .venv/bin/pip install -r /dev/stdin", "pyproject.toml"}
	default:
		return Command{}
	}
}

// tool runs an installer that is itself installed, on the cache volume.
func tool(name, args, from string) Command {
	home := "/cache/tools/" + name
	return Command{fmt.Sprintf("python3 -m venv %s && %s/bin/pip install -q %s && %s/bin/%s %s", home, home, name, home, name, args), from}
}

// listDependencies prints the dependencies of a project without a build system.
const listDependencies = `python3 -c 'import tomllib; print("\n".join(tomllib.load(open("pyproject.toml", "rb"))["project"].get("dependencies", [])))'`

// requires reports whether the project requires a package.
func (s pythonSource) requires(name string) bool {
	pattern := regexp.MustCompile(`(?i)(?:^|[\n"'])\s*` + strings.ReplaceAll(regexp.QuoteMeta(name), "-", "[-_.]") + `\s*(?:[\[<>=!~;,"'@#\n\r]|$)`)
	return pattern.MatchString(s.requirements) || pattern.MatchString(s.project) || pattern.MatchString(s.pipfile)
}

// pythonEntries are the files in which programs begin, the most usual first.
var pythonEntries = []string{
	"main.py", "app.py", "server.py", "api.py", "wsgi.py", "asgi.py", "run.py", "bot.py",
	"app/main.py", "app/app.py", "app/__init__.py", "src/main.py", "src/app.py", "api/main.py",
}

// startCommand finds a server for the framework that a usual file uses, else runs the
// first of these files that exists.
func (s pythonSource) startCommand() Command {
	if s.django() {
		return s.startDjango()
	}
	for _, file := range pythonEntries {
		text, _ := read(s.src, file)
		if c := s.startFramework(file, string(text)); c.Line != "" {
			return c
		}
	}
	for _, file := range pythonEntries {
		if path.Base(file) != "__init__.py" && isFile(s.src, file) {
			return Command{"python3 " + file, file}
		}
	}
	return Command{}
}

var (
	fastAPI = regexp.MustCompile(`(?m)^(\w+)\s*(?::\s*\w+\s*)?=\s*(?:fastapi\.)?(?:FastAPI|Starlette|Litestar)\(`)
	flask   = regexp.MustCompile(`(?m)^(\w+)\s*(?::\s*\w+\s*)?=\s*(?:flask\.)?Flask\(`)
)

// startFramework serves the application object that a file defines at its top level,
// with a server that the project requires.
func (s pythonSource) startFramework(file, text string) Command {
	module := strings.ReplaceAll(strings.TrimSuffix(strings.TrimSuffix(file, ".py"), "/__init__"), "/", ".")
	if m := fastAPI.FindStringSubmatch(text); m != nil {
		bundled := strings.Contains(s.requirements+s.project+s.pipfile, "fastapi[")
		switch {
		case s.requires("uvicorn") || bundled:
			return Command{fmt.Sprintf("uvicorn %s:%s --host 0.0.0.0 --port $PORT", module, m[1]), file + " with uvicorn"}
		case s.requires("hypercorn"):
			return Command{fmt.Sprintf("hypercorn %s:%s --bind 0.0.0.0:$PORT", module, m[1]), file + " with hypercorn"}
		}
	}
	if m := flask.FindStringSubmatch(text); m != nil {
		switch {
		case s.requires("gunicorn"):
			return Command{fmt.Sprintf("gunicorn %s:%s --bind 0.0.0.0:$PORT", module, m[1]), file + " with gunicorn"}
		case s.requires("waitress"):
			return Command{fmt.Sprintf("waitress-serve --listen=0.0.0.0:$PORT %s:%s", module, m[1]), file + " with waitress"}
		case s.requires("flask"):
			return Command{fmt.Sprintf("flask --app %s:%s run --host 0.0.0.0 --port $PORT", module, m[1]), file + " with flask"}
		}
	}
	return Command{}
}

func (s pythonSource) django() bool { return isFile(s.src, "manage.py") && s.requires("django") }

// collects reports whether a settings file names a folder for static files.
func (s pythonSource) collects() bool {
	return slices.ContainsFunc(subfolders(s.src, "."), func(dir string) bool {
		return strings.Contains(readHead(s.src, path.Join(dir, "settings.py")), "STATIC_ROOT")
	})
}

func (s pythonSource) startDjango() Command {
	for _, dir := range subfolders(s.src, ".") {
		switch {
		case s.requires("gunicorn") && isFile(s.src, path.Join(dir, "wsgi.py")):
			return Command{fmt.Sprintf("gunicorn %s.wsgi --bind 0.0.0.0:$PORT", word(dir)), path.Join(dir, "wsgi.py") + " with gunicorn"}
		case s.requires("uvicorn") && isFile(s.src, path.Join(dir, "asgi.py")):
			return Command{fmt.Sprintf("uvicorn %s.asgi:application --host 0.0.0.0 --port $PORT", word(dir)), path.Join(dir, "asgi.py") + " with uvicorn"}
		}
	}
	return Command{"python3 manage.py runserver 0.0.0.0:$PORT", "manage.py"}
}
