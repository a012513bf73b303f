package builder

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/manifest"
	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/source/sourcetest"
	"github.com/berth-host/berth/internal/stack"
)

// siteJob is a job that publishes a folder of a source of files, in the folders of a
// stack.
func siteJob(t *testing.T, root, publish string, files map[string]string) Job {
	t.Helper()
	dir := t.TempDir()
	src := sourcetest.Make(t, filepath.Join(dir, "sources", "one"), files)
	return Job{
		Source: src.Dir(), Digest: src.Digest(), Attempt: 3, Site: filepath.Join(dir, "sites", "web", "g3"), Log: io.Discard,
		Spec: &stack.Spec{Name: "web", Runtime: stack.Runtime{Name: stack.Static}, Root: root, Publish: publish},
	}
}

// publishFault is the fault of a job that publishes nothing.
func publishFault(t *testing.T, job Job) string {
	t.Helper()
	var known *stack.Error
	require.ErrorAs(t, publishSource(job), &known)
	require.Equal(t, stack.Unprocessable, known.Kind)
	return known.Detail
}

func TestBuild_PublishesAFolderOfTheSourceAsARelativeLink(t *testing.T) {
	var log strings.Builder
	job := siteJob(t, "app", "dist", map[string]string{"app/dist/index.html": "page", "app/dist/a/app.js": "script", "app/main.js": "no", "main.js": "no"})
	job.Log = &log
	b := New(Config{Slots: 1})
	result, cleanUp, err := b.Build(t.Context(), job)
	require.NoError(t, err)
	cleanUp()
	require.Equal(t, Result{Site: 3, Linked: true}, result)
	require.Contains(t, log.String(), "published from dist; number of files: 2\n")

	to, err := os.Readlink(job.Site)
	require.NoError(t, err)
	require.Equal(t, "../../sources/one/tree/app/dist", to)
	dir, hidden, err := Linked(job.Site, job.Source)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(source.Tree(job.Source), "app", "dist"), dir)
	require.Empty(t, hidden)
}

func TestPublishSource_HidesTheManifestInTheArchivesRoot(t *testing.T) {
	files := map[string]string{"index.html": "page", "stack.yaml": "services:", "docs/stack.yaml": "of the docs", "docs/index.html": "page"}
	for _, tt := range []struct {
		root, publish string
		files         int
		hidden        []string
	}{
		{".", ".", 3, manifest.Files},
		{".", "", 3, manifest.Files},
		{".", "up", 3, manifest.Files}, // a link to the root
		{".", "docs", 2, nil},
		{"docs", ".", 2, nil},
	} {
		var log strings.Builder
		job := siteJob(t, tt.root, tt.publish, files)
		job.Log = &log
		require.NoError(t, os.Symlink(".", filepath.Join(source.Tree(job.Source), "up")))
		require.NoError(t, publishSource(job))
		require.Contains(t, log.String(), "number of files: "+strconv.Itoa(tt.files)+"\n")
		_, hidden, err := Linked(job.Site, job.Source)
		require.NoError(t, err)
		require.Equal(t, tt.hidden, hidden, "%s in %s", tt.publish, tt.root)
	}
}

func TestPublishSource_RefusesAFolderWithoutFiles(t *testing.T) {
	job := siteJob(t, ".", ".", map[string]string{"stack.yaml": "services:"})
	require.Contains(t, publishFault(t, job), `service web: the folder to publish, ".", is empty`)
	job = siteJob(t, ".", "stack.yaml", map[string]string{"stack.yaml": "services:"})
	require.Contains(t, publishFault(t, job), `service web: the folder to publish, "stack.yaml", is not in the source`)
}

func TestPublishSource_OfASourceThatIsGoneIsAConflict(t *testing.T) {
	job := siteJob(t, ".", ".", map[string]string{"index.html": "page"})
	require.NoError(t, os.RemoveAll(job.Source))
	require.Equal(t, stack.Conflict, stack.KindOf(publishSource(job)))
}

func TestMeasureSource_CountsWhatIsOnTheDisk(t *testing.T) {
	job := siteJob(t, ".", "dist", map[string]string{"dist/index.html": "page", "dist/assets/app.js": "script", "dist0": "no", "index.html": "page"})
	src, err := source.Load(job.Source, job.Digest)
	require.NoError(t, err)
	for _, folder := range []string{".", "dist", "dist/assets"} {
		files, paths, err := measure(filepath.Join(src.Tree(), folder))
		require.NoError(t, err)
		gotFiles, gotPaths := measureSource(src, folder)
		require.Equal(t, []int{files, paths}, []int{gotFiles, gotPaths}, folder)
	}
}

func TestLinked_RefusesWhatLeadsElsewhere(t *testing.T) {
	job := siteJob(t, ".", ".", map[string]string{"index.html": "page"})
	require.NoError(t, publishSource(job))
	_, _, err := Linked(job.Site, job.Source+"-other")
	require.ErrorIs(t, err, os.ErrNotExist)
	for _, to := range []string{job.Source, filepath.Dir(job.Source), "../../sources/one/tree/../..", t.TempDir()} {
		require.NoError(t, os.Remove(job.Site))
		require.NoError(t, os.Symlink(to, job.Site))
		_, _, err := Linked(job.Site, job.Source)
		require.ErrorContains(t, err, "which is not in "+source.Tree(job.Source), to)
	}
	require.NoError(t, os.Remove(job.Site))
	require.NoError(t, os.Mkdir(job.Site, 0o700))
	_, _, err = Linked(job.Site, job.Source)
	require.ErrorContains(t, err, "which is not in ", "a folder of its own is not a link")
}

// What would not fit into the server's memory is refused when it is published,
// not when a server starts with it.
func TestPublished_BoundsThePaths(t *testing.T) {
	job := siteJob(t, ".", "dist", map[string]string{"dist/index.html": "page"})
	require.NoError(t, job.published("dist", 1, maxPaths))
	require.ErrorContains(t, job.published("dist", 1, maxPaths+1),
		`service web: the paths of all files and folders in the folder to publish, "dist", are 17 MiB together, and at most 16 MiB can be served`)
}
