package builder

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPhraseOf_NamesTheLargestFiles(t *testing.T) {
	require.Equal(t, `; the largest files are "/app/a b" (10240 MiB, of which 0 MiB are on the disk), /app/c (3 MiB, of which 2 MiB are on the disk)`,
		phraseOf("10737418240 0 /app/a b\n3145728 2048 /app/c\n"))
	for _, odd := range []string{"", "odd\n", "1 2\n", "1\n", "\n\n"} {
		require.Empty(t, phraseOf(odd), odd)
	}
	forged := phraseOf("1 1 /" + strings.Repeat("x", 5000) + "\n" + strings.Repeat("1 1 /app/more\n", 100))
	require.Less(t, len(forged), 500, "it is bounded")
}

func TestLargestFiles_PrintsLengthsAndWhatIsOnTheDisk(t *testing.T) {
	dir := t.TempDir()
	hole := filepath.Join(dir, "a hole")
	require.NoError(t, os.WriteFile(hole, nil, 0o600))
	require.NoError(t, os.Truncate(hole, 5<<30))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "full"), make([]byte, 3<<20), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "small"), make([]byte, 1<<20), 0o600))
	script := strings.Replace(largestFiles, "find / ", "find '"+dir+"' ", 1)
	out, err := exec.CommandContext(t.Context(), "sh", "-c", script, "sh", strconv.Itoa(os.Getuid()), "2").Output()
	require.NoError(t, err)
	require.Equal(t, `; the largest files are "/app/a hole" (5120 MiB, of which 0 MiB are on the disk), /app/full (3 MiB, of which 3 MiB are on the disk)`,
		phraseOf(strings.ReplaceAll(string(out), dir, "/app")))
}
