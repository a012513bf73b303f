package pack

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// write makes the files of a txtar text below a new folder.
func write(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range txtar.Parse([]byte(text)).Files {
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// packed packs a folder and returns the headers of its archive.
func packed(t *testing.T, dir string, include ...string) ([]tar.Header, Summary) {
	t.Helper()
	var b bytes.Buffer
	sum, err := Write(t.Context(), dir, include, &b)
	if err != nil {
		t.Fatal(err)
	}
	zip, err := gzip.NewReader(&b)
	if err != nil {
		t.Fatal(err)
	}
	var headers []tar.Header
	for entries := tar.NewReader(zip); ; {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return headers, sum
		}
		if err != nil {
			t.Fatal(err)
		}
		headers = append(headers, *h)
	}
}

// names are the packed names below the archive's one folder.
func names(t *testing.T, dir string, include ...string) []string {
	t.Helper()
	headers, _ := packed(t, dir, include...)
	var found []string
	for _, h := range headers {
		folder, name, _ := strings.Cut(h.Name, "/")
		if folder != filepath.Base(dir) {
			t.Errorf("%s is not below %s", h.Name, filepath.Base(dir))
		}
		found = append(found, name)
	}
	return found
}

func TestWrite_LeavesOutWhatTheRulesSay(t *testing.T) {
	for _, tt := range []struct {
		name, tree string
		include    []string
		want       string
	}{
		{"nothing to leave out", "-- b --\n-- a/c --\n", nil, "a/c b"},
		{"gitignore", "-- .gitignore --\n# made\n*.log\n!keep.log\n/dist\nbuild/\n-- a.log --\n-- keep.log --\n-- dist/x --\n-- sub/dist/x --\n-- sub/build/x --\n", nil, ".gitignore keep.log sub/dist/x"},
		{"gitignore with carriage returns", "-- .gitignore --\n*.log\r\n-- a.log --\n-- b --\n", nil, ".gitignore b"},
		{"gitignore with a long line", "-- .gitignore --\n#" + strings.Repeat(" long", 20_000) + "\n*.log\n-- a.log --\n-- b --\n", nil, ".gitignore b"},
		{"a folder's own gitignore", "-- a/.gitignore --\n/x\n-- a/x --\n-- x --\n", nil, "a/.gitignore x"},
		{"all but one folder", "-- .gitignore --\n/*\n!/web\n-- a --\n-- web/b --\n", nil, "web/b"},
		{"dockerignore", "-- .dockerignore --\n*.md\ndocs\n-- a.md --\n-- sub/a.md --\n-- docs/x --\n", nil, ".dockerignore sub/a.md"},
		{"dockerignore takes in again", "-- .dockerignore --\n*\n!web\n-- a --\n-- web/b --\n-- other/c --\n", nil, "web/b"},
		{"the manifest stays", "-- .dockerignore --\n*.yaml\nProcfile\n-- stack.yaml --\n-- Procfile --\n-- other.yaml --\n", nil, ".dockerignore Procfile stack.yaml"},
		{"never", "-- .git/HEAD --\n-- .env --\n-- .env.local --\n-- .envrc --\n-- a/node_modules/x --\n-- a/.env --\n-- b --\n", nil, "b"},
		{"a submodule's .git is a file", "-- sub/.git --\ngitdir: elsewhere\n-- sub/a --\n", nil, "sub/a"},
		{"secrets when asked", "-- .env --\n-- .env.local --\n-- a/.env --\n", []string{".env"}, ".env a/.env"},
		{"one secret when asked", "-- .env --\n-- a/.env --\n", []string{"/.env"}, ".env"},
		{"asked in an ignored folder", "-- .gitignore --\n/dist\n-- dist/a --\n-- dist/b/c --\n", []string{"./dist/b"}, ".gitignore dist/b/c"},
		{"asking for a folder asks for no secrets", "-- .gitignore --\n/dist\n-- dist/a --\n-- dist/.env --\n", []string{"dist"}, ".gitignore dist/a"},
		{"a folder with its modules when asked", "-- .gitignore --\n/dist\n-- dist/node_modules/a --\n-- node_modules/b --\n", []string{"dist"}, ".gitignore dist/node_modules/a"},
		{"modules with their modules when asked", "-- node_modules/a/node_modules/b/c --\n-- node_modules/.env --\n", []string{"node_modules"}, "node_modules/a/node_modules/b/c"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(strings.Fields(tt.want), names(t, write(t, tt.tree), tt.include...)); diff != "" {
				t.Errorf("packed (-want +got):\n%s", diff)
			}
		})
	}
}

const repository1 = `-- .git/info/exclude --
mine
-- .gitignore --
*.log
/site
-- apps/.gitignore --
out/
-- apps/web/a.log --
-- apps/web/mine --
-- apps/web/out/x --
-- apps/web/b --
-- apps/site/c --
-- site/a.log --
-- site/d --
`

func TestWrite_KnowsTheRulesOfTheRepositoryAbove(t *testing.T) {
	dir := write(t, repository1)
	if got := names(t, filepath.Join(dir, "apps", "web")); !slices.Equal(got, []string{"b"}) {
		t.Errorf("packed %v", got)
	}
}

func TestWrite_TakesAFolderThatTheRepositoryIgnores(t *testing.T) {
	dir := write(t, repository1)
	if got := names(t, filepath.Join(dir, "site")); !slices.Equal(got, []string{"a.log", "d"}) {
		t.Errorf("packed %v", got)
	}
}

func TestWrite_KeepsModesAndLinks(t *testing.T) {
	dir := write(t, "-- run.sh --\n#!/bin/sh\n-- a.txt --\nhello\n")
	if err := os.Chmod(filepath.Join(dir, "run.sh"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a.txt", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	headers, sum := packed(t, dir)
	var got []string
	for _, h := range headers {
		got = append(got, strings.Join([]string{filepath.Base(h.Name), h.FileInfo().Mode().String(), h.Linkname}, " "))
	}
	want := []string{"a.txt -rw-r--r-- ", "link Lrwxrwxrwx a.txt", "run.sh -rwxr-xr-x "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	if sum.Files != 2 || sum.Bytes != 16 {
		t.Errorf("summary %+v", sum)
	}
}

func TestWrite_SaysWhatItLeftOut(t *testing.T) {
	dir := write(t, "-- .gitignore --\n/dist\n-- dist/a/b --\n-- .env --\n-- c --\n")
	if _, sum := packed(t, dir, "dist/a/nothing"); !slices.Equal(sum.LeftOut, []string{".env", "dist"}) {
		t.Errorf("left out %v", sum.LeftOut)
	}
}

func TestWrite_IsTheSameForTheSameFolder(t *testing.T) {
	dir := write(t, "-- a --\n1\n-- b/c --\n2\n")
	var first, second bytes.Buffer
	for _, b := range []*bytes.Buffer{&first, &second} {
		if _, err := Write(t.Context(), dir, nil, b); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two archives of one folder differ")
	}
}

func TestWrite_Refuses(t *testing.T) {
	file := filepath.Join(write(t, "-- a --\n"), "a")
	bad := write(t, "-- .dockerignore --\n[\n-- a --\n")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name, dir string
		ctx       context.Context
		want      string
	}{
		{"no folder", filepath.Join(file, "b"), t.Context(), "not a directory"},
		{"a file", file, t.Context(), "it is not a folder"},
		{"bad rules", bad, t.Context(), ".dockerignore: "},
		{"cancelled", filepath.Dir(file), over, "context canceled"},
	} {
		_, err := Write(tt.ctx, tt.dir, nil, io.Discard)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one with %q", tt.name, err, tt.want)
		}
	}
}

func TestFolderName_IsSafe(t *testing.T) {
	for dir, want := range map[string]string{
		"/home/ana/shop": "shop", "/": "stack", "/a/..": "stack", `/a/b\c`: "bc", "/a/x\ny": "xy", "/a/._x": "stack", "/a/__MACOSX": "stack", "/a/Mein Laden": "Mein Laden",
	} {
		if got := folderName(dir); got != want {
			t.Errorf("folderName(%q) = %q, want %q", dir, got, want)
		}
	}
}
