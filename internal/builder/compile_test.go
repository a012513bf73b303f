package builder

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/runtimes"
)

// project is a folder whose build commands run on this machine, with a folder of caches.
type project struct {
	t             *testing.T
	folder, cache string
	env           string // of the commands
}

var compiler = &runtimes.Definition{
	Caches: []runtimes.Cache{
		{Name: "next/webpack", Folder: ".next/cache/webpack", Beside: "node_modules/next"},
		{Name: "node_modules/cache", Folder: "node_modules/.cache", Beside: "node_modules"},
		{Name: "vite/cache", Folder: "node_modules/.vite", Beside: "node_modules/vite"},
		{Name: "turbo", Beside: "turbo.json"},
	},
	Marks: []string{"node_modules/.package-lock.json", "patches"},
}

func newProject(t *testing.T) *project {
	t.Helper()
	p := &project{t: t, folder: t.TempDir(), cache: t.TempDir()}
	t.Setenv("CACHE", p.cache)
	p.write("node_modules/next/index.js", "")
	p.write("node_modules/.package-lock.json", "{}")
	p.write("patches/next.patch", "one")
	p.write("turbo.json", "{}")
	return p
}

func (p *project) write(name, text string) {
	p.t.Helper()
	file := filepath.Join(p.folder, name)
	require.NoError(p.t, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(p.t, os.WriteFile(file, []byte(text), 0o600))
}

// run runs a build command on a new copy of the source, and returns its output and its
// exit code.
func (p *project) run(command string) (string, int) {
	p.t.Helper()
	for _, made := range []string{".next", "node_modules/.cache", "out"} {
		require.NoError(p.t, os.RemoveAll(filepath.Join(p.folder, made)))
	}
	args := compile(compiler, p.cache, "berth/base", []string{p.env}, command)
	cmd := exec.CommandContext(p.t.Context(), args[0], args[1:]...)
	cmd.Dir = p.folder
	out, _ := cmd.Output() // the code says it
	return string(out), cmd.ProcessState.ExitCode()
}

// compiles is what a build does: it prints what it finds in each cache, and writes there.
const compiles = `
mkdir -p .next/cache/webpack .next/cache/fetch node_modules/.cache $CACHE/turbo
for folder in .next/cache/webpack node_modules/.cache $CACHE/turbo; do
	cat $folder/file 2>/dev/null
	echo ${folder##*/} >$folder/file
done
echo fetched >.next/cache/fetch/file
echo built >out`

// finds returns what a build finds in its caches.
func (p *project) finds() string {
	p.t.Helper()
	out, code := p.run(compiles)
	require.Zero(p.t, code, out)
	return out
}

const all = "webpack\n.cache\nturbo\n"

// tree returns the contents of the project's files, by their names.
func (p *project) tree() map[string]string {
	p.t.Helper()
	files := map[string]string{}
	require.NoError(p.t, filepath.WalkDir(p.folder, func(name string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			text, readErr := os.ReadFile(name)
			require.NoError(p.t, readErr)
			files[strings.TrimPrefix(name, p.folder+"/")] = string(text)
		}
		return err
	}))
	return files
}

func TestCompile_KeepsCachesOutOfWhatIsBuilt(t *testing.T) {
	p := newProject(t)
	want := p.tree()
	want["out"], want[".next/cache/fetch/file"] = "built\n", "fetched\n"
	for _, found := range []string{"", all, all} {
		require.Equal(t, found, p.finds())
		require.Equal(t, want, p.tree())
	}
	out, code := p.run("exit 3")
	require.Equal(t, 3, code, out)
	require.NoDirExists(t, filepath.Join(p.folder, ".next"))
	require.Equal(t, all, p.finds())
}

func TestCompile_KeepsNoCacheOfOtherCircumstances(t *testing.T) {
	p := newProject(t)
	for name, change := range map[string]func(){
		"a variable":        func() { p.env = "API_URL=https://other.example" },
		"a package":         func() { p.write("node_modules/.package-lock.json", `{"next": "2"}`) },
		"a changed package": func() { p.write("patches/next.patch", "two") },
		"a further change":  func() { p.write("patches/react.patch", "one") },
	} {
		p.finds()
		require.Equal(t, all, p.finds())
		change()
		require.Empty(t, p.finds(), "after %s", name)
	}
}

func TestCompile_LeavesWhatIsThereAlone(t *testing.T) {
	p := newProject(t)
	p.finds()
	out, code := p.run(`rm -rf node_modules/.cache .next && mkdir node_modules/.cache && echo own >node_modules/.cache/file`)
	require.Zero(t, code, out)
	require.Equal(t, "own\n", p.tree()["node_modules/.cache/file"])
	require.Equal(t, all, p.finds(), "a command that removes the folder does not empty the cache")

	args := compile(compiler, p.cache, "berth/base", nil, "cat node_modules/.vite/file")
	p.write("node_modules/vite/index.js", "")
	p.write("node_modules/.vite/file", "installed")
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = p.folder
	text, err := cmd.Output()
	require.NoError(t, err)
	require.Equal(t, "installed", string(text))
	require.Equal(t, "installed", p.tree()["node_modules/.vite/file"])
}

// What a program may leave in the cache keeps no build from running.
func TestCompile_RunsWithADamagedCache(t *testing.T) {
	damages := map[string]string{
		"files":   `rm -rf $CACHE/* && for f in next node_modules turbo; do echo x >$CACHE/$f; done`,
		"links":   `rm -rf $CACHE/* && for f in next node_modules turbo; do ln -s /proc $CACHE/$f; done`,
		"a stamp": `rm -rf $CACHE/next/.made && mkdir $CACHE/next/.made`,
		"nothing": `rm -rf $CACHE/*`,
	}
	for _, name := range slices.Sorted(maps.Keys(damages)) {
		p := newProject(t)
		p.finds()
		_, code := p.run(damages[name])
		require.Zero(t, code)
		p.finds()
		require.Equal(t, all, p.finds(), "after %s", name)
	}
}
