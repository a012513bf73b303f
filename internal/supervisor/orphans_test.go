package supervisor

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFindOrphans_TakesOnlyFoldersOfStacks(t *testing.T) {
	s, _ := withStack(t)
	for _, name := range []string{"3f2a9c1b7d4e", "backup", "lost+found", "3F2A9C1B7D4E", "3f2a9c1b7d4e.old"} {
		require.NoError(t, os.MkdirAll(filepath.Join(s.stacksDir(), name), 0o700))
	}
	found, err := s.findOrphans(nil, nil, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"stk_3f2a9c1b7d4e"}, slices.Collect(maps.Keys(found)))
}
