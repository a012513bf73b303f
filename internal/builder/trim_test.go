package builder

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tool puts a cache of so many KiB into a folder, last read and last written so long ago.
func tool(t *testing.T, folder, name string, kib int, read, written time.Duration) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(folder, name, "sub"), 0o700))
	file := filepath.Join(folder, name, "sub", "file")
	require.NoError(t, os.WriteFile(file, make([]byte, kib<<10), 0o600))
	require.NoError(t, os.Chtimes(file, time.Now().Add(-read), time.Now().Add(-written)))
}

// trim runs the script on a folder, and returns the names that are left there.
func trim(t *testing.T, folder, bytes string) (left []string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-c", trimScript, "sh", "trim", bytes, folder).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Empty(t, string(out))
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	return left
}

func TestTrim_RemovesWholeToolsThatWereUsedLongestAgo(t *testing.T) {
	const hour, day = time.Hour, 24 * time.Hour
	for bytes, want := range map[string][]string{
		"1000000": {".hidden", "npm", "of a tenant\n1\n2", "read", "written"},
		"450000":  {".hidden", "npm", "read", "written"},
		"250000":  {"read", "written"},
		"1":       nil,
	} {
		folder := t.TempDir()
		tool(t, folder, "npm", 100, 3*day, 3*day)
		tool(t, folder, "of a tenant\n1\n2", 100, 9*day, 9*day)
		tool(t, folder, "read", 100, hour, 5*day)
		tool(t, folder, "written", 100, 2*hour, 2*hour)
		tool(t, folder, ".hidden", 100, 2*day, 2*day)
		look := exec.CommandContext(t.Context(), "sh", "-c", trimScript, "sh", "look", bytes, folder).Run()
		require.Equal(t, len(want) < 5, look != nil, "of %s bytes", bytes)
		require.Equal(t, want, trim(t, folder, bytes), "of %s bytes", bytes)
	}
}

func TestTrim_CountsSeveralNamesOfAFileOnce(t *testing.T) {
	folder := t.TempDir()
	tool(t, folder, "cargo", 100, 0, 0)
	for _, name := range []string{"second", "third"} {
		require.NoError(t, os.Link(filepath.Join(folder, "cargo", "sub", "file"), filepath.Join(folder, "cargo", name)))
	}
	require.Equal(t, []string{"cargo"}, trim(t, folder, "150000"))
}

// What a program may leave there: links that lead out, folders that take their owner's
// permissions away, and what an earlier attempt began to remove.
func TestTrim_RemovesWhatIsThereAndNothingElse(t *testing.T) {
	folder, outside := t.TempDir(), t.TempDir()
	tool(t, outside, "data", 1, 0, 0)
	tool(t, folder, ".removed", 1, 0, 0)
	require.Empty(t, trim(t, folder, "1000000"))

	require.NoError(t, os.Symlink(outside, filepath.Join(folder, "link")))
	require.NoError(t, os.Symlink(outside, filepath.Join(folder, ".removed")))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "-rf"), nil, 0o600))
	tool(t, folder, "go", 1, 0, 0)
	require.NoError(t, os.Chmod(filepath.Join(folder, "go", "sub"), 0o100))
	require.NoError(t, os.Chmod(filepath.Join(folder, "go"), 0o500))
	require.Empty(t, trim(t, folder, "1"))
	require.FileExists(t, filepath.Join(outside, "data", "sub", "file"))
}
