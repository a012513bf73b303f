package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/stack"
)

// yard is a folder to unpack into, next to a victim.
type yard struct {
	base, root string
	before     []string
}

func newYard(tb testing.TB) *yard {
	tb.Helper()
	base := tb.TempDir()
	y := &yard{base: base, root: filepath.Join(base, "root")}
	for _, dir := range []string{y.root, filepath.Join(base, "victim", "folder")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	for _, name := range []string{"keep", "folder/keep"} {
		if err := os.WriteFile(filepath.Join(base, "victim", name), []byte("untouched"), 0o640); err != nil {
			tb.Fatal(err)
		}
	}
	y.before = y.outside(tb)
	return y
}

// outside lists everything outside the root, with modes, times and content.
func (y *yard) outside(tb testing.TB) []string {
	tb.Helper()
	var lines []string
	err := filepath.WalkDir(y.base, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == y.root {
			lines = append(lines, "root")
			return fs.SkipDir
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := fmt.Sprint(path, info.Mode(), info.ModTime())
		if sys, ok := info.Sys().(*syscall.Stat_t); ok { // a link made to it, or a change of its mode and back
			line += fmt.Sprint(sys.Ino, sys.Nlink, sys.Uid, sys.Gid, sys.Ctim)
		}
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += string(content)
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return lines
}

func (y *yard) checkOutside(tb testing.TB) {
	tb.Helper()
	if diff := cmp.Diff(y.before, y.outside(tb)); diff != "" {
		tb.Errorf("something outside of the root changed:\n%s", diff)
	}
}

func (y *yard) unpack(tb testing.TB, archive []byte) error {
	tb.Helper()
	_, err := Unpack(tb.Context(), bytes.NewReader(archive), y.root, wide)
	return err
}

// listTree names what is in dir, in order: "f=content", "d/" and "l->target".
func listTree(tb testing.TB, dir string) string {
	tb.Helper()
	var lines []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name := strings.TrimPrefix(path, dir+"/")
		switch d.Type() {
		case fs.ModeDir:
			name += "/"
		case fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			name += "->" + target
		case 0:
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name += "=" + string(content)
		default:
			return fmt.Errorf("%s is a %v", path, d.Type())
		}
		lines = append(lines, name)
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Join(lines, " ")
}

func wantRefusal(tb testing.TB, err error, fault string) {
	tb.Helper()
	var refusal *stack.Error
	if !errors.As(err, &refusal) || refusal.Kind != stack.Unprocessable {
		tb.Fatalf("got %v, want a refusal with %q", err, fault)
	}
	if !strings.Contains(refusal.Detail, fault) {
		tb.Errorf("refused with %q, want %q in it", refusal.Detail, fault)
	}
	if len(refusal.Detail) > 600 {
		tb.Errorf("the refusal has %d bytes", len(refusal.Detail))
	}
}

func TestUnpack_HoldsAgainstHostileArchives(t *testing.T) {
	cases := allHostile(t)
	if len(cases) < 60 {
		t.Errorf("only %d cases", len(cases))
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.lim.MaxEntries == 0 {
				c.lim = wide
			}
			y := newYard(t)
			_, err := Unpack(t.Context(), bytes.NewReader(c.bytes), y.root, c.lim)
			y.checkOutside(t)
			if c.fault != "" {
				wantRefusal(t, err, c.fault)
			} else if err != nil {
				t.Fatal(err)
			}
			if got := listTree(t, y.root); got != c.tree {
				t.Errorf("left on disk:\n%s\nwant:\n%s", got, c.tree)
			}
		})
	}
}

func TestUnpack_TellsWhatItLeavesOut(t *testing.T) {
	y := newYard(t)
	lost, err := Unpack(t.Context(), bytes.NewReader(tarOf(t, smallFile,
		specialItem(tar.TypeChar, "dev/null"), symlinkItem("in", "a.txt"), symlinkItem("out", "../\x1b[2J"),
		specialItem(tar.TypeFifo, "pipe"), symlinkItem("x", "y"), symlinkItem("y", "x"))), y.root, wide)
	if err != nil {
		t.Fatal(err)
	}
	const away = "a symlink that leads out of the project, or nowhere"
	if diff := cmp.Diff([]stack.Lost{
		{Entry: `"dev/null"`, Reason: "a device"},
		{Entry: `"pipe"`, Reason: "a FIFO"},
		{Entry: `"out" -> "../\x1b[2J"`, Reason: away},
		{Entry: `"x" -> "y"`, Reason: away},
		{Entry: `"y" -> "x"`, Reason: away},
	}, lost); diff != "" {
		t.Errorf("left out (-want +got):\n%s", diff)
	}
}

func TestUnpack_BoundsWhatItTells(t *testing.T) {
	y := newYard(t)
	long := strings.Repeat("x", 4000)
	lost, err := Unpack(t.Context(), bytes.NewReader(tarOf(t, smallFile, symlinkItem("l", "/"+long[1:]),
		specialItem(tar.TypeChar, "a"), specialItem(tar.TypeChar, "b"))), y.root, wide)
	if err != nil || len(lost) != 3 || len(lost[2].Entry) > 200 {
		t.Errorf("%v, %v", lost, err)
	}
	y = newYard(t)
	lost, err = Unpack(t.Context(), bytes.NewReader(tarOf(t, append([]item{smallFile}, repeated(specialItem(tar.TypeChar, "null"), 300)...)...)), y.root, wide)
	if err != nil || len(lost) != mostLost+1 || lost[mostLost].String() != "and 290 more" {
		t.Errorf("%v, %v", lost, err)
	}
}

func TestUnpack_RefusesEveryPlaceWhereAnArchiveCanBeCut(t *testing.T) {
	y := newYard(t)
	plain := tarOf(t, folderItem("d"), fileItem("d/f", "some content"), symlinkItem("l", "d"))
	packed := gzipped(plain)
	for n := range packed {
		wantRefusal(t, y.unpack(t, packed[:n]), "")
	}
	for n := range len(plain) - 1023 { // GNU tar and we take one zero block for the end
		wantRefusal(t, y.unpack(t, plain[:n]), "")
	}
	if got := listTree(t, y.root); got != "" {
		t.Errorf("left on disk: %s", got)
	}
}

func TestUnpack_KeepsAnOrdinaryTree(t *testing.T) {
	long := strings.Repeat("long/", 60) + "name"
	archive := tarOf(t, folderItem("./"), fileItem("./package.json", "{}"), withMode(fileItem("./bin/run", "#!"), 0o755),
		fileItem(long, "deep"), hardLinkItem("./copy", "./package.json"), symlinkItem("./bin/p", "../package.json"), folderItem("empty"))
	half := len(archive) / 2
	for name, archive := range map[string][]byte{
		"tar":                 archive,
		"tar.gz":              gzipped(archive),
		"two gzip streams":    joined(gzipped(archive[:half]), gzipped(archive[half:])),
		"an empty gzip first": joined(emptyMember, gzipped(archive), emptyMember),
		"padded to a record":  joined(archive, make([]byte, 9216)),
		"one zero block":      archive[:len(archive)-512],
	} {
		t.Run(name, func(t *testing.T) {
			y := newYard(t)
			if err := y.unpack(t, archive); err != nil {
				t.Fatal(err)
			}
			for _, part := range []string{"package.json={}", "bin/run=#!", long + "=deep", "copy={}", "bin/p->../package.json", "empty/"} {
				if got := listTree(t, y.root); !strings.Contains(" "+got+" ", " "+part+" ") {
					t.Errorf("%q is not in %s", part, got)
				}
			}
		})
	}
}

func TestUnpack_ModesAndTimes(t *testing.T) {
	y := newYard(t)
	year := 365 * 24 * time.Hour
	err := y.unpack(t, tarOf(t,
		withMode(folderItem("d"), 0o1777), withMode(folderItem("locked"), 0), withMode(fileItem("d/script", ""), 0o6755),
		withMode(fileItem("secret", ""), 0o400), withMode(fileItem("shared", ""), 0o666), withMode(fileItem("implied/x", ""), 0o111),
		atTime(fileItem("old", ""), time.Unix(-1000, 0)), atTime(fileItem("future", ""), time.Now().Add(10*year)), fileItem("then", "")))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{
		"d": fs.ModeDir | 0o755, "locked": fs.ModeDir | 0o700, "implied": fs.ModeDir | 0o755,
		"d/script": 0o755, "secret": 0o600, "shared": 0o644, "implied/x": 0o711,
	} {
		if info, err := os.Lstat(filepath.Join(y.root, name)); err != nil || info.Mode() != want {
			t.Errorf("%s: got %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
	for name, want := range map[string]time.Time{"old": time.Unix(0, 0), "then": then, "future": time.Now()} {
		if info, err := os.Lstat(filepath.Join(y.root, name)); err != nil || info.ModTime().Sub(want).Abs() > time.Minute {
			t.Errorf("%s: got %v, %v; want %v", name, info.ModTime(), err, want)
		}
	}
}

func TestUnpack_ReadsSparseFiles(t *testing.T) {
	y := newYard(t)
	err := y.unpack(t, tarOf(t,
		rawItem(paxHeader('x', "GNU.sparse.major", "1", "GNU.sparse.minor", "0", "GNU.sparse.name", "sparse", "GNU.sparse.realsize", "8")),
		rawItem(rawHeader('0', "n", 515)), rawItem(padded("1\n4\n3\n")), rawItem(padded("abc"))))
	if err != nil {
		t.Fatal(err)
	}
	if got := listTree(t, y.root); got != "sparse=\x00\x00\x00\x00abc\x00" {
		t.Errorf("got %q", got)
	}
}

func TestUnpack_PassesOnWhatItsReaderReports(t *testing.T) {
	y := newYard(t)
	broken := errors.New("the disk is gone")
	for _, archive := range [][]byte{tarOf(t, fileItem("a", strings.Repeat("a", 1<<20))), gzipped(tarOf(t, smallFile))} {
		for _, n := range []int{0, 5, len(archive) / 2, len(archive)} {
			r := io.MultiReader(bytes.NewReader(archive[:n]), iotest.ErrReader(broken))
			_, err := Unpack(t.Context(), r, y.root, wide)
			var refusal *stack.Error
			if !errors.Is(err, broken) || errors.As(err, &refusal) {
				t.Errorf("after %d bytes: got %v", n, err)
			}
		}
	}
	if got := listTree(t, y.root); got != "" {
		t.Errorf("left on disk: %s", got)
	}
}

// endless is the content of a file that never ends; it cancels when it was read.
type endless struct{ cancel func() }

func (e endless) Read(p []byte) (int, error) {
	e.cancel()
	return len(p), nil
}

func TestUnpack_StopsWhenCancelled(t *testing.T) {
	for name, start := range map[string][]byte{
		"in a file":          rawHeader('0', "file", 1_000_000_000),
		"in an empty stream": make([]byte, 512),
	} {
		t.Run(name, func(t *testing.T) {
			y := newYard(t)
			reason := errors.New("the client left")
			ctx, cancel := context.WithCancelCause(t.Context())
			r := io.MultiReader(bytes.NewReader(start), endless{func() { cancel(reason) }})
			if _, err := Unpack(ctx, r, y.root, wide); !errors.Is(err, reason) {
				t.Errorf("got %v", err)
			}
			if got := listTree(t, y.root); got != "" {
				t.Errorf("left on disk: %s", got)
			}
		})
	}
}

// tired is a context that is done after its Err has been called a number of times.
type tired struct {
	context.Context
	left int
}

func (c *tired) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

func TestUnpack_StopsInTheHolesOfASparseFile(t *testing.T) {
	y := newYard(t)
	archive := tarOf(t,
		rawItem(paxHeader('x', "GNU.sparse.major", "1", "GNU.sparse.minor", "0", "GNU.sparse.name", "holes", "GNU.sparse.realsize", "1000000000")),
		rawItem(rawHeader('0', "n", 512)), rawItem(padded("1\n0\n0\n")))
	_, err := Unpack(&tired{t.Context(), 20}, bytes.NewReader(archive), y.root, wide)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if got := listTree(t, y.root); got != "" {
		t.Errorf("left on disk: %s", got)
	}
}

func TestUnpack_NeedsAnEmptyFolder(t *testing.T) {
	y := newYard(t)
	occupied := filepath.Join(y.base, "victim")
	if _, err := Unpack(t.Context(), bytes.NewReader(tarOf(t, smallFile)), occupied, wide); err == nil {
		t.Error("unpacked into a folder with something in it")
	}
	y.checkOutside(t)
}

func TestRoot_FindsTheSingleFolder(t *testing.T) {
	for want, items := range map[string][]item{
		"":    {fileItem("app/a", ""), fileItem("b", "")},
		"one": {folderItem("one"), fileItem("one/a", ""), fileItem(".DS_Store", ""), fileItem("._one", ""), rawItem(paxHeader('g', "comment", "x")), specialItem('6', "pipe"), symlinkItem("out", "/")},
		"app": {folderItem("./"), fileItem("./app/a", "")},
	} {
		y := newYard(t)
		if err := y.unpack(t, tarOf(t, items...)); err != nil {
			t.Fatal(err)
		}
		root, name, err := Root(y.root)
		if err != nil || name != want || root != filepath.Join(y.root, want) {
			t.Errorf("got %q, %q, %v; want %q", root, name, err, want)
		}
	}
}

func TestRoot_IsNoSymlink(t *testing.T) {
	y := newYard(t)
	if err := os.Symlink(filepath.Join(y.base, "victim"), filepath.Join(y.root, "app")); err != nil {
		t.Fatal(err)
	}
	if root, name, err := Root(y.root); err != nil || name != "" || root != y.root {
		t.Errorf("got %q, %q, %v", root, name, err)
	}
}

// TestUnpack_WritesOnlyWhileThereIsRoom takes the room away at every step: before
// an entry, within a file, in the holes of one that is sparse, before a link.
func TestUnpack_WritesOnlyWhileThereIsRoom(t *testing.T) {
	full := stack.NewError(stack.Unavailable, "no room")
	for name, c := range map[string]struct {
		archive []byte
		atLeast int // times that it asks
	}{
		"folders":     {tarOf(t, smallFile, fileItem("a/b/c/d", "")), 1 + 1 + 4},
		"a file":      {tarOf(t, fileItem("large", strings.Repeat("x", 3*blockSize))), 1 + 3},
		"sparse file": {tarOf(t, rawItem(paxHeader('x', "GNU.sparse.major", "1", "GNU.sparse.minor", "0", "GNU.sparse.name", "holes", "GNU.sparse.realsize", fmt.Sprint(9*blockSize))), rawItem(rawHeader('0', "n", 512)), rawItem(padded("1\n0\n0\n"))), 1 + 9},
		"links":       {tarOf(t, smallFile, symlinkItem("a", "b"), symlinkItem("c", "d")), 2 + 2 + 2},
	} {
		t.Run(name, func(t *testing.T) {
			unpack := func(room int) (asked int, err error) {
				y := newYard(t)
				lim := wide
				lim.Room = func() error {
					if asked++; asked > room {
						return full
					}
					return nil
				}
				_, err = Unpack(t.Context(), bytes.NewReader(c.archive), y.root, lim)
				if got := listTree(t, y.root); err != nil && got != "" {
					t.Errorf("left on disk: %s", got)
				}
				return asked, err
			}
			steps, err := unpack(math.MaxInt)
			if err != nil || steps < c.atLeast {
				t.Fatalf("asked %d times, want at least %d; %v", steps, c.atLeast, err)
			}
			for room := range steps {
				if asked, err := unpack(room); !errors.Is(err, full) || asked != room+1 {
					t.Errorf("room for %d of %d steps: asked %d times, got %v", room, steps, asked, err)
				}
			}
		})
	}
}

// How many names a file may have is the file system's own: it is asked first.
func TestUnpack_RefusesMoreHardLinksThanTheDiskTakes(t *testing.T) {
	const names = 70_000
	probe := t.TempDir()
	if err := os.WriteFile(filepath.Join(probe, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	items, fault := []item{fileItem("f", "")}, ""
	for i := range names {
		name := fmt.Sprint("l", i)
		items = append(items, hardLinkItem(name, "f"))
		if fault == "" && errors.Is(os.Link(filepath.Join(probe, "f"), filepath.Join(probe, name)), syscall.EMLINK) {
			fault = name
		}
	}
	dir := t.TempDir()
	_, err := Unpack(t.Context(), bytes.NewReader(tarOf(t, items...)), dir, wide)
	if fault == "" {
		if err != nil {
			t.Fatalf("the disk takes %d names of a file, and the archive is refused: %v", names, err)
		}
		return
	}
	var refused *stack.Error
	if !errors.As(err, &refused) || refused.Kind != stack.Unprocessable || !strings.Contains(refused.Detail, `"`+fault+`"`) || !strings.Contains(refused.Detail, "hard link") {
		t.Errorf("got %v, want a refusal that names %s", err, fault)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%d entries are left, %v", len(left), err)
	}
}
