package builder

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
)

// What would not fit into the server's memory is refused when it is published,
// not when a server starts with it.
func TestPublishSource_BoundsThePaths(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "source", "dist", strings.Repeat(strings.Repeat("n", 250)+"/", 14))
	require.NoError(t, os.MkdirAll(folder, 0o700))
	here, err := os.OpenRoot(folder)
	require.NoError(t, err)
	defer here.Close()
	for i := 1000; i < 5600; i++ {
		require.NoError(t, here.WriteFile(strconv.Itoa(i)+strings.Repeat("n", 230)+".html", nil, 0o600))
	}
	err = publishSource(Job{
		Source: dir, Site: filepath.Join(dir, "site"), Log: io.Discard,
		Spec: &stack.Spec{Name: "web", Root: "source", Publish: "dist"},
	})
	var known *stack.Error
	require.ErrorAs(t, err, &known)
	require.Equal(t, stack.Unprocessable, known.Kind)
	require.Contains(t, known.Detail, `service web: the paths of all files and folders in the folder to publish, "dist", are 17 MiB together, and at most 16 MiB can be served`)
}
