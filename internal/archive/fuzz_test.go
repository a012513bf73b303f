package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-host/berth/internal/stack"
)

// FuzzUnpack unpacks anything. With repair, checksums of what looks like a
// header are put right first, so that changes get past them.
func FuzzUnpack(f *testing.F) {
	for _, c := range allHostile(f) {
		if len(c.bytes) < 64<<10 {
			f.Add(c.bytes, false)
			f.Add(c.bytes, true)
		}
	}
	lim := Limits{MaxUnpacked: 64 << 10, MaxEntries: 100}
	f.Fuzz(func(t *testing.T, data []byte, repair bool) {
		if repair {
			data = repaired(data)
		}
		y := newYard(t)
		_, err := Unpack(t.Context(), bytes.NewReader(data), y.root, lim)
		y.checkOutside(t)
		if err == nil {
			checkUnpacked(t, y.root, lim)
			checkRoundTrip(t, y.root, lim)
			y.checkOutside(t)
			return
		}
		var refusal *stack.Error
		if !errors.As(err, &refusal) || refusal.Kind != stack.Unprocessable || len(refusal.Detail) > 1000 {
			t.Errorf("not a refusal: %v", err)
		}
		if left := listTree(t, y.root); left != "" {
			t.Errorf("refused, but left on disk: %s", left)
		}
	})
}

func repaired(data []byte) []byte {
	data = bytes.Clone(data)
	for at := 0; at+512 <= len(data); at += 512 {
		b := data[at : at+512]
		if !bytes.HasPrefix(b[257:], []byte("ustar")) {
			continue
		}
		setChecksum(b)
	}
	return data
}

// checkUnpacked holds for every tree that was accepted.
func checkUnpacked(t *testing.T, dir string, lim Limits) {
	t.Helper()
	var size int64
	entries := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		entries++
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch mode := info.Mode(); mode &^ 0o755 {
		case fs.ModeDir:
			if mode&0o700 != 0o700 {
				t.Errorf("%q has mode %v", path, mode)
			}
		case 0:
			size += info.Size()
			if mode&0o600 != 0o600 {
				t.Errorf("%q has mode %v", path, mode)
			}
		default:
			if mode.Type() != fs.ModeSymlink {
				t.Errorf("%q has mode %v", path, mode)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if size > lim.MaxUnpacked || entries > lim.MaxEntries || entries == 0 {
		t.Errorf("%d entries of %d bytes were let through", entries, size)
	}
	checkLinks(t, dir)
	project, _, err := Root(dir)
	if err != nil {
		t.Fatal(err)
	}
	checkLinks(t, project)
}

// checkLinks follows every symlink below dir on disk.
func checkLinks(t *testing.T, dir string) {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type() != fs.ModeSymlink {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		if _, err := root.Stat(name); err != nil && strings.Contains(err.Error(), "escapes") {
			t.Errorf("symlink %q leads out: %v", path, err)
		}
		if to, err := filepath.EvalSymlinks(path); err == nil && to != dir && !strings.HasPrefix(to, dir+"/") {
			t.Errorf("symlink %q leads to %q", path, to)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// checkRoundTrip writes the tree to a tar and unpacks it again.
func checkRoundTrip(t *testing.T, dir string, lim Limits) {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := WriteTar(t.Context(), w, dir, "", 1, 1); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	again := t.TempDir()
	if _, err := Unpack(t.Context(), &b, again, lim); err != nil {
		t.Fatalf("what was unpacked and packed is refused: %v", err)
	}
	if was, is := listTree(t, dir), listTree(t, again); was != is {
		t.Errorf("was %q, and %q after packing and unpacking", was, is)
	}
}
