package builder

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/source/sourcetest"
	"github.com/berth-host/berth/internal/stack"
)

// many returns files that are worth a layer by their number.
func many() map[string]string {
	files := map[string]string{"server.js": "one"}
	for i := range largeFiles {
		files["assets/"+strconv.Itoa(i)] = ""
	}
	return files
}

// Of a service that runs nothing before it starts, a layer has nothing but the base image: the
// source alone decides.
func TestWantsSourceLayer_OfAServiceWithoutCommands(t *testing.T) {
	b := New(Config{Engine: enginetest.New(nil, "with source").Driver(enginetest.Options{})})
	wants := func(files map[string]string, had stack.SourceLayer, listing string) bool {
		job := layered(t, files)
		job.Spec.Install = ""
		p, err := b.plan(t.Context(), job, "base")
		require.NoError(t, err)
		require.Equal(t, job.key().Layer(job.Attempt), p.layer.Image)
		installed, ok := p.layer.Installed()
		require.True(t, ok)
		require.Empty(t, installed, "nothing of the source is in the layer")
		p.layer.Source = had
		wanted, err := b.WantsSourceLayer(t.Context(), Copy{Dir: job.Source, Digest: job.Digest, Layer: p.layer, Installed: installed, Listing: listing})
		require.NoError(t, err)
		return wanted
	}
	none := stack.SourceLayer{}
	require.False(t, wants(packages, none, ""))
	require.True(t, wants(many(), none, ""), "by their number")
	require.True(t, wants(map[string]string{"video": strings.Repeat("x", largeBytes+1)}, none, ""), "by their size")
	few := many()
	delete(few, "server.js")
	require.False(t, wants(few, none, ""), "as many as are copied soon enough")

	kept := sourcetest.Make(t, t.TempDir(), many())
	had := stack.SourceLayer{Image: "with source", Digest: kept.Digest()}
	files := many()
	files["server.js"] = "two"
	require.False(t, wants(files, had, kept.Dir()), "little differs from the source that the layer has")
	delete(files, "assets/0")
	files["assets/new"] = ""
	require.True(t, wants(files, had, kept.Dir()), "something is gone from it")
	require.True(t, wants(files, stack.SourceLayer{Image: "gone", Digest: kept.Digest()}, kept.Dir()), "it has no image any more")
	require.True(t, wants(many(), had, t.TempDir()), "it has no listing any more")
}
