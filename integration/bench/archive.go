package main

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"
)

const (
	programManifest = `name: bench
services:
  - name: web
    runtime: ` + runtimeRef + `
    install: "true"
    build: "true"
    start: node server.js
`
	answerManifest = "name: answer\nservices:\n  - name: web\n    runtime: " + runtimeRef + "\n    install: \"\"\n    build: \"\"\n    start: ./answer\n"
	siteManifest   = "name: bench\nservices:\n  - name: web\n    runtime: static\n    publish: .\n"
)

// programSource answers with its generation and when it first answered, in
// milliseconds of Unix time. On request it writes 1 GB into its data folder,
// reports how many bytes have arrived, or ends.
const programSource = `const fs = require("fs"), path = require("path")
const data = process.env.DATA_DIR
let first

function fill() {
  const block = require("crypto").randomBytes(1e6)
  for (let n = 0; n < 1000; n++) fs.writeFileSync(path.join(data, "file" + n), block)
}

function size() {
  return fs.readdirSync(data).reduce((sum, name) => sum + fs.statSync(path.join(data, name)).size, 0)
}

require("http").createServer((request, answer) => {
  first ??= Date.now()
  if (request.url === "/exit") process.exit(1)
  if (request.url === "/fill") fill()
  answer.end(request.url === "/size" ? String(size()) : process.env.GENERATION + " " + first)
}).listen(process.env.PORT, "0.0.0.0")
`

// programArchive returns a program of 100 files.
func programArchive() ([]byte, error) {
	files := map[string]string{"stack.yaml": programManifest, "server.js": programSource}
	for n := range 98 {
		files[fmt.Sprintf("lib/module%02d.js", n)] = fmt.Sprintf("exports.value = %d\n", n) + strings.Repeat("// nothing to see\n", 100)
	}
	return archive(files)
}

// packagesArchive returns a program whose only package is for another system: npm ci has
// nothing to fetch, so that a host of packages does not count.
func packagesArchive() ([]byte, error) {
	const (
		wants = `"name": "bench", "optionalDependencies": {"fsevents": "2.3.3"}`
		fetch = `"version": "2.3.3", "optional": true, "os": ["darwin"], "resolved": "https://registry.npmjs.org/fsevents/-/fsevents-2.3.3.tgz"`
	)
	return archive(map[string]string{
		"stack.yaml":        "name: bench\nservices:\n  - name: web\n    runtime: " + runtimeRef + "\n    start: node server.js\n",
		"package.json":      `{` + wants + `}`,
		"package-lock.json": `{"name": "bench", "lockfileVersion": 3, "packages": {"": {` + wants + `}, "node_modules/fsevents": {` + fetch + `}}}`,
		"server.js":         programSource,
	})
}

// answerArchive returns the smallest possible program, already built.
func answerArchive(bin string) ([]byte, error) {
	program, err := os.ReadFile(filepath.Join(bin, "answer"))
	if err != nil {
		return nil, err
	}
	return archive(map[string]string{"stack.yaml": answerManifest, "answer": string(program)})
}

// siteArchive returns a site of 100 files of 10 KB.
func siteArchive() ([]byte, error) {
	page := strings.Repeat("<p>nothing to see</p>\n", 465)
	files := map[string]string{"stack.yaml": siteManifest, "index.html": page}
	for n := range 98 {
		files[fmt.Sprintf("pages/page%02d.html", n)] = page
	}
	return archive(files)
}

func archive(files map[string]string) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, text := range files {
		h := &tar.Header{Name: name, Mode: 0o755, Size: int64(len(text)), ModTime: time.Now()}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write([]byte(text)); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

// unpackByHand publishes a site the short way: with tar, into a folder that nginx
// already serves.
func unpackByHand(ctx context.Context, nginx *target, folder string, site []byte) (time.Duration, error) {
	dir, err := os.MkdirTemp(folder, "site")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return 0, err
	}
	return publishByHand(ctx, nginx, dir, site, path.Join(filepath.Base(dir), "index.html"))
}

// publishByHand unpacks files with tar below the folder that nginx serves, and returns
// how long that took up to the first answer at a path.
func publishByHand(ctx context.Context, nginx *target, dir string, files []byte, path string) (time.Duration, error) {
	start := time.Now()
	if err := untar(ctx, dir, files); err != nil {
		return 0, err
	}
	live, err := poll(ctx, "http://"+nginx.addr+"/"+path, "localhost")
	return live.Sub(start), err
}

// untar unpacks an archive in a folder with tar.
func untar(ctx context.Context, dir string, files []byte) error {
	cmd := exec.CommandContext(ctx, "tar", "-xf", "-", "-C", dir)
	cmd.Stdin = bytes.NewReader(files)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("tar: %w\n%s", err, out)
	}
	return nil
}
