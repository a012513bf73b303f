package builder

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/source/sourcetest"
	"github.com/berth-host/berth/internal/stack"
)

const node = "node"

// layered returns a job with a source of files whose install reads what npm reads.
func layered(t *testing.T, files map[string]string) Job {
	src := sourcetest.Make(t, t.TempDir(), files)
	spec := &stack.Spec{Name: "api", Root: "api", Install: "npm install", Runtime: stack.Runtime{Name: node}, Builder: stack.Runtime{Name: node}}
	return Job{
		Stack: &stack.Stack{ID: "stk_3f2a9c1b7d4e", Seq: 1}, Spec: spec, Generation: 4, Attempt: 7,
		Source: src.Dir(), Digest: src.Digest(), Env: map[string]string{"TOKEN": "secret", "GENERATION": "4"}, Log: io.Discard,
	}
}

var packages = map[string]string{
	"api/package.json": `{"dependencies": {"a": "1"}}`,
	"api/.npmrc":       "token=secret",
	"api/server.js":    "one",
	"README.md":        "",
}

func hashed(t *testing.T, b *Builder, job Job, base string) map[string]string {
	t.Helper()
	inputs := job.installInputs()
	hashes, err := b.hashInputs(job, base, &inputs)
	require.NoError(t, err)
	return hashes
}

func TestLayer_IsKeyedByWhatInstallSees(t *testing.T) {
	b := New(Config{LayerKey: []byte("key")})
	type change func(files map[string]string, job *Job) (base string)
	difference := func(change change) string {
		files := maps.Clone(packages)
		change(files, &Job{Spec: &stack.Spec{}, Env: map[string]string{}})
		job := layered(t, files)
		base := change(map[string]string{}, &job)
		job.Layer.Inputs = hashed(t, b, layered(t, packages), "base")
		return job.difference(hashed(t, b, job, base), "api/package.json")
	}
	for want, c := range map[string]change{
		"": func(f map[string]string, _ *Job) string { f["api/server.js"], f["web/new"] = "two", ""; return "base" },
		"package.json changed": func(f map[string]string, _ *Job) string {
			f["api/package.json"] = `{"dependencies": {"a": "2"}}`
			return "base"
		},
		".npmrc is gone":          func(f map[string]string, _ *Job) string { delete(f, "api/.npmrc"); return "base" },
		"../.npmrc is new":        func(f map[string]string, _ *Job) string { f[".npmrc"] = ""; return "base" },
		"the base image changed":  func(map[string]string, *Job) string { return "newer" },
		"its environment changed": func(_ map[string]string, j *Job) string { j.Env["TOKEN"] = "other"; return "base" },
	} {
		require.Equal(t, want, difference(c))
	}
	require.Empty(t, difference(func(_ map[string]string, j *Job) string { j.Env["GENERATION"] = "5"; return "base" }))
	job := layered(t, packages)
	require.Equal(t, "for the first time", job.difference(hashed(t, b, job, "base"), ""))
	job.Stack.CachesDropped = 1
	require.Equal(t, "nothing of earlier builds is kept", job.difference(hashed(t, b, job, "base"), ""))
	job.Stack.LastDeploy.Fresh = true
	require.Equal(t, "a fresh build was asked for", job.difference(hashed(t, b, job, "base"), ""))
}

// What turned out when something was installed counts until something else is.
func TestPlan_RemembersThatInstallNeedsTheWholeSource(t *testing.T) {
	b := New(Config{LayerKey: []byte("key")})
	plan := func(files map[string]string) (plan, string) {
		var log bytes.Buffer
		job := layered(t, files)
		job.Layer = stack.Layer{Inputs: hashed(t, b, layered(t, packages), "base"), Whole: "a has an install script"}
		job.Log = &log
		p, err := b.plan(t.Context(), job, "base")
		require.NoError(t, err)
		require.False(t, p.taken)
		return p, log.String()
	}
	files := maps.Clone(packages)
	files["api/server.js"] = "two"
	p, log := plan(files)
	require.Equal(t, "install: run with the whole source (a has an install script)\n", log)
	require.False(t, p.isLayered())
	require.Equal(t, "a has an install script", p.layer.Whole)
	files["api/package.json"] = `{"dependencies": {"b": "1"}}`
	p, log = plan(files)
	require.Equal(t, "install: run (package.json changed)\n", log)
	require.True(t, p.isLayered())
	require.Empty(t, p.layer.Whole)
}

// What is kept shows neither the environment nor the contents of a file to whoever does
// not have the installation's key, and nothing of one stack equals that of another.
func TestLayer_HashesAreKeyed(t *testing.T) {
	job := layered(t, packages)
	first := hashed(t, New(Config{LayerKey: []byte("key")}), job, "base")
	other := hashed(t, New(Config{LayerKey: []byte("other")}), job, "base")
	job.Stack = &stack.Stack{ID: "stk_ffffffffffff", Seq: 1}
	another := hashed(t, New(Config{LayerKey: []byte("key")}), job, "base")
	require.Contains(t, first, "/api/.npmrc")
	for name, hash := range first {
		require.Len(t, hash, 32)
		require.NotEqual(t, hash, other[name], name)
		require.NotEqual(t, hash, another[name], name)
	}
}

// names returns what a tar has, folders with a slash.
func names(t *testing.T, text []byte) (all []string) {
	for r := tar.NewReader(bytes.NewReader(text)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, h.Name)
	}
}

func TestInstall_GetsWhatItReadsAlone(t *testing.T) {
	files := maps.Clone(packages)
	files["web/index.html"], files["api/lib/x.js"] = "", ""
	job := layered(t, files)
	w := &work{cfg: &Config{}, job: job, base: "base"}
	w.plan.inputs = job.installInputs()
	x := w.box("install", "base", only(append(w.plan.inputs.Files, job.Spec.Root)))
	var b bytes.Buffer
	require.NoError(t, x.writeTree(t.Context(), &b))
	require.Equal(t, []string{"etc/passwd", "etc/group", "home/app/", "data/", "app/", "app/api/", "app/api/.npmrc", "app/api/package.json"}, names(t, b.Bytes()))

	y := w.box("build", "layer", without(w.plan.inputs.Files))
	b.Reset()
	require.NoError(t, y.writeTree(t.Context(), &b))
	require.Equal(t, []string{"app/", "app/README.md", "app/api/", "app/api/lib/", "app/api/lib/x.js", "app/api/server.js", "app/web/", "app/web/index.html"}, names(t, b.Bytes()))
}

func TestBegin_RefusesASourceThatIsNotAsItWasKept(t *testing.T) {
	b := New(Config{})
	begin := func(job Job) ([]string, error) {
		_, write, err := b.Begin(t.Context(), Copy{Dir: job.Source, Digest: job.Digest, Layer: stack.Layer{Image: "layer"}, Installed: []string{"api/package.json"}})
		if err != nil {
			return nil, err
		}
		var text bytes.Buffer
		require.NoError(t, write(t.Context(), &text))
		return names(t, text.Bytes()), nil
	}
	written, err := begin(layered(t, packages))
	require.NoError(t, err)
	require.Equal(t, []string{"app/", "app/README.md", "app/api/", "app/api/.npmrc", "app/api/server.js"}, written)
	for name, damage := range map[string]func(dir string) error{
		"a file is gone": func(dir string) error { return os.Remove(filepath.Join(dir, "tree/api/server.js")) },
		"a file is larger": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "tree/api/server.js"), []byte("longer"), 0o600)
		},
		"the whole is gone": os.RemoveAll,
	} {
		job := layered(t, packages)
		require.NoError(t, damage(job.Source), name)
		_, err := begin(job)
		require.Equal(t, stack.Conflict, stack.KindOf(err), "%s: %v", name, err)
	}
}

// What an image has and the next source has not would stay in its containers.
func TestChanges_AreCopiedUnlessSomethingIsGone(t *testing.T) {
	had := sourcetest.Make(t, t.TempDir(), map[string]string{"a/x": "1", "b": "2", "package.json": "{}"}).Entries()
	for _, c := range []struct {
		files map[string]string
		want  string
	}{
		{map[string]string{"a/x": "1", "b": "2", "package.json": "{}"}, ""},
		{map[string]string{"a/x": "1", "b": "3", "package.json": "other"}, "b"},
		{map[string]string{"a/x": "1", "a/y": "new", "c/z": "new", "b": "2", "package.json": "{}"}, "a/y c c/z"},
		{map[string]string{"a/x": "1", "package.json": "{}"}, "gone"},
		{map[string]string{"a": "a file", "b": "2", "package.json": "{}"}, "gone"},
	} {
		now := sourcetest.Make(t, t.TempDir(), c.files).Entries()
		for i := range now {
			now[i].Modified = had[0].Modified
		}
		before := slices.Clone(had)
		for i := range before {
			before[i].Modified = had[0].Modified
		}
		changed, ok := changes(before, now, without([]string{"package.json"}))
		got := strings.Join(changed, " ")
		if !ok {
			got = "gone"
		}
		require.Equal(t, c.want, got)
	}
}

func TestBegin_CopiesOnlyWhatDiffersFromTheSourceOfTheLayer(t *testing.T) {
	b := New(Config{Engine: enginetest.New(nil, "with source").Driver(enginetest.Options{})})
	had, files := layered(t, packages), maps.Clone(packages)
	files["api/server.js"] = "two"
	now := layered(t, files)
	c := Copy{
		Dir: now.Source, Digest: now.Digest, Installed: []string{"api/package.json"}, Listing: had.Source,
		Layer: stack.Layer{Image: "layer", Source: stack.SourceLayer{Image: "with source", Digest: had.Digest}},
	}
	begin := func(c Copy) (string, []string) {
		image, write, err := b.Begin(t.Context(), c)
		require.NoError(t, err)
		var text bytes.Buffer
		require.NoError(t, write(t.Context(), &text))
		return image, names(t, text.Bytes())
	}
	image, written := begin(c)
	require.Equal(t, "with source", image)
	require.Equal(t, []string{"app/", "app/api/", "app/api/server.js"}, written)

	gone := c
	gone.Layer.Source.Image = "gone"
	image, written = begin(gone)
	require.Equal(t, "layer", image)
	require.Contains(t, written, "app/README.md")
	unlisted := c
	unlisted.Listing = t.TempDir()
	image, _ = begin(unlisted)
	require.Equal(t, "layer", image)
}
