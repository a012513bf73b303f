package supervisor

import (
	"log"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// worlds is the folder of all worlds of this process.
var worlds string

// TestMain makes the folder worlds, in memory where the machine has that: nothing has to
// last, and a disk takes longer to write than everything else.
func TestMain(m *testing.M) {
	err := makeWorlds("/dev/shm")
	if err != nil {
		err = makeWorlds(os.TempDir())
	}
	if err != nil {
		log.Fatal(err)
	}
	debug.SetGCPercent(400) // worlds are small and many
	code := m.Run()
	if err := os.RemoveAll(worlds); err != nil {
		log.Fatal(err)
	}
	os.Exit(code)
}

func makeWorlds(parent string) error {
	prefix := filepath.Join(parent, "berth-worlds-")
	removeStale(prefix)
	worlds = prefix + strconv.Itoa(os.Getpid())
	return os.Mkdir(worlds, 0o700)
}

// removeStale removes the folders of processes that ended before they could do it
// themselves. One that cannot be removed is left.
func removeStale(prefix string) {
	folders, _ := filepath.Glob(prefix + "*")
	for _, folder := range folders {
		pid, err := strconv.Atoi(strings.TrimPrefix(folder, prefix))
		if err == nil && (pid == os.Getpid() || syscall.Kill(pid, 0) == syscall.ESRCH) {
			_ = os.RemoveAll(folder)
		}
	}
}
