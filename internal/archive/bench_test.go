package archive

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// projectOf is an archive of n files of 1 to 16 KB, twenty to a folder, whose
// content compresses about as well as source code does.
func projectOf(tb testing.TB, n int) []byte {
	words := []string{"const ", "return ", "function ", "(err) ", "=> ", "{\n", "}\n", "module.", "exports", " = ", "import "}
	rnd := rand.New(rand.NewPCG(1, 2))
	var items []item
	for i := range n {
		var b bytes.Buffer
		for size := 1<<10 + rnd.IntN(15<<10); b.Len() < size; {
			fmt.Fprintf(&b, "%s%x", words[rnd.IntN(len(words))], rnd.IntN(4096))
		}
		items = append(items, fileItem(fmt.Sprintf("app/src/part%d/file%d.js", i/20, i), b.String()))
	}
	return gzipped(tarOf(tb, items...))
}

// BenchmarkUnpack does not remove files between rounds: ext4 creates files slowly where
// some were just deleted, and an upload goes to a new folder.
func BenchmarkUnpack(b *testing.B) {
	for _, n := range []int{100, 8000} {
		archive := projectOf(b, n)
		b.Run(fmt.Sprintf("files=%d", n), func(b *testing.B) {
			base := b.TempDir()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				dir := filepath.Join(base, fmt.Sprint(i))
				if err := os.Mkdir(dir, 0o755); err != nil {
					b.Fatal(err)
				}
				if _, err := Unpack(b.Context(), bytes.NewReader(archive), dir, wide); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkWriteTar(b *testing.B) {
	dir := b.TempDir()
	if _, err := Unpack(b.Context(), bytes.NewReader(projectOf(b, 8000)), dir, wide); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := WriteTar(b.Context(), tar.NewWriter(io.Discard), dir, "app", 200001, 200001); err != nil {
			b.Fatal(err)
		}
	}
}
