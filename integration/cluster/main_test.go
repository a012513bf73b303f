package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	berth "github.com/berth-host/berth/images"
)

// checkout is the folder of this repository.
var checkout, _ = filepath.Abs(filepath.Join("..", ".."))

func TestMain(m *testing.M) {
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	dir, err := os.MkdirTemp("", "berth-cluster-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	scratch = dir
	defer closeLab()
	return m.Run()
}

// scratch is a folder of this run.
var scratch string

// shared is the lab that all tests use, one after the other.
var shared struct {
	once sync.Once
	lab  *Lab
	err  error
}

// theLab returns the lab, as if it had just been started.
func theLab(t *testing.T) *Lab {
	t.Helper()
	if os.Getuid() != 0 {
		lacks(t, "the engines of the lab's nodes can be called by root only")
	}
	shared.once.Do(func() { shared.lab, shared.err = startLab() })
	require.NoError(t, shared.err)
	return shared.lab
}

func startLab() (*Lab, error) {
	berthd, err := buildBerthd()
	if err != nil {
		return nil, err
	}
	o, err := options(berthd)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	return Start(ctx, o)
}

// options are those of the tests' lab.
func options(binaries ...string) (Options, error) {
	node, err := berth.Lookup("node", "22")
	return Options{
		Checkout: checkout,
		EnvFile:  buildSetting("BERTH_BUILD_ENV_FILE", "env"),
		CAFile:   buildSetting("BERTH_BUILD_CA_FILE", "ca.crt"),
		Binaries: binaries,
		// Debian alone: what the tests run are Perl programs, which every Debian can run.
		Bases: []Base{{Image: berth.Debian, Name: node.Ref()}},
	}, err
}

func closeLab() {
	if shared.lab == nil {
		return
	}
	if err := shared.lab.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "the lab is not removed; the next run does it:", err)
	}
}

// buildBerthd builds the server with the race detector and the failpoints in it, without
// libraries, since the nodes may have older ones than this machine.
func buildBerthd() (string, error) {
	path := filepath.Join(scratch, "berthd")
	return path, buildServer(checkout, path)
}

// buildServer builds the server of a source tree.
func buildServer(tree, path string) error {
	cmd := exec.Command("go", "build", "-o", path, "-race", "-tags", "failpoint,netgo,osusergo",
		"-gcflags=modernc.org/...=-race=false -d=checkptr=0", "-ldflags", "-linkmode external -extldflags -static", "./cmd/berthd")
	cmd.Dir = tree
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build berthd: %w\n%s", err, out)
	}
	return nil
}

// buildSetting returns the path of a setting for builds on this machine: from a
// variable, or else of the file that make settings wrote, or "".
func buildSetting(variable, file string) string {
	if path := os.Getenv(variable); path != "" {
		return path
	}
	path := filepath.Join(checkout, ".build", file)
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}
