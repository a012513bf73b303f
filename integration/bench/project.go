package main

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"strings"
)

// project is a source; each edit changes one line of it.
type project struct {
	files    map[string]string
	file     string // the one that is changed
	was, now string // a part of it before the changes, and what replaces it, with the number of the change
	shows    string // path at the public URL whose answer differs after each change
}

// whole returns an archive of the source after a change.
func (p *project) whole(n int) ([]byte, error) {
	files := maps.Clone(p.files)
	files[p.file] = p.changed(n)
	return archive(files)
}

// overlay returns an archive of the file that a change has changed.
func (p *project) overlay(n int) ([]byte, error) {
	return archive(map[string]string{p.file: p.changed(n)})
}

// changed returns the file after a change.
func (p *project) changed(n int) string {
	return strings.Replace(p.files[p.file], p.was, fmt.Sprintf(p.now, n), 1)
}

// add adds the files of a folder to the source.
func (p *project) add(folder fs.FS) error {
	return fs.WalkDir(folder, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(folder, name)
		p.files[name] = string(text)
		return err
	})
}

// guestbookManifest starts the example's API alone.
const guestbookManifest = "name: bench\nservices:\n  - name: web\n    runtime: " + runtimeRef + "\n    health: /healthz\n    env: {WEB_ORIGIN: \"*\"}\n"

// guestbook returns the example's API, which npm ci gives 71 packages.
func guestbook() (*project, error) {
	p := &project{
		files: map[string]string{"stack.yaml": guestbookManifest},
		file:  "server.js", was: "{ ok: true }", now: "{ ok: true, edit: %d }",
		shows: "/healthz",
	}
	return p, p.add(os.DirFS(path.Join("examples", "guestbook", "api")))
}

//go:embed testdata/site
var testdata embed.FS

// viteSite returns a site that Vite builds with some 200 packages.
func viteSite() (*project, error) {
	p := &project{
		files: map[string]string{"stack.yaml": "name: bench\nservices:\n  - name: web\n    runtime: static\n"},
		file:  "src/app.jsx", was: "edit 0", now: "edit %d",
		shows: "/", // it names the built files, whose names have their hashes
	}
	folder, err := fs.Sub(testdata, "testdata/site")
	if err != nil {
		return nil, err
	}
	return p, p.add(folder)
}

const (
	goPackages = 30

	goPart = `package part%02[1]d

import (
	"encoding/json"
	"fmt"
	"strings"
)

type note struct {
	Title string
	Texts []string
}

// Text returns a note as JSON.
func Text(n int) string {
	texts := strings.Fields(fmt.Sprintf("part %[1]d of %%d", n))
	text, err := json.Marshal(note{"edit 0", texts})
	if err != nil {
		return err.Error()
	}
	return string(text)
}
`
	goMain = `package main

import (
	"fmt"
	"log"
	"net/http"
	"os"
%s)

func main() {
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
%s	})
	log.Fatal(http.ListenAndServe(":"+os.Getenv("PORT"), nil))
}
`
)

// goProgram returns a program of 30 packages that needs no others than Go's own. The
// change is in one that main imports.
func goProgram() *project {
	p := &project{
		files: map[string]string{
			"stack.yaml": "name: bench\nservices:\n  - name: web\n    runtime: " + goRef + "\n",
			"go.mod":     "module bench\n\ngo 1.26\n",
		},
		file: "part00/part.go", was: "edit 0", now: "edit %d",
		shows: "/",
	}
	var imports, calls strings.Builder
	for n := range goPackages - 1 {
		p.files[fmt.Sprintf("part%02d/part.go", n)] = fmt.Sprintf(goPart, n)
		fmt.Fprintf(&imports, "\t\"bench/part%02d\"\n", n)
		fmt.Fprintf(&calls, "\t\tfmt.Fprintln(w, part%02d.Text(%d))\n", n, n)
	}
	p.files["main.go"] = fmt.Sprintf(goMain, imports.String(), calls.String())
	return p
}

// sitePages returns a static site of so many files of 1 KB.
func sitePages(count int) *project {
	text := strings.Repeat("<p>nothing to see</p>\n", 46)
	p := &project{
		files: map[string]string{"stack.yaml": siteManifest, "index.html": "<p>edit 0</p>\n" + text},
		file:  "index.html", was: "edit 0", now: "edit %d",
		shows: "/",
	}
	for n := range count - 1 {
		p.files[fmt.Sprintf("pages/%02d/page%05d.html", n%100, n)] = text
	}
	return p
}

// modules returns a Node program of so many files of 8 KB, which has no packages to
// install, with a build command or, with "", without one.
func modules(count int, build string) *project {
	text := strings.Repeat("// nothing to see, as in all the others\n", 205)
	p := &project{
		files: map[string]string{
			"stack.yaml": fmt.Sprintf("name: bench\nservices:\n  - name: web\n    runtime: %s\n    install: \"\"\n    build: %q\n    start: node server.js\n", runtimeRef, build),
			"server.js":  "const text = require(\"./lib/module0000.js\")\nrequire(\"http\").createServer((_, answer) => answer.end(text)).listen(process.env.PORT, \"0.0.0.0\")\n",
		},
		file: "lib/module0000.js", was: "edit 0", now: "edit %d",
		shows: "/",
	}
	for n := range count - 1 {
		p.files[fmt.Sprintf("lib/module%04d.js", n)] = "module.exports = \"edit 0\"\n" + text
	}
	return p
}
