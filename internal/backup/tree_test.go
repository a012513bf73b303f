package backup

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tree is a folder with files of each kind.
func tree(t *testing.T) *os.Root {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"key": "secret", "stacks/one/index.html": "page", "uploads/half/file": "half"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o640))
	}
	require.NoError(t, os.Symlink("index.html", filepath.Join(dir, "stacks/one/current")))
	socket, err := net.Listen("unix", filepath.Join(dir, "admin.sock"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = root.Close() })
	return root
}

func nothing(string) bool { return false }

func TestAddTree_HasAllButWhatIsSkipped(t *testing.T) {
	root := tree(t)
	var out bytes.Buffer
	a := NewArchive(&out, Manifest{At: moment})
	require.NoError(t, AddTree(a, root, "dir", func(name string) bool { return name == "key" || name == "uploads" }))
	require.NoError(t, a.Close())
	s := written(t, out.Bytes())
	m, err := s.Check(t.Context())
	require.NoError(t, err)
	require.Empty(t, m.Moving)
	dir := t.TempDir()
	require.NoError(t, s.Restore(t.Context(), dir, &elsewhere{}))
	for name, there := range map[string]bool{"key": false, "uploads": false, "admin.sock": false, "stacks/one/index.html": true, "stacks/one/current": true} {
		was, err := root.Lstat(name)
		require.NoError(t, err)
		is, err := os.Lstat(filepath.Join(dir, name))
		require.Equal(t, there, err == nil, name)
		if there && was.Mode().IsRegular() {
			require.Equal(t, was.Mode(), is.Mode())
			require.True(t, was.ModTime().Equal(is.ModTime()))
		}
	}
}

// changing is a backup during which something happens before a file is read.
type changing struct {
	to     *Archive
	name   string
	happen func() error
}

func (c changing) Add(e Entry, content io.Reader, moved func() bool) error {
	if e.Name == c.name {
		if err := c.happen(); err != nil {
			return err
		}
	}
	return c.to.Add(e, content, moved)
}

func (c changing) Miss(what string) { c.to.Miss(what) }

// Whoever uploads a source chooses its links. Those that stay inside as a kernel sees it are kept,
// whatever their texts look like, and no link keeps the rest from being kept or restored.
func TestAddTree_KeepsTheLinksThatStayInside(t *testing.T) {
	dir := t.TempDir()
	upload := filepath.Join(dir, "stacks/one/sources/a/tree")
	deep := "a/b/c/d/e/f/g/h/i/j"
	require.NoError(t, os.MkdirAll(filepath.Join(upload, deep), 0o700))
	inside := map[string]string{"deep": deep, "self": ".", "later": "not/there/../yet"}
	for up := range 11 {
		inside[fmt.Sprintf("up%d", up)] = "deep/" + strings.Repeat("../", up) + "y"
	}
	outside := map[string]string{
		"absolute": "/etc/passwd", "out": "../../../../../../etc", "through": "deep/" + strings.Repeat("../", 16) + "etc",
		"circle": "circle", "back": "up3/../" + strings.Repeat("../", 20),
	}
	for _, links := range []map[string]string{inside, outside} {
		for name, target := range links {
			require.NoError(t, os.Symlink(target, filepath.Join(upload, name)))
		}
	}
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	var out bytes.Buffer
	a := NewArchive(&out, Manifest{At: moment})
	require.NoError(t, AddTree(a, root, "dir", nothing))
	require.NoError(t, a.Close())

	s := written(t, out.Bytes())
	m, err := s.Check(t.Context())
	require.NoError(t, err)
	require.Len(t, m.Missing, len(outside))
	into := t.TempDir()
	require.NoError(t, s.Restore(t.Context(), into, &elsewhere{}))
	restored := filepath.Join(into, "stacks/one/sources/a/tree")
	for name, target := range inside {
		got, err := os.Readlink(filepath.Join(restored, name))
		require.NoError(t, err, name)
		require.Equal(t, target, got)
	}
	for name := range outside {
		_, err := os.Lstat(filepath.Join(restored, name))
		require.ErrorIs(t, err, os.ErrNotExist, name)
		require.Contains(t, strings.Join(m.Missing, "\n"), "dir/stacks/one/sources/a/tree/"+name+": ")
	}
}

func TestAddTree_MarksWhatChangesMeanwhile(t *testing.T) {
	const name = "stacks/one/index.html"
	for text, want := range map[string]string{"page with more": "page", "pa": "pa\x00\x00"} {
		root := tree(t)
		var out bytes.Buffer
		a := NewArchive(&out, Manifest{At: moment})
		require.NoError(t, AddTree(changing{a, "dir/" + name, func() error { return root.WriteFile(name, []byte(text), 0o640) }}, root, "dir", nothing))
		require.NoError(t, a.Close())
		s := written(t, out.Bytes())
		m, err := s.Check(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"dir/" + name}, m.Moving)
		dir := t.TempDir()
		require.NoError(t, s.Restore(t.Context(), dir, &elsewhere{}))
		got, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
}

func TestAddTree_SkipsWhatGoesMeanwhile(t *testing.T) {
	root := tree(t)
	a := NewArchive(io.Discard, Manifest{At: moment})
	c := changing{a, "dir/stacks/one", func() error { return root.RemoveAll("stacks/one") }}
	require.NoError(t, AddTree(c, root, "dir", nothing))
	require.NoError(t, a.Close())
	for _, e := range a.manifest.Entries {
		require.NotEqual(t, "dir/stacks/one/index.html", e.Name)
	}
}
