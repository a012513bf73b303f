package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// headersOf lists a tar: name, type, mode, owner, link and content of each entry.
func headersOf(t *testing.T, b []byte) []string {
	t.Helper()
	var lines []string
	r := tar.NewReader(bytes.NewReader(b))
	for {
		h, err := r.Next()
		if err == io.EOF {
			return lines
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s %c %o %d:%d %s%s", h.Name, h.Typeflag, h.Mode, h.Uid, h.Gid, h.Linkname, content))
	}
}

func TestWriteTar_SendsTheTreeUnderItsPrefix(t *testing.T) {
	y := newYard(t)
	err := y.unpack(t, tarOf(t, withMode(fileItem("b/run", "#!"), 0o755), fileItem("a", "A"), symlinkItem("b/link", "../a"),
		symlinkItem("dangling", "later"), withMode(folderItem("c"), 0o700)))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"app": {
			"app/ 5 755 200001:200002 ", "app/a 0 644 200001:200002 A", "app/b/ 5 755 200001:200002 ",
			"app/b/link 2 777 200001:200002 ../a", "app/b/run 0 755 200001:200002 #!", "app/c/ 5 700 200001:200002 ",
			"app/dangling 2 777 200001:200002 later",
		},
		"": {
			"a 0 644 200001:200002 A", "b/ 5 755 200001:200002 ", "b/link 2 777 200001:200002 ../a",
			"b/run 0 755 200001:200002 #!", "c/ 5 700 200001:200002 ", "dangling 2 777 200001:200002 later",
		},
	}
	for prefix, want := range want {
		var b bytes.Buffer
		if err := WriteTar(t.Context(), tar.NewWriter(&b), y.root, prefix, 200001, 200002); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, headersOf(t, b.Bytes())); diff != "" {
			t.Errorf("prefix %q: %s", prefix, diff)
		}
	}
}

func TestWriteTar_ReadsNothingOutsideOfTheTree(t *testing.T) {
	y := newYard(t)
	for link, target := range map[string]string{"file": "../victim/keep", "folder": filepath.Join(y.base, "victim")} {
		if err := os.Symlink(target, filepath.Join(y.root, link)); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if err := WriteTar(t.Context(), tar.NewWriter(&b), y.root, "", 0, 0); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(b.Bytes(), []byte("untouched")) || len(headersOf(t, b.Bytes())) != 2 {
		t.Errorf("got %q", headersOf(t, b.Bytes()))
	}
}

func TestWriteTar_StopsWhenCancelled(t *testing.T) {
	y := newYard(t)
	if err := y.unpack(t, tarOf(t, fileItem("big", strings.Repeat("x", 1<<20)))); err != nil {
		t.Fatal(err)
	}
	for n := range 9 { // once for the entry, then for each of eight blocks
		err := WriteTar(&tired{t.Context(), n}, tar.NewWriter(io.Discard), y.root, "", 0, 0)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("asked %d times: got %v", n, err)
		}
	}
}

func TestWriteTar_ReportsItsWriter(t *testing.T) {
	y := newYard(t)
	if err := y.unpack(t, tarOf(t, smallFile)); err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	gone := errors.New("the engine is gone")
	r.CloseWithError(gone)
	if err := WriteTar(t.Context(), tar.NewWriter(w), y.root, "app", 0, 0); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
}

// TestUnpack_TakesWhatTarMakes uses the tar of this machine in all its formats.
func TestUnpack_TakesWhatTarMakes(t *testing.T) {
	program, err := exec.LookPath("tar")
	if err != nil {
		t.Skip("no tar here")
	}
	from := newYard(t)
	items := []item{fileItem("index.html", "<h1>"), withMode(fileItem("bin/run", "#!"), 0o755), symlinkItem("current", "bin"), folderItem("empty")}
	if err := from.unpack(t, tarOf(t, items...)); err != nil {
		t.Fatal(err)
	}
	sparse, err := os.Create(filepath.Join(from.root, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sparse.WriteAt([]byte("end"), 1<<20); err != nil {
		t.Fatal(err)
	}
	sparse.Close()
	for _, args := range []string{"-czf - .", "-cf - .", "-cSf - .", "--format=posix -cSzf - .", "--format=v7 -cf - .", "--format=oldgnu -cSzf - .", "-czf - index.html bin current empty sparse"} {
		t.Run(args, func(t *testing.T) {
			cmd := exec.Command(program, strings.Fields(args)...)
			cmd.Dir = from.root
			archive, err := cmd.Output()
			if err != nil {
				t.Skipf("this tar does not know it: %v", err)
			}
			to := newYard(t)
			if err := to.unpack(t, archive); err != nil {
				t.Fatal(err)
			}
			if was, is := listTree(t, from.root), listTree(t, to.root); was != is {
				t.Errorf("the tree changed on its way (%d bytes listed, then %d)", len(was), len(is))
			}
		})
	}
}
