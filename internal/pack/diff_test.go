package pack

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNewDiff_SendsWhatChangedAndRemovesWhatIsGone(t *testing.T) {
	one, two := File{Mode: "0644", SHA256: "1"}, File{Mode: "0644", SHA256: "2"}
	script, link := File{Mode: "0755", SHA256: "1"}, File{Mode: "0644", SHA256: "1", Link: true}
	base := map[string]File{
		"same": one, "content": one, "mode": one, "kind": one, "gone": one,
		"a/stays": one, "a/b/gone": one, "a/b/c/gone": one, "file": one, "folder/x": one, "folder/y/z": one,
	}
	now := map[string]File{
		"same": one, "content": two, "mode": script, "kind": link, "new/x": one,
		"a/stays": one, "file/x": one, "folder": one,
	}
	want := Diff{
		Send:   []string{"content", "file/x", "folder", "kind", "mode", "new/x"},
		Remove: []string{"a/b", "file", "folder", "gone"},
	}
	if diff := cmp.Diff(want, NewDiff(base, now)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if d := NewDiff(base, base); len(d.Send)+len(d.Remove) > 0 {
		t.Errorf("the same tree differs: %+v", d)
	}
}

func TestTree_HashesWhatItWrites(t *testing.T) {
	dir := write(t, "-- a.txt --\na\n-- b/c.txt --\nc\n")
	tree, err := Scan(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := tree.Files(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	sum, err := tree.WriteSome(t.Context(), []string{"b/c.txt"}, &packed)
	if err != nil {
		t.Fatal(err)
	}
	want := File{Mode: "0644", SHA256: "a3a5e715f0cc574a73c3f9bebb6bc24f32ffd5b67b387244c2c909da779a1478"}
	if files["b/c.txt"] != want || len(files) != 2 {
		t.Errorf("files %+v", files)
	}
	if diff := cmp.Diff(map[string]File{"b/c.txt": want}, sum.Packed); diff != "" || sum.Files != 1 {
		t.Errorf("packed %+v", sum)
	}
}
