// Package sourcetest makes sources for tests.
package sourcetest

import (
	"archive/tar"
	"bytes"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/berth-host/berth/internal/archive"
	"github.com/berth-host/berth/internal/source"
)

// Make saves a source in a folder, which it makes, from a map of paths to contents.
func Make(tb testing.TB, dir string, files map[string]string) *source.Source {
	tb.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		tb.Fatal(err)
	}
	src, _, _, err := source.New(tb.Context(), bytes.NewReader(Tar(tb, files)), dir, archive.Limits{MaxUnpacked: 1 << 30, MaxEntries: 100_000})
	if err == nil {
		err = src.Save(source.Manifest{})
	}
	if err != nil {
		tb.Fatal(err)
	}
	return src
}

// Tar returns an archive of the files.
func Tar(tb testing.TB, files map[string]string) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(files[name]))}
		if err := w.WriteHeader(h); err != nil {
			tb.Fatal(err)
		}
		if _, err := w.Write([]byte(files[name])); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}
