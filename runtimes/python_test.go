package runtimes

import (
	"testing"
	"testing/fstest"
)

func TestPython_InstallsIntoAnEnvironmentOfItsOwn(t *testing.T) {
	const venv = "python3 -m venv --clear .venv && "
	for file, want := range map[string]string{
		"requirements.txt: flask": venv + ".venv/bin/pip install -r requirements.txt",
		"uv.lock: ":               tool("uv", "sync --frozen --no-dev", "").Line,
		"poetry.lock: ":           tool("poetry", "install --no-interaction --no-root --only main", "").Line,
		"Pipfile.lock: {}":        tool("pipenv", "sync", "").Line,
		"Pipfile: [packages]":     tool("pipenv", "install --skip-lock", "").Line,
		"pyproject.toml: [build-system]\n[project]\n":     venv + ".venv/bin/pip install -e .",
		"pyproject.toml: [project]\ndependencies = []\n":  venv + listDependencies + " | .venv/bin/pip install -r /dev/stdin",
		"pyproject.toml: [tool.black]\nline-length = 9\n": "",
	} {
		plan, ok := detectPython(files(file, "main.py: "))
		if !ok || plan.Install.Line != want || plan.Start.Line != "python3 main.py" {
			t.Errorf("%s: %+v", file, plan)
		}
	}
}

func TestPython_ServesWithWhatTheProjectAsksFor(t *testing.T) {
	const flaskApp, fastApp = "app.py: app = Flask(__name__)\n", "main.py: from fastapi import FastAPI\n\napi = FastAPI(title='x')\n"
	for i, c := range []struct {
		src  fstest.MapFS
		want string
	}{
		{files("requirements.txt: flask\ngunicorn==23 # x\n", flaskApp), "gunicorn app:app --bind 0.0.0.0:$PORT"},
		{files("requirements.txt: Flask\nwaitress\n", flaskApp), "waitress-serve --listen=0.0.0.0:$PORT app:app"},
		{files("requirements.txt: Flask>=3\n", flaskApp), "flask --app app:app run --host 0.0.0.0 --port $PORT"},
		{files("requirements.txt: gunicorn-extras\n", flaskApp), "python3 app.py"},
		{files("requirements.txt: fastapi\nuvicorn[standard]\n", fastApp), "uvicorn main:api --host 0.0.0.0 --port $PORT"},
		{files("requirements.txt: fastapi[standard]\n", fastApp), "uvicorn main:api --host 0.0.0.0 --port $PORT"},
		{files("requirements.txt: fastapi\nhypercorn\n", fastApp), "hypercorn main:api --bind 0.0.0.0:$PORT"},
		{files("requirements.txt: fastapi\n", fastApp), "python3 main.py"},
		{files("pyproject.toml: [project]\ndependencies = [\"flask\", 'gunicorn>=2']\n", "app/__init__.py: app = Flask('x')"), "gunicorn app:app --bind 0.0.0.0:$PORT"},
		{files("Pipfile: [packages]\nflask = \"*\"\n", flaskApp), "flask --app app:app run --host 0.0.0.0 --port $PORT"},
		{files("requirements.txt: django", "manage.py: ", "shop/wsgi.py: "), "python3 manage.py runserver 0.0.0.0:$PORT"},
		{files("requirements.txt: django\nuvicorn", "manage.py: ", "shop/asgi.py: "), "uvicorn shop.asgi:application --host 0.0.0.0 --port $PORT"},
		{files("requirements.txt: requests", "server.py: "), "python3 server.py"},
		{files("requirements.txt: requests", "odd.py: "), ""},
	} {
		plan, ok := detectPython(c.src)
		if !ok || plan.Start.Line != c.want || c.want == "" && plan.Hint == "" {
			t.Errorf("%d: %+v", i, plan)
		}
	}
}

func TestPython_ReadsItsVersion(t *testing.T) {
	for file, want := range map[string]string{
		".python-version: 3.13.1":                                          "3.13 .python-version",
		".tool-versions: python 3.12.2":                                    "3.13 .tool-versions asks for 3.12.2, which is not offered; 3.13 is the nearest",
		"pyproject.toml: [project]\nrequires-python = \">=3.10\"\n":        "3.13 pyproject.toml",
		"pyproject.toml: [tool.poetry.dependencies]\npython = \"^3.11\"\n": "3.13 pyproject.toml",
		"Pipfile: [requires]\npython_version = \"3.13\"\n":                 "3.13 Pipfile",
		".python-version: pypy3.10":                                        " ",
	} {
		plan, _ := detectPython(files(file, "main.py: "))
		if got := plan.Version + " " + plan.VersionFrom; got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
}
