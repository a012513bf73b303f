package archive

import (
	"bytes"
	"crypto/sha256"
	"io/fs"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/stack"
)

func TestUnpackListed_ReturnsWhatItMade(t *testing.T) {
	later := time.Unix(1_800_000_000, 0)
	packed := tarOf(t,
		fileItem("b", "first"), folderItem("dir"), withMode(fileItem("dir/run", "#!"), 0o777),
		atTime(fileItem("b", "second"), later), hardLinkItem("a", "dir/run"), symlinkItem("link", "dir"), symlinkItem("out", "../x"))
	entries, lost, err := UnpackListed(t.Context(), bytes.NewReader(packed), t.TempDir(), wide)
	if err != nil || len(lost) != 1 {
		t.Fatal(lost, err)
	}
	run := Entry{Path: "dir/run", Mode: 0o755, Size: 2, Sum: sha256.Sum256([]byte("#!")), Modified: then.Unix()}
	linked := run
	linked.Path = "a"
	want := []Entry{
		linked,
		{Path: "b", Mode: 0o644, Size: 6, Sum: sha256.Sum256([]byte("second")), Modified: later.Unix()},
		{Path: "dir", Mode: fs.ModeDir | 0o755},
		run,
		{Path: "link", Mode: fs.ModeSymlink | 0o777, Target: "dir"},
	}
	if later.After(time.Now()) {
		entries[1].Modified = later.Unix() // a time in the future becomes that of the upload
	}
	if diff := cmp.Diff(want, entries); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

func TestEntries_LimitsThePathsTogether(t *testing.T) {
	tree := newFileTree()
	at := tree.root
	for range 15 {
		name := strings.Repeat("d", 250)
		tree.addNode(at, name, fileNode{kind: folderNode, facts: &facts{}})
		at = tree.child(at, name)
	}
	for i := range 9_000 {
		tree.addNode(at, strconv.Itoa(i), fileNode{kind: plainNode, facts: &facts{}})
	}
	if _, err := tree.entries(); stack.KindOf(err) != stack.Unprocessable {
		t.Errorf("got %v, want an unprocessable one", err)
	}
}

func TestUnpackChanges_TakesAnArchiveWithoutFiles(t *testing.T) {
	entries, _, err := UnpackChanges(t.Context(), bytes.NewReader(tarOf(t, symlinkItem("dir/link", "../elsewhere"))), t.TempDir(), wide)
	if err != nil {
		t.Fatal(err)
	}
	want := []Entry{
		{Path: "dir", Mode: fs.ModeDir | 0o755, Implied: true},
		{Path: "dir/link", Mode: fs.ModeSymlink | 0o777, Target: "../elsewhere"},
	}
	if diff := cmp.Diff(want, entries); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

func TestOuterLinks_AreThoseThatLeadOutThroughOthersToo(t *testing.T) {
	outer := OuterLinks([]Entry{
		{Path: "a", Mode: fs.ModeDir | 0o755},
		{Path: "a/up", Mode: fs.ModeSymlink | 0o777, Target: ".."},
		{Path: "circle", Mode: fs.ModeSymlink | 0o777, Target: "circle"},
		{Path: "file", Mode: 0o644},
		{Path: "out", Mode: fs.ModeSymlink | 0o777, Target: "a/up/../etc"},
	})
	var paths []string
	for _, e := range outer {
		paths = append(paths, e.Path)
	}
	if diff := cmp.Diff([]string{"circle", "out"}, paths); diff != "" {
		t.Errorf("outer (-want +got):\n%s", diff)
	}
	if lost := LostLinks(outer); len(lost) != 2 || lost[1].Entry != `"out" -> "a/up/../etc"` {
		t.Errorf("lost %v", lost)
	}
}
