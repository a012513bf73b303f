package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/berth-host/berth/internal/stack"
)

var dataLimits = DataLimits{MaxBytes: 1 << 20, MaxEntries: 20, Root: "/data"}

// dataTar writes entries as a tar; Size is that of Linkname for files, which have it as
// content.
func dataTar(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		content := ""
		if h.Typeflag == tar.TypeReg {
			content, h.Linkname = h.Linkname, ""
			h.Size = int64(len(content))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// listTar describes the entries of a tar.
func listTar(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	found, in := map[string]string{}, tar.NewReader(r)
	for {
		h, err := in.Next()
		if err == io.EOF {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		found[h.Name] = fmt.Sprintf("%c %o %d:%d %q %s", h.Typeflag, h.Mode, h.Uid, h.Gid, h.Uname, h.Linkname+string(content))
	}
}

func TestCopyData_KeepsFilesAndDropsWhatIsForeign(t *testing.T) {
	source := dataTar(
		t,
		tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755},
		tar.Header{Typeflag: tar.TypeDir, Name: "./sub", Mode: 0o4055, Uid: 5, Uname: "eve"},
		tar.Header{Typeflag: tar.TypeReg, Name: "./sub//a", Mode: 0o6640, Uid: 5, Gid: 6, Uname: "eve", Linkname: "content"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "sub/inside", Linkname: "../sub/a"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "absolute", Linkname: "/data/sub/a"},
		tar.Header{Typeflag: tar.TypeLink, Name: "hard", Linkname: "./sub/a"},
		tar.Header{Typeflag: tar.TypeChar, Name: "null", Devmajor: 1, Devminor: 3},
		tar.Header{Typeflag: tar.TypeFifo, Name: "./fifo"},
		tar.Header{Typeflag: tar.TypeLink, Name: "fifo again", Linkname: "fifo"},
	)
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write(source)
	z.Close()
	want := map[string]string{
		"sub/": `5 755 0:0 "" `, "sub/a": `0 640 0:0 "" content`, "sub/inside": `2 0 0:0 "" ../sub/a`,
		"absolute": `2 0 0:0 "" /data/sub/a`, "hard": `1 0 0:0 "" sub/a`,
	}
	for _, archive := range [][]byte{source, zipped.Bytes()} {
		var out bytes.Buffer
		if err := CopyData(t.Context(), &out, bytes.NewReader(archive), dataLimits); err != nil {
			t.Fatal(err)
		}
		if got := listTar(t, &out); !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

func TestCopyData_RefusesWhatLeadsOut(t *testing.T) {
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeReg, Name: "../a"},
		{Typeflag: tar.TypeReg, Name: "a/../../b"},
		{Typeflag: tar.TypeReg, Name: "/etc/passwd"},
		{Typeflag: tar.TypeReg, Name: "./"},
		{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "/etc/passwd"},
		{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "/database"},
		{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "/data/../etc"},
		{Typeflag: tar.TypeSymlink, Name: "a", Linkname: ".."},
		{Typeflag: tar.TypeSymlink, Name: "sub/a", Linkname: "../../b"},
		{Typeflag: tar.TypeLink, Name: "a", Linkname: "../b"},
		{Typeflag: tar.TypeLink, Name: "a", Linkname: "/etc/passwd"},
		{Typeflag: 'Z', Name: "a"},
	} {
		if h.Name == "./" {
			h.Name = "."
		}
		err := CopyData(t.Context(), io.Discard, bytes.NewReader(dataTar(t, h)), dataLimits)
		if stack.KindOf(err) != stack.Unprocessable || strings.Contains(err.Error(), "project") {
			t.Errorf("%c %s -> %s: %v", h.Typeflag, h.Name, h.Linkname, err)
		}
	}
}

func TestCopyData_RefusesWhatIsNoWholeArchive(t *testing.T) {
	whole := dataTar(t, tar.Header{Typeflag: tar.TypeReg, Name: "a", Mode: 0o644, Linkname: strings.Repeat("content ", 1000)})
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write(whole)
	z.Close()
	for name, archive := range map[string][]byte{
		"nothing": nil, "no entry": dataTar(t), "text": []byte("hello"), "a zip": []byte("PK\x03\x04" + strings.Repeat("x", 600)),
		"cut in a file": whole[:4000], "without its end": whole[:len(whole)-1024], "cut gzip": zipped.Bytes()[:zipped.Len()-9],
		"two tars": slices.Concat(whole, whole), "noise": bytes.Repeat([]byte("noise"), 1000),
	} {
		err := CopyData(t.Context(), io.Discard, bytes.NewReader(archive), dataLimits)
		if stack.KindOf(err) != stack.Unprocessable {
			t.Errorf("%s: %v", name, err)
		}
	}
	broken := errors.New("the connection broke")
	err := CopyData(t.Context(), io.Discard, io.MultiReader(bytes.NewReader(whole[:3000]), failing{broken}), dataLimits)
	if !errors.Is(err, broken) {
		t.Errorf("a body that breaks off: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestCopyData_SaysHowToPackData(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write([]byte("<html>"))
	z.Close()
	for what, archive := range map[string][]byte{
		"the upload is empty (0 bytes)": nil, "this is not a tar archive": bytes.Repeat([]byte("noise"), 1000),
		"this is an HTML page, not a tar or tar.gz": zipped.Bytes(), "this is a zip file, not a tar or tar.gz": []byte("PK\x03\x04"),
		"this is compressed with xz, not a tar or tar.gz":                              []byte("\xfd7zXZ\x00"),
		"the entry \"/etc/x\" leaves the archive's root: its name begins with a slash": dataTar(t, tar.Header{Typeflag: tar.TypeReg, Name: "/etc/x"}),
		"the entry \"../x\" leaves the archive's root: its name has a \"..\" in it":    dataTar(t, tar.Header{Typeflag: tar.TypeReg, Name: "../x"}),
	} {
		err := CopyData(t.Context(), io.Discard, bytes.NewReader(archive), dataLimits)
		if want := what + "; " + howToData; err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestCopyData_IsBounded(t *testing.T) {
	var many []tar.Header
	for i := range 21 {
		many = append(many, tar.Header{Typeflag: tar.TypeFifo, Name: fmt.Sprint(i)})
	}
	large := tar.Header{Typeflag: tar.TypeReg, Name: "a", Linkname: strings.Repeat("x", 600<<10)}
	other := large
	other.Name = "b"
	for _, headers := range [][]tar.Header{many, {large, other}} {
		err := CopyData(t.Context(), io.Discard, bytes.NewReader(dataTar(t, headers...)), dataLimits)
		if stack.KindOf(err) != stack.TooLarge {
			t.Errorf("%d entries: %v", len(headers), err)
		}
	}
	full := stack.NewError(stack.Unavailable, "no room")
	lim := dataLimits
	lim.Room = func(int64) error { return full }
	if err := CopyData(t.Context(), io.Discard, bytes.NewReader(dataTar(t, large)), lim); !errors.Is(err, full) {
		t.Errorf("without room: %v", err)
	}
}

func TestPackData_IsRelativeAndComesBack(t *testing.T) {
	source := dataTar(
		t,
		tar.Header{Typeflag: tar.TypeDir, Name: "data/", Mode: 0o755, Uid: 200001},
		tar.Header{Typeflag: tar.TypeReg, Name: "data/a", Mode: 0o600, Uid: 200001, ModTime: time.Unix(1000, 0), Linkname: "content"},
		tar.Header{Typeflag: tar.TypeLink, Name: "data/b", Linkname: "data/a"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "data/c", Linkname: "a"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "data/d", Linkname: "/data/a"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "data/e", Linkname: "/app/a"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "data/f", Linkname: "../app/a"},
	)
	var packed bytes.Buffer
	if err := PackData(&packed, bytes.NewReader(source), "data", dataLimits.Root); err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"./": `5 755 0:0 "" `, "a": `0 600 0:0 "" content`, "b": `1 0 0:0 "" a`, "c": `2 0 0:0 "" a`, "d": `2 0 0:0 "" /data/a`}
	if got := listTar(t, z); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	var back bytes.Buffer
	if err := CopyData(t.Context(), &back, &packed, dataLimits); err != nil {
		t.Fatal(err)
	}
	packed.Reset()
	if err := PackData(&packed, io.MultiReader(bytes.NewReader(source[:1600]), failing{io.ErrUnexpectedEOF}), "data", dataLimits.Root); err == nil {
		t.Error("a tar that breaks off was packed as if it were whole")
	}
}

// A symlink with several names is a symlink at each of them, wherever it leads from there.
func TestPackData_KeepsHardLinksToSymlinks(t *testing.T) {
	symlink := func(name, target string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: "data/" + name, Linkname: target}
	}
	again := func(name, target string) tar.Header {
		return tar.Header{Typeflag: tar.TypeLink, Name: "data/" + name, Linkname: "data/" + target}
	}
	source := dataTar(
		t,
		tar.Header{Typeflag: tar.TypeDir, Name: "data/", Mode: 0o755},
		symlink("kept", "a"), again("kept2", "kept"),
		symlink("late", "a/../b"), again("late2", "late"),
		symlink("deep/er/up", "../../a"), again("up2", "deep/er/up"), again("deep/up2", "deep/er/up"),
		symlink("out", "/etc"), again("out2", "out"),
		symlink("nearly", "../a"), again("deep/nearly2", "nearly"),
		symlink("through", "kept2/../a"),
	)
	var packed, back bytes.Buffer
	if err := PackData(&packed, bytes.NewReader(source), "data", dataLimits.Root); err != nil {
		t.Fatal(err)
	}
	if err := CopyData(t.Context(), &back, &packed, dataLimits); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"deep/nearly2": "../a", "deep/er/up": "../../a", "kept": "a", "kept2": "a", "late": "a/../b", "late2": "a/../b"}
	got := listTar(t, &back)
	for name, target := range want {
		if got[name] != `2 0 0:0 "" `+target {
			t.Errorf("%s: %q, want a symlink to %s", name, got[name], target)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%v", got)
	}
}

// packLinks returns the names of the symlinks, names and targets in turn, that PackData keeps.
func packLinks(t *testing.T, links ...string) []string {
	t.Helper()
	headers := []tar.Header{{Typeflag: tar.TypeDir, Name: "data/", Mode: 0o755}}
	for i := 0; i < len(links); i += 2 {
		headers = append(headers, tar.Header{Typeflag: tar.TypeSymlink, Name: "data/" + links[i], Linkname: links[i+1]})
	}
	var packed bytes.Buffer
	if err := PackData(&packed, bytes.NewReader(dataTar(t, headers...)), "data", dataLimits.Root); err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(&packed)
	if err != nil {
		t.Fatal(err)
	}
	kept := listTar(t, z)
	delete(kept, "./")
	return slices.Sorted(maps.Keys(kept))
}

func TestPackData_LeavesOutWhatMayLeadOutThroughOthers(t *testing.T) {
	plain := []string{"d1/d2", "..", "e", "d1/d2", "deep/er/still", "../../d1/d2/d1"}
	for target, kept := range map[string]bool{
		"d1/..": true, "d1/../x/../y": true, "d1/d2/d1/d2": true, "./d1/.//../d1": true, "d1/d2x/..": true, "/data/d1/..": true, "/data/../data/d1": true,
		"d1/d2/..": false, "d1/d2/../d1": false, "e/..": false, "e/../x": false, "./e/./../x": false, "/data/e/../x": false, "/data/../data/d1/d2/..": false,
		"d1/x/../d2/..": false, "deep/er/still/../..": false, "d1..": true, "..": false,
	} {
		want := []string{"d1/d2", "deep/er/still", "e"}
		if kept {
			want = append(want, "z")
		}
		for _, links := range [][]string{append(slices.Clone(plain), "z", target), append([]string{"z", target}, plain...)} {
			if got := packLinks(t, links...); !slices.Equal(got, want) {
				t.Errorf("z -> %s: %v, want %v", target, got, want)
			}
		}
	}
}

// The links that are kept of random trees lead inside when the kernel follows them.
func TestPackData_KeepsNoLinkThatLeadsOut(t *testing.T) {
	folders := []string{"a", "a/b", "a/b/c", "b", "b/c", "c"}
	steps := []string{"a", "b", "c", "x", "y", "z", "..", "..", "..", "."}
	followed := 0
	for seed := range uint64(50) {
		r, root := rand.New(rand.NewPCG(seed, 0)), filepath.Join(t.TempDir(), "data")
		for _, folder := range folders {
			if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		var tree []tar.Header
		for _, folder := range append(folders, ".") {
			for _, name := range []string{"x", "y", "z"} {
				target := make([]string, 1+r.IntN(6))
				for i := range target {
					target[i] = steps[r.IntN(len(steps))]
				}
				tree = append(tree, tar.Header{Typeflag: tar.TypeSymlink, Name: path.Join("data", folder, name), Linkname: strings.Join(target, "/")})
			}
		}
		r.Shuffle(len(tree), func(i, j int) { tree[i], tree[j] = tree[j], tree[i] })
		var packed bytes.Buffer
		if err := PackData(&packed, bytes.NewReader(dataTar(t, tree...)), "data", root); err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(&packed)
		if err != nil {
			t.Fatal(err)
		}
		kept := listTar(t, z)
		for _, h := range tree {
			name := strings.TrimPrefix(h.Name, "data/")
			if kept[name] == "" {
				continue
			}
			if err := os.Symlink(h.Linkname, filepath.Join(root, name)); err != nil {
				t.Fatal(err)
			}
		}
		for name := range kept {
			to, err := filepath.EvalSymlinks(filepath.Join(root, name))
			if err != nil {
				continue // it leads nowhere
			}
			if followed++; to != root && !strings.HasPrefix(to, root+"/") {
				t.Errorf("seed %d: %s leads to %s", seed, name, to)
			}
		}
	}
	if followed < 50 {
		t.Errorf("only %d links lead somewhere", followed)
	}
}

// A program can make as many links as it likes, as long as it likes.
func TestPackData_HoldsFewLinksInMemory(t *testing.T) {
	links := newDataLinks("/data")
	h := &tar.Header{Name: "link", Linkname: strings.Repeat("a/../", 800)}
	for range maxWaiting/len(h.Linkname) + 10 {
		if links.add(h) {
			t.Fatal("it is not waited for")
		}
	}
	if n := len(links.late()); n == 0 || n*(len(h.Name)+len(h.Linkname)) > maxWaiting {
		t.Errorf("%d links of %d bytes waited", n, len(h.Linkname))
	}
	links = newDataLinks("/data")
	links.add(&tar.Header{Name: "late", Linkname: "a/.."})
	h.Linkname = strings.Repeat("a", 1<<20)
	for n := range maxHeld>>20 + 10 {
		h.Name = fmt.Sprint("link", n)
		links.add(h)
	}
	if n := len(links.targets); n<<20 > maxHeld || n == 0 || len(links.late()) > 0 {
		t.Errorf("%d links are known, and %d of the late are written", n, len(links.late()))
	}
}

func TestCopyDump_RefusesAnotherFormat(t *testing.T) {
	format := DumpFormat{Magic: "PGDMP", HowTo: "make one with pg_dump -Fc"}
	for body, want := range map[string]string{
		"PGDMP dump": "", "": "the dump is empty", "PGD": format.HowTo, "CREATE TABLE a (b int);": format.HowTo,
	} {
		var out strings.Builder
		err := CopyDump(t.Context(), &out, strings.NewReader(body), format, dataLimits)
		switch {
		case want == "" && (err != nil || out.String() != body):
			t.Errorf("%s: %v, and %q was written", body, err, out.String())
		case want != "" && (stack.KindOf(err) != stack.Unprocessable || err.Error() != want || out.Len() > 0):
			t.Errorf("%q: %v, and %q was written", body, err, out.String())
		}
	}
}
