package datadir

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPack_CarriesAStacksFilesToAnotherNode(t *testing.T) {
	const id = "stk_0123456789ab"
	from, to := Dir(t.TempDir()), Dir(t.TempDir())
	for name, text := range map[string]string{
		"sources/one/tree/index.html": "page", "sites/docs/g1/index.html": "docs", "logs/web.run.log": "line\n", "web.no-room": "full",
	} {
		path := filepath.Join(from.Stack(id), name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o640))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(from.Stack(id), "sites/web"), 0o700))
	require.NoError(t, os.Symlink("../../sources/one/tree", from.Site(id, "web", 1)))
	for _, logs := range []bool{false, true} {
		var packed bytes.Buffer
		require.NoError(t, from.Pack(id, logs, &packed))
		require.NoError(t, to.Unpack(id, &packed))
		_, err := os.Stat(to.Log(id, "web", runLog))
		require.Equal(t, logs, err == nil)
	}
	require.Equal(t, listed(t, from), listed(t, to))
	page, err := os.ReadFile(filepath.Join(to.Site(id, "web", 1), "index.html"))
	require.NoError(t, err)
	require.Equal(t, "page", string(page))
}

func TestUnpack_WritesNothingOutsideTheStack(t *testing.T) {
	for _, header := range []tar.Header{
		{Name: "../escaped", Typeflag: tar.TypeReg}, {Name: "/tmp/escaped", Typeflag: tar.TypeReg}, {Name: "pipe", Typeflag: tar.TypeFifo},
	} {
		var packed bytes.Buffer
		out := tar.NewWriter(&packed)
		require.NoError(t, out.WriteHeader(&header))
		require.NoError(t, out.Close())
		require.Error(t, Dir(t.TempDir()).Unpack("stk_0123456789ab", &packed), header.Name)
	}
}

// listed returns the modes, sizes and times of all files, and the links' targets.
func listed(t *testing.T, d Dir) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, fs.WalkDir(os.DirFS(string(d)), ".", func(path string, entry fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := entry.Info()
		require.NoError(t, err)
		all[path] = info.Mode().String()
		if info.Mode().IsRegular() {
			all[path] += info.ModTime().String() + string(rune(info.Size()))
		}
		return nil
	}))
	return all
}
