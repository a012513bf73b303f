package docker

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/berth-host/berth/internal/engine"
)

const testID = "1c5d1e47e9c7e45669c210ee84d07c45409c9fcf1e49c50f8b28a5b085d040b8"

// machine makes the files of a machine below a folder: /proc of process 7, and its control
// groups.
func machine(t *testing.T, files map[string]string) (proc string) {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(text, "ROOT", root)), 0o600))
	}
	return filepath.Join(root, "proc")
}

func firstVersion() map[string]string {
	return map[string]string{
		"proc/7/cgroup": "3:cpu,cpuacct:/docker/" + testID + "\n2:memory:/docker/" + testID + "\n1:name=systemd:/x\n0::/docker/" + testID + "\n",
		"proc/self/mountinfo": "31 23 0:28 / ROOT/cg rw - tmpfs tmpfs rw\n" +
			"33 31 0:30 / ROOT/cg/cpu,cpuacct rw,relatime shared:1 - cgroup cgroup rw,cpu,cpuacct\n" +
			"35 31 0:32 / ROOT/cg/memory rw - cgroup cgroup rw,memory\n41 31 0:38 / ROOT/cg/unified rw - cgroup2 cgroup2 rw\n",
		"cg/cpu,cpuacct/docker/" + testID + "/cpuacct.usage":    "1500000000\n",
		"cg/memory/docker/" + testID + "/memory.usage_in_bytes": "9000\n",
		"cg/memory/docker/" + testID + "/memory.stat":           "inactive_file 1\ntotal_inactive_file 2000\n",
		"cg/unified/docker/" + testID + "/cgroup.controllers":   "",
	}
}

func secondVersion() map[string]string {
	const name = "/system.slice/docker-" + testID + ".scope"
	return map[string]string{
		"proc/7/cgroup":                 "0::" + name + "\n",
		"proc/self/mountinfo":           "31 23 0:28 / ROOT/cg rw - cgroup2 cgroup2 rw,nsdelegate\n",
		"cg" + name + "/cpu.stat":       "usage_usec 2500000\nuser_usec 1\n",
		"cg" + name + "/memory.current": "9000\n",
		"cg" + name + "/memory.stat":    "anon 1\ninactive_file 3000\n",
	}
}

func TestGroupOf_ReadsBothVersionsOfControlGroups(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string
		want  engine.Usage
	}{
		"first":  {firstVersion(), engine.Usage{CPU: 1500 * time.Millisecond, Memory: 7000}},
		"second": {secondVersion(), engine.Usage{CPU: 2500 * time.Millisecond, Memory: 6000}},
	} {
		g, ok := groupOf(machine(t, tt.files), 7, testID)
		require.True(t, ok, name)
		got, err := g.read()
		require.NoError(t, err, name)
		require.Equal(t, tt.want, got, name)
	}
}

func TestGroupOf_FindsNoGroupButTheContainersOwn(t *testing.T) {
	for name, change := range map[string]func(files map[string]string){
		"of another process":  func(files map[string]string) { files["proc/7/cgroup"] = "0::/user.slice\n" },
		"of nobody":           func(files map[string]string) { delete(files, "proc/7/cgroup") },
		"that is not mounted": func(files map[string]string) { files["proc/self/mountinfo"] = "" },
		"outside of what is mounted": func(files map[string]string) {
			files["proc/self/mountinfo"] = "31 23 0:28 /system.slice/other ROOT/cg rw - cgroup2 cgroup2 rw\n"
		},
		"of nonsense": func(files map[string]string) { files["proc/7/cgroup"] = "nonsense\n" },
	} {
		files := secondVersion()
		change(files)
		_, ok := groupOf(machine(t, files), 7, testID)
		require.False(t, ok, name)
	}
}

func TestSizeOf_CountsWhatTheFilesTake(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, size int) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, make([]byte, size), 0o600))
		return path
	}
	size := func() int64 {
		bytes, err := sizeOf(dir, func() error { return nil })
		require.NoError(t, err)
		return bytes
	}
	big := write("big", 1_000_000)
	one := size()
	require.InDelta(t, 1_000_000, one, 10_000)

	require.NoError(t, os.Link(big, filepath.Join(dir, "again")))
	require.Equal(t, one, size(), "a file with two names")

	require.NoError(t, os.Symlink("/", filepath.Join(dir, "link")))
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	sparse := write("sparse", 0)
	require.NoError(t, os.Truncate(sparse, 1<<40))
	require.InDelta(t, one, size(), 10_000, "a link, a pipe and a hole")

	for i := range 300 {
		write(filepath.Join("folder", strings.Repeat("x/", i%5), string(rune('a'+i%26))+strings.Repeat("y", i)[:i%100]), 5000)
	}
	require.Greater(t, size(), one+300*5000/2)
}

func TestSizeOf_EndsInAFolderThatIsTooDeep(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", 3*deepest)), 0o700))
	steps := 0
	_, err := sizeOf(dir, func() error { steps++; return nil })
	require.NoError(t, err)
	require.Equal(t, deepest, steps)
}

func TestSizeOf_EndsWithTheErrorOfAStep(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	enough := errors.New("enough")
	_, err := sizeOf(dir, func() error { return enough })
	require.ErrorIs(t, err, enough)
}
