package disk

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestUsed_CountsWhatTheFilesTake(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, size int) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, make([]byte, size), 0o600))
		return path
	}
	size := func() int64 {
		bytes, err := Used(dir, func() error { return nil })
		require.NoError(t, err)
		return bytes
	}
	big := write("big", 1_000_000)
	one := size()
	require.InDelta(t, 1_000_000, one, 10_000)

	require.NoError(t, os.Link(big, filepath.Join(dir, "again")))
	require.Equal(t, one, size(), "a file with two names")

	require.NoError(t, os.Symlink("/", filepath.Join(dir, "link")))
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	sparse := write("sparse", 0)
	require.NoError(t, os.Truncate(sparse, 1<<40))
	require.InDelta(t, one, size(), 10_000, "a link, a pipe and a hole")

	for i := range 300 {
		write(filepath.Join("folder", strings.Repeat("x/", i%5), string(rune('a'+i%26))+strings.Repeat("y", i)[:i%100]), 5000)
	}
	require.Greater(t, size(), one+300*5000/2)
}

func TestUsed_EndsInAFolderThatIsTooDeep(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", 3*deepest)), 0o700))
	steps := 0
	_, err := Used(dir, func() error { steps++; return nil })
	require.NoError(t, err)
	require.Equal(t, deepest, steps)
}

func TestUsed_EndsWithTheErrorOfAStep(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	enough := errors.New("enough")
	_, err := Used(dir, func() error { return enough })
	require.ErrorIs(t, err, enough)
}
