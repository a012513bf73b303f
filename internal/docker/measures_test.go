package docker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
