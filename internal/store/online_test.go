package store_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
)

func TestCopyFile_IsTheDatabaseAsOfOneMoment(t *testing.T) {
	s := newFile(t).open(t)
	before := stack.New("before", []stack.Spec{{Name: "web"}}, stack.Now())
	require.NoError(t, s.Create(t.Context(), before, nil))
	path := filepath.Join(t.TempDir(), "copy.db")
	require.NoError(t, s.CopyFile(t.Context(), path))
	after := stack.New("after", []stack.Spec{{Name: "web"}}, stack.Now())
	require.NoError(t, s.Create(t.Context(), after, nil))

	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode())
	all, err := sqliteFile(path).open(t).All(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, before.ID, all[0].ID)
}

func TestCopyFile_KeepsNoChangeWaiting(t *testing.T) {
	s := newFile(t).open(t)
	done := make(chan error, 1)
	go func() {
		for range 20 {
			if err := s.Create(t.Context(), stack.New("one", []stack.Spec{{Name: "web"}}, stack.Now()), nil); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	dir := t.TempDir()
	for n := range 5 {
		path := filepath.Join(dir, string(rune('a'+n)))
		require.NoError(t, s.CopyFile(t.Context(), path))
		_, err := sqliteFile(path).open(t).All(t.Context())
		require.NoError(t, err)
	}
	require.NoError(t, <-done)
}

func TestCopyFile_LeavesAFileThatIsThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mine")
	require.NoError(t, os.WriteFile(path, []byte("mine"), 0o644))
	require.ErrorIs(t, newFile(t).open(t).CopyFile(t.Context(), path), fs.ErrExist)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "mine", string(text))
}
