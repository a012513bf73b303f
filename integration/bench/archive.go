package main

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
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
	programSource = `require("http").createServer((_, answer) => answer.end("ok\n")).listen(process.env.PORT, "0.0.0.0")` + "\n"
	siteManifest  = "name: bench\nservices:\n  - name: web\n    runtime: static\n    publish: .\n"
)

// programArchive is a program of 100 files.
func programArchive() ([]byte, error) {
	files := map[string]string{"stack.yaml": programManifest, "server.js": programSource}
	for n := range 98 {
		files[fmt.Sprintf("lib/module%02d.js", n)] = fmt.Sprintf("exports.value = %d\n", n) + strings.Repeat("// nothing to see\n", 100)
	}
	return archive(files)
}

// siteArchive is a site of 100 files of 10 KB.
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
		h := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), ModTime: time.Now()}
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

// unpackByHand publishes a site the short way: tar, into a folder that nginx
// serves already. The time runs from the start of tar.
func unpackByHand(ctx context.Context, nginx *target, folder string, site []byte) (time.Duration, error) {
	dir, err := os.MkdirTemp(folder, "site")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return 0, err
	}
	start := time.Now()
	cmd := exec.CommandContext(ctx, "tar", "-xf", "-", "-C", dir)
	cmd.Stdin = bytes.NewReader(site)
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("tar: %w\n%s", err, out)
	}
	live, err := poll(ctx, "http://"+nginx.addr+"/"+filepath.Base(dir)+"/index.html", "localhost")
	return live.Sub(start), err
}
