package source

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/archive"
	"github.com/berth-host/berth/internal/stack"
)

// wide holds limits above what ordinary tests reach.
var wide = archive.Limits{MaxUnpacked: 1 << 30, MaxEntries: 100_000}

// item is an entry of an archive: a folder if its name ends in a slash, a symlink if it
// has a target, and otherwise a file.
type item struct {
	name, body, target string
	mode               int64
}

func file(name, body string) item { return item{name: name, body: body, mode: 0o644} }
func folder(name string) item     { return item{name: name + "/", mode: 0o755} }
func link(name, target string) item {
	return item{name: name, target: target}
}

func tarOf(t testing.TB, items ...item) *bytes.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, it := range items {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: it.name, Mode: it.mode, Size: int64(len(it.body)), ModTime: time.Unix(1_700_000_000, 0)}
		switch {
		case it.target != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, it.target
		case strings.HasSuffix(it.name, "/"):
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(it.body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(b.Bytes())
}

// kept returns a saved whole source with the items.
func kept(t testing.TB, items ...item) *Source {
	t.Helper()
	s, _, _, err := New(t.Context(), tarOf(t, items...), t.TempDir(), wide)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Save(Manifest{}); err != nil {
		t.Fatal(err)
	}
	return s
}

// project is a source with one of everything.
func project(t testing.TB) *Source {
	return kept(t,
		file("index.html", "<h1>one</h1>"),
		folder("src"), file("src/app.js", "one()"), file("src/lib/deep.js", "deep()"),
		item{name: "run.sh", body: "#!/bin/sh\n", mode: 0o755},
		folder("empty"), link("current", "src/lib"))
}

// look returns what is on disk below the tree: path to mode and content, or target.
func look(t testing.TB, s *Source) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(s.Tree(), func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == s.Tree() {
			return err
		}
		rel, _ := filepath.Rel(s.Tree(), name)
		info, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		switch {
		case d.Type() == fs.ModeSymlink:
			content, err = os.Readlink(name)
		case d.Type().IsRegular():
			var text []byte
			text, err = os.ReadFile(name)
			content = string(text)
		}
		found[rel] = fmt.Sprintf("%s %s", info.Mode(), content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// same fails unless the two have the same tree on disk and the same listing.
func same(t *testing.T, got, want *Source) {
	t.Helper()
	if diff := cmp.Diff(look(t, want), look(t, got)); diff != "" {
		t.Errorf("trees differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want.Entries(), got.Entries()); diff != "" {
		t.Errorf("listings differ (-want +got):\n%s", diff)
	}
	if got.Digest() != want.Digest() {
		t.Error("digests differ")
	}
}

func inode(t *testing.T, s *Source, name string) uint64 {
	t.Helper()
	info, err := os.Stat(filepath.Join(s.Tree(), name))
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Ino
}

func overlay(t testing.TB, base *Source, remove []string, items ...item) (*Source, []stack.Lost, error) {
	t.Helper()
	c := Changes{Delete: remove}
	if items != nil {
		c.Archive = tarOf(t, items...)
	}
	return base.Overlay(t.Context(), c, t.TempDir(), wide)
}

func TestNew_StripsTheOnlyFolder(t *testing.T) {
	got, name, _, err := New(t.Context(), tarOf(t, file("app/index.html", "x"), file("app/src/a", "y"), file("._app", "noise")), t.TempDir(), wide)
	if err != nil || name != "app" {
		t.Fatalf("name %q, %v", name, err)
	}
	same(t, got, kept(t, file("index.html", "x"), file("src/a", "y")))
}

func TestLoad_ReturnsWhatWasSaved(t *testing.T) {
	s := project(t)
	dir := t.TempDir()
	again, _, err := s.Overlay(t.Context(), Changes{}, dir, wide)
	if err != nil {
		t.Fatal(err)
	}
	given := Manifest{Name: "my \"stack\".yaml", Sealed: []byte("name: x\n\xff\x00")}
	if err := again.Save(given); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(dir, s.Digest())
	if err != nil {
		t.Fatal(err)
	}
	same(t, loaded, s)
	if diff := cmp.Diff(given, loaded.Manifest()); diff != "" {
		t.Error(diff)
	}
	if err := loaded.Check(); err != nil {
		t.Error(err)
	}
}

func TestLoad_RefusesADamagedListing(t *testing.T) {
	for name, damage := range map[string]func(text []byte) []byte{
		"missing":     func([]byte) []byte { return nil },
		"empty":       func([]byte) []byte { return []byte{} },
		"cut short":   func(text []byte) []byte { return text[:len(text)/2] },
		"one bit":     func(text []byte) []byte { text[len(text)/2] ^= 1; return text },
		"its end":     func(text []byte) []byte { return text[:len(text)-1] },
		"other lines": func(text []byte) []byte { return append(text, text...) },
	} {
		t.Run(name, func(t *testing.T) {
			s := project(t)
			text, err := os.ReadFile(listing(s.dir))
			if err != nil {
				t.Fatal(err)
			}
			if text = damage(text); text == nil {
				err = os.Remove(listing(s.dir))
			} else {
				err = os.WriteFile(listing(s.dir), text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			wantDamaged(t, func() error { _, err := Load(s.dir, s.Digest()); return err }())
		})
	}
	t.Run("of another tree", func(t *testing.T) {
		_, err := Load(project(t).dir, strings.Repeat("0", 64))
		wantDamaged(t, err)
	})
}

func wantDamaged(t *testing.T, err error) {
	t.Helper()
	if stack.KindOf(err) != stack.Conflict || !strings.Contains(err.Error(), "send the whole source") {
		t.Errorf("got %v, want a conflict that asks for the whole source", err)
	}
}

func TestOverlay_IsTheSameAsAWholeUpload(t *testing.T) {
	base := project(t)
	got, lost, err := overlay(t, base, []string{"./src/lib/", "empty"},
		file("src/app.js", "two()"), file("new/page.html", "new"), link("alias", "current/../app.js"))
	if err != nil || len(lost) != 0 {
		t.Fatal(lost, err)
	}
	same(t, got, kept(t,
		file("index.html", "<h1>one</h1>"), folder("src"), file("src/app.js", "two()"), file("new/page.html", "new"),
		item{name: "run.sh", body: "#!/bin/sh\n", mode: 0o755}, link("current", "src/lib"), link("alias", "current/../app.js")))
	same(t, base, project(t))
}

func TestOverlay_WritesOnlyWhatChanged(t *testing.T) {
	base := project(t)
	got, _, err := overlay(t, base, nil, file("src/app.js", "two()"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"index.html", "run.sh", "src/lib/deep.js"} {
		if inode(t, got, name) != inode(t, base, name) {
			t.Errorf("%s was written again", name)
		}
	}
	if inode(t, got, "src/app.js") == inode(t, base, "src/app.js") {
		t.Error("the changed file is that of the base")
	}
	if diff := cmp.Diff([]string{"src/app.js"}, got.written); diff != "" {
		t.Errorf("files to sync (-want +got):\n%s", diff)
	}
}

func TestOverlay_OfDeletionsAlone(t *testing.T) {
	got, _, err := overlay(t, project(t), []string{"src", "empty", "run.sh", "current"})
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, kept(t, file("index.html", "<h1>one</h1>")))
}

func TestOverlay_ReplacesAKindThatItDeletes(t *testing.T) {
	got, _, err := overlay(t, project(t), []string{"src", "index.html", "current"},
		file("src", "now a file"), file("index.html/a", "now a folder"), file("current/b", "was a link"))
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, kept(t, file("src", "now a file"), file("index.html/a", "now a folder"), file("current/b", "was a link"),
		item{name: "run.sh", body: "#!/bin/sh\n", mode: 0o755}, folder("empty")))
}

func TestOverlay_KeepsModes(t *testing.T) {
	base := kept(t, item{name: "run.sh", body: "one", mode: 0o755}, item{name: "private/", mode: 0o700}, file("private/a", "x"))
	got, _, err := base.Overlay(t.Context(), Changes{
		Archive: tarOf(t, file("run.sh", "two"), file("private/b", "y")), KeepModes: true,
	}, t.TempDir(), wide)
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, kept(t, item{name: "run.sh", body: "two", mode: 0o755},
		item{name: "private/", mode: 0o700}, file("private/a", "x"), file("private/b", "y")))
}

func TestOverlay_LinksCountInTheResult(t *testing.T) {
	base := kept(t, file("index.html", "x"), file("a/b/c/file", "y"), link("a/b/up", "../.."), link("through", "a/b/up/.."))
	if _, found := base.Find("through"); found {
		t.Fatal("a link that leads out was kept")
	}
	got, lost, err := overlay(t, base, nil, link("a/out", "b/up/../x"), link("a/in", "b/c/file"))
	if err != nil {
		t.Fatal(err)
	}
	if _, found := got.Find("a/out"); found || len(lost) != 1 {
		t.Errorf("a link that leads out through one of the base was kept; lost: %v", lost)
	}
	if _, found := got.Find("a/in"); !found {
		t.Error("a link that leads into the base was not kept")
	}
	if err := got.Check(); err != nil {
		t.Error(err)
	}
}

func TestOverlay_OfALinkThatIsLeftOutLeavesWhatItNames(t *testing.T) {
	base := kept(t, file("a", "one"), link("b", "c"), file("c", "two"), link("d", "a"))
	got, lost, err := overlay(t, base, nil,
		link("a", "/etc/passwd"), link("b", "../b"), link("c", "a"), file("new", "x"), link("out", "/etc"))
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, kept(t, file("a", "one"), link("b", "c"), file("c", "two"), link("d", "a"), file("new", "x")))
	var left []string
	for _, l := range lost {
		left = append(left, l.Entry)
	}
	want := []string{`"a" -> "/etc/passwd"`, `"b" -> "../b"`, `"c" -> "a"`, `"out" -> "/etc"`}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("left out (-want +got):\n%s", diff)
	}
	if got, _, err = overlay(t, base, []string{"a"}, link("a", "/etc/passwd")); err != nil {
		t.Fatal(err)
	}
	same(t, got, kept(t, link("b", "c"), file("c", "two"), link("d", "a")))
}

func TestOverlay_RefusesByName(t *testing.T) {
	for name, tt := range map[string]struct {
		remove []string
		items  []item
		want   string
	}{
		"nothing left":             {[]string{"src", "index.html", "empty", "run.sh", "current"}, nil, "no files are left"},
		"the root":                 {[]string{"."}, nil, "whole source"},
		"no name":                  {[]string{""}, nil, `""`},
		"a path outside":           {[]string{"../other"}, nil, `"../other"`},
		"an absolute path":         {[]string{"/etc"}, nil, `"/etc"`},
		"a way out and back":       {[]string{"src/../index.html"}, nil, `"src/../index.html"`},
		"not there":                {[]string{"src/none.js"}, nil, `"src/none.js"`},
		"not there, behind a link": {[]string{"current/deep.js"}, nil, `"current/deep.js"`},
		"deleted twice":            {[]string{"src", "src/"}, nil, `"src/" is to be deleted twice`},
		"an entry that escapes":    {nil, []item{file("../x", "x")}, `"../x"`},
		"a file for a folder":      {nil, []item{file("src", "x")}, `"src" is a folder in the source and a file`},
		"a link for a folder":      {nil, []item{link("src", "empty")}, `"src" is a folder in the source and a symlink`},
		"a folder for a file":      {nil, []item{folder("index.html")}, `"index.html" is a file in the source and a folder`},
		"a file below a file":      {nil, []item{file("index.html/x", "x")}, `"index.html" is a file in the source and a folder`},
		"a file through a link":    {nil, []item{file("current/x", "x")}, `"current" is a symlink in the source and a folder`},
		"only part is deleted":     {[]string{"src/lib"}, []item{file("src", "x")}, `"src"`},
		"a path twice":             {nil, []item{file("a", "x"), file("./a", "y")}, `"./a" is in the archive twice`},
		"a folder twice":           {nil, []item{folder("a"), folder("a")}, `"a/" is in the archive twice`},
		"a link and a file":        {nil, []item{link("a", "src"), file("a", "y")}, `"a" is in the archive twice`},
	} {
		t.Run(name, func(t *testing.T) {
			base := project(t)
			before := look(t, base)
			_, _, err := overlay(t, base, tt.remove, tt.items...)
			if stack.KindOf(err) != stack.Unprocessable || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an unprocessable one with %s", err, tt.want)
			}
			if diff := cmp.Diff(before, look(t, base)); diff != "" {
				t.Errorf("the base changed:\n%s", diff)
			}
		})
	}
}

func TestOverlay_LimitsCountForTheResult(t *testing.T) {
	base := kept(t, file("a", "12345"), file("b", "12345"))
	for name, lim := range map[string]archive.Limits{
		"entries": {MaxUnpacked: 1000, MaxEntries: 2},
		"bytes":   {MaxUnpacked: 14, MaxEntries: 10},
	} {
		t.Run(name, func(t *testing.T) {
			add := func(remove ...string) error {
				_, _, err := base.Overlay(t.Context(), Changes{Archive: tarOf(t, file("c", "12345")), Delete: remove}, t.TempDir(), lim)
				return err
			}
			if err := add(); stack.KindOf(err) != stack.Unprocessable {
				t.Errorf("got %v, want an unprocessable one", err)
			}
			if err := add("a"); err != nil {
				t.Errorf("with a file less: %v", err)
			}
		})
	}
}

func TestOverlay_NeverMixesWithADamagedBase(t *testing.T) {
	for name, damage := range map[string]func(tree string) error{
		"gone":           os.RemoveAll,
		"a file is gone": func(tree string) error { return os.Remove(filepath.Join(tree, "index.html")) },
		"another size":   func(tree string) error { return os.Truncate(filepath.Join(tree, "index.html"), 3) },
		"another content": func(tree string) error {
			return os.WriteFile(filepath.Join(tree, "src/lib/deep.js"), []byte("evil()"), 0o600)
		},
		"another mode": func(tree string) error { return os.Chmod(filepath.Join(tree, "run.sh"), 0o644) },
		"a folder is gone": func(tree string) error {
			return os.RemoveAll(filepath.Join(tree, "src/lib"))
		},
		"a link for a folder": func(tree string) error {
			lib := filepath.Join(tree, "src/lib")
			if err := os.Rename(lib, filepath.Join(tree, "elsewhere")); err != nil {
				return err
			}
			return os.Symlink("../elsewhere", lib)
		},
		"a link for a file": func(tree string) error {
			index := filepath.Join(tree, "index.html")
			if err := os.Rename(index, filepath.Join(tree, "elsewhere")); err != nil {
				return err
			}
			return os.Symlink("elsewhere", index)
		},
	} {
		t.Run(name, func(t *testing.T) {
			base := project(t)
			if err := damage(base.Tree()); err != nil {
				t.Fatal(err)
			}
			_, _, err := overlay(t, base, nil, file("src/app.js", "two()"))
			wantDamaged(t, err)
			wantDamaged(t, base.Check())
		})
	}
}

func TestOverlay_CopiesAFileWithTooManyLinks(t *testing.T) {
	base := kept(t, item{name: "run.sh", body: "x", mode: 0o755}, file("b", "y"))
	for i := 0; ; i++ {
		err := os.Link(filepath.Join(base.Tree(), "run.sh"), filepath.Join(base.dir, fmt.Sprint("link", i)))
		if err != nil {
			break // as many as the file system allows
		}
		if i == 70_000 {
			t.Skip("this file system allows more links than the test makes")
		}
	}
	got, _, err := overlay(t, base, nil, file("b", "z"))
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, kept(t, item{name: "run.sh", body: "x", mode: 0o755}, file("b", "z")))
}

func TestBelow_ReturnsAFoldersEntries(t *testing.T) {
	s := kept(t, file("a/x", "1"), file("a/b/y", "2"), file("a-b", "3"), file("a0", "4"), file("b", "5"))
	var paths []string
	for _, e := range s.Below("a") {
		paths = append(paths, e.Path)
	}
	if diff := cmp.Diff([]string{"a/b", "a/b/y", "a/x"}, paths); diff != "" {
		t.Error(diff)
	}
	if all := s.Below(""); len(all) != 7 {
		t.Errorf("%d entries in the root, want 7", len(all))
	}
}

func TestDigest_CountsNamesModesLinksAndContents(t *testing.T) {
	seen := map[string]string{}
	for name, items := range map[string][]item{
		"plain":   {file("a", "x"), file("b", "y")},
		"name":    {file("a", "x"), file("c", "y")},
		"mode":    {file("a", "x"), {name: "b", body: "y", mode: 0o755}},
		"link":    {file("a", "x"), link("b", "a")},
		"content": {file("a", "x"), file("b", "z")},
		"folder":  {file("a", "x"), file("b", "y"), folder("c")},
		"swapped": {file("a", "y"), file("b", "x")},
	} {
		digest := kept(t, items...).Digest()
		if other := seen[digest]; other != "" {
			t.Errorf("%s and %s have the same digest", name, other)
		}
		seen[digest] = name
	}
}

func TestOpen_ReturnsTheFileUnlessItIsDamaged(t *testing.T) {
	s := project(t)
	e, _ := s.Find("src/app.js")
	f, err := s.Open(e)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := os.Truncate(filepath.Join(s.Tree(), e.Path), 1); err != nil {
		t.Fatal(err)
	}
	_, err = s.Open(e)
	wantDamaged(t, err)
}

// BenchmarkOverlay_OneFileOf10000 measures an edit of a large source: load, overlay,
// save.
func BenchmarkOverlay_OneFileOf10000(b *testing.B) {
	var items []item
	for i := range 10_000 {
		items = append(items, file(fmt.Sprintf("pages/%02d/page-%03d.html", i%100, i/100), strings.Repeat("x", 2000)))
	}
	base := kept(b, items...)
	b.ResetTimer()
	for range b.N {
		dir := b.TempDir()
		loaded, err := Load(base.dir, base.Digest())
		if err != nil {
			b.Fatal(err)
		}
		made, _, err := loaded.Overlay(b.Context(), Changes{Archive: tarOf(b, file("pages/00/page-000.html", "changed"))}, dir, wide)
		if err == nil {
			err = made.Save(Manifest{})
		}
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := os.RemoveAll(dir); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
