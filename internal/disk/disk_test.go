package disk

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFree_IsThatOfTheFoldersDisk(t *testing.T) {
	free, err := Free(t.TempDir())
	require.NoError(t, err)
	require.Positive(t, free.Bytes)
	require.Less(t, free.Bytes, int64(Endless))
	require.Positive(t, free.Inodes)
}

func TestFree_IsEndlessOnAnotherMachine(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	free, err := Free(dir)
	require.NoError(t, err)
	require.Equal(t, Space{Dir: dir, Bytes: Endless, Inodes: Endless}, free)
}
