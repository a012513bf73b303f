package datadir

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStacks_AreTheFoldersOfStacksAlone(t *testing.T) {
	d := Dir(t.TempDir())
	none, err := d.Stacks()
	require.NoError(t, err)
	require.Empty(t, none)
	for _, name := range []string{"3f2a9c1b7d4e", "backup", "lost+found", "3F2A9C1B7D4E", "3f2a9c1b7d4e.old"} {
		require.NoError(t, os.MkdirAll(filepath.Join(string(d), "stacks", name), 0o700))
	}
	ids, err := d.Stacks()
	require.NoError(t, err)
	require.Equal(t, []string{"stk_3f2a9c1b7d4e"}, ids)
}

func TestSites_AreThoseOfTheGenerationsAskedFor(t *testing.T) {
	d := Dir(t.TempDir())
	const id = "stk_3f2a9c1b7d4e"
	for _, generation := range []int{1, 2, 12} {
		require.NoError(t, os.MkdirAll(d.Site(id, "web", generation), 0o700))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(d.Stack(id), "sites", "web", "gone"), 0o700))
	old := d.Sites(id, func(service string, attempt int) bool { return service == "web" && attempt < 12 })
	require.Equal(t, []string{d.Site(id, "web", 1), d.Site(id, "web", 2)}, old)
}

func TestKeepSource_MovesAnUploadWhichTheStackThenHas(t *testing.T) {
	d := Dir(t.TempDir())
	const id = "stk_3f2a9c1b7d4e"
	upload, err := d.TempDir()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(upload, "index.html"), []byte("hi"), 0o600))
	name, err := d.KeepSource(id, upload)
	require.NoError(t, err)
	kept := d.Source(id, name)
	require.NoDirExists(t, upload)
	require.FileExists(t, filepath.Join(kept, "index.html"))
	require.Equal(t, []string{kept}, d.Sources(id, ""))
	require.Empty(t, d.Sources(id, name))
	require.NoError(t, d.Sync(t.Context(), kept))
	require.True(t, d.Has(id))
	require.NoError(t, d.Remove(id))
	require.False(t, d.Has(id))
}

func TestRemoveFolders_GoesOnAfterAnError(t *testing.T) {
	d := Dir(t.TempDir())
	const id = "stk_3f2a9c1b7d4e"
	source, site := filepath.Join(d.sources(id), "one"), d.Site(id, "web", 1)
	for _, folder := range []string{source, site} {
		require.NoError(t, os.MkdirAll(folder, 0o700))
	}
	require.Error(t, d.RemoveFolders("not/.", source, site)) // os.RemoveAll refuses a path that ends like this
	require.NoDirExists(t, source)
	require.NoDirExists(t, site)
	require.NoError(t, d.RemoveFolders(source, site), "what is gone counts as removed")
}

// The name is that of earlier versions.
func TestPutOff_IsKeptInAFileOfTheStack(t *testing.T) {
	d := Dir(t.TempDir())
	const id = "stk_3f2a9c1b7d4e"
	require.Zero(t, d.LastPutOff(id, "web"))
	require.Error(t, d.PutOff(id, "web", errors.New("full")), "there is no such stack")
	require.NoError(t, os.MkdirAll(d.Stack(id), 0o700))
	require.NoError(t, d.PutOff(id, "web", errors.New("full")))
	require.WithinDuration(t, time.Now(), d.LastPutOff(id, "web"), time.Minute)
	require.Zero(t, d.LastPutOff(id, "api"))
	text, err := os.ReadFile(filepath.Join(d.Stack(id), "web.no-room"))
	require.NoError(t, err)
	require.Equal(t, "full\n", string(text))
}

// The names are those of the specification.
func TestLogs_RotateToOneCopyBesideTheFile(t *testing.T) {
	d := Dir(t.TempDir())
	const id = "stk_3f2a9c1b7d4e"
	log, _, err := d.OpenRunLog(id, "web", 100)
	require.NoError(t, err)
	for range 20 {
		_, err := log.Write([]byte("a line of a log\n"))
		require.NoError(t, err)
	}
	require.NoError(t, log.Close())
	entries, err := os.ReadDir(filepath.Dir(d.Log(id, "web", runLog)))
	require.NoError(t, err)
	require.Len(t, entries, 2)
	require.Equal(t, "web.run.log", entries[0].Name())
	require.Equal(t, "web.run.log.1", entries[1].Name())
}
