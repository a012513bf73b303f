package supervisor

import (
	"bytes"
	"crypto/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/archive"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/source/sourcetest"
	"github.com/berth-host/berth/internal/stack"
)

// deployFolders asks for another generation from a source that holds one file in each
// folder.
func (w *world) deployFolders(id string, files map[string]string, specs ...stack.Spec) {
	w.t.Helper()
	pages := map[string]string{}
	for folder, content := range files {
		pages[folder+"/index.html"] = content
	}
	_, err := w.sup.Deploy(w.t.Context(), id, source.Upload{Manifest: &stack.Manifest{Services: specs}, Source: w.uploadOf(pages)}, nil)
	require.NoError(w.t, err)
}

func TestDeploy_TakesOverWhatWouldBeBuiltTheSameWay(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		web, docs := service("web"), pages("docs")
		web.Root, docs.Root = "web", "docs"
		st := w.live(service("web"))
		w.deployFolders(st.ID, map[string]string{"web": "1", "docs": "1"}, web, docs)
		first := w.serves(st.ID, 2)

		w.deployFolders(st.ID, map[string]string{"web": "1", "docs": "2"}, web, docs)
		second := w.serves(st.ID, 3)
		w.settle()
		require.Equal(t, first.Service("web").Image, second.Service("web").Image)
		require.Equal(t, []string{second.Service("web").Image}, imagesOf(w.there(st)))

		w.deployFolders(st.ID, map[string]string{"web": "1", "docs": "2"}, web, docs)
		third := w.serves(st.ID, 4)
		w.settle()
		require.Equal(t, first.Service("web").Image, third.Service("web").Image)
		require.NotEqual(t, second.Service("docs").Site, third.Service("docs").Site, "it is in the source, which is another one")
		require.Equal(t, []string{w.dir.Site(st.ID, "docs", third.Service("docs").Site)}, w.dir.Sites(st.ID, anySite))
		require.Equal(t, "2", w.body(third, "docs", "/"))
	})
}

// imagesOf returns the references of an inventory's images.
func imagesOf(there engine.Objects) (refs []string) {
	for _, image := range there.Images {
		refs = append(refs, image.Tags...)
	}
	return refs
}

func TestDeploy_CountsAttemptsAndKeepsTheSourceThatIsServed(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		first := w.get(st.ID)
		require.Equal(t, 1, first.Generation.Attempt)
		require.DirExists(t, w.dir.Source(st.ID, first.Generation.Source.Folder))

		w.command(exits(1))
		broken := service("web")
		broken.Builder, broken.Build = node, "make"
		w.deploy(st.ID, broken)
		rolled := w.await(st.ID, "the deploy to fail", func(st *stack.Stack) bool { return st.DeployError != "" })
		require.Equal(t, 2, rolled.Attempt)
		require.Equal(t, first.Generation, rolled.Generation)

		w.command(exits(0))
		w.deploy(st.ID, service("web"))
		live := w.serves(st.ID, 2)
		w.settle()
		require.Equal(t, 3, live.Generation.Attempt)
		require.Equal(t, engine.Key{Stack: st.ID, Service: "web"}.Layer(1), live.Service("web").Image)
		require.Equal(t, []string{w.dir.Source(st.ID, live.Generation.Source.Folder)}, w.dir.Sources(st.ID, ""))
	})
}

func TestDeploy_OfChangesNeedsTheSourceThatTheyAreFor(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(pages("web"))
		first := w.get(st.ID).Generation.Source
		deploy := func(over string) error {
			base, err := source.Load(w.dir.Source(st.ID, w.get(st.ID).Generation.Source.Folder), w.get(st.ID).Generation.Source.Digest)
			require.NoError(w.t, err)
			dir, err := w.dir.TempDir()
			require.NoError(w.t, err)
			src, _, err := base.Overlay(w.t.Context(), source.Changes{
				Archive: bytes.NewReader(sourcetest.Tar(w.t, map[string]string{rand.Text(): "new"})),
			}, dir, archive.Limits{MaxUnpacked: 1 << 20, MaxEntries: 100})
			require.NoError(w.t, err)
			require.NoError(w.t, src.Save(source.Manifest{}))
			_, err = w.sup.Deploy(w.t.Context(), st.ID, source.Upload{Source: src, Manifest: &stack.Manifest{Services: []stack.Spec{pages("web")}}, Over: over}, nil)
			return err
		}
		require.NoError(w.t, deploy(first.Digest))
		second := w.serves(st.ID, 2).Generation.Source
		w.settle()
		require.NotEqual(w.t, first.Digest, second.Digest)
		require.Equal(w.t, stack.Changed, stack.KindOf(deploy(first.Digest)), "another deploy came first")
		require.Equal(w.t, second, w.get(st.ID).Generation.Source)
		require.Equal(w.t, []string{w.dir.Source(st.ID, second.Folder)}, w.dir.Sources(st.ID, ""), "nothing is left of it")
	})
}
