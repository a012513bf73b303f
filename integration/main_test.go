package integration

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/wait"
)

// baseImage is what every image here is built from.
const baseImage = "debian:trixie-slim"

func TestMain(m *testing.M) {
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	// A program with the race detector sleeps for a second when it ends, unless it is told
	// not to. The one that is shipped does not, so nothing happens then that could race.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	// The reaper's image would have to be pulled; the sweep does its work.
	os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
	tclog.SetDefault(quiet{})
	if err := sweep(); err != nil {
		fmt.Fprintln(os.Stderr, "the engine was not swept of earlier runs:", err)
	}
	dir, err := os.MkdirTemp("", "berth-integration-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	scratch = dir
	defer stopRedis()
	defer stopChromium()
	return m.Run()
}

// scratch is a folder of this run.
var scratch string

// quiet is a testcontainers logger that says nothing.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

// buildBerthd builds the server once, with the race detector and the failpoints in it. The
// detector's code and the checks of pointers are for our packages: in SQLite, which is
// translated from C, they would take most of a query's time.
var buildBerthd = sync.OnceValues(func() (string, error) {
	return build("berthd-race", []string{"-race", "-tags", "failpoint", "-gcflags=modernc.org/...=-race=false -d=checkptr=0"})
})

// buildShipped builds the server once as it is shipped, a static binary without
// failpoints.
var buildShipped = sync.OnceValues(func() (string, error) {
	return build("berthd", []string{"-trimpath", "-ldflags", "-s -w"}, "CGO_ENABLED=0")
})

func build(name string, flags []string, env ...string) (string, error) {
	path := filepath.Join(scratch, name)
	args := append(append([]string{"build", "-o", path}, flags...), "../cmd/berthd")
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build berthd: %w\n%s", err, out)
	}
	return path, nil
}

// buildSetting returns the path of a setting for builds on this machine: from a
// variable, or else of the file that make settings wrote, or "".
func buildSetting(variable, file string) string {
	if path := os.Getenv(variable); path != "" {
		return path
	}
	path, err := filepath.Abs(filepath.Join("..", ".build", file))
	if err != nil {
		return ""
	}
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// redisDatabases is how many installations can share one Redis.
const redisDatabases = 10000

var redis struct {
	once      sync.Once
	container *testcontainers.DockerContainer
	endpoint  string
	err       error
}

// redisURL is a database of its own for one installation, in the Redis that all
// tests share.
func redisURL(t *testing.T, number int64) string {
	t.Helper()
	redis.once.Do(func() { redis.err = startRedis() })
	require.NoError(t, redis.err)
	return fmt.Sprintf("redis://%s/%d", redis.endpoint, number%redisDatabases)
}

// startRedis runs the Redis that the tests share.
func startRedis() (err error) {
	redis.container, redis.endpoint, err = runRedis()
	return err
}

// runRedis builds Redis from Debian's package, for registries may be out of
// reach, and runs it.
func runRedis() (container *testcontainers.DockerContainer, endpoint string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	files, err := redisContext()
	if err != nil {
		return nil, "", err
	}
	var log bytes.Buffer
	container, err = testcontainers.Run(ctx, "",
		testcontainers.WithDockerfile(testcontainers.FromDockerfile{
			ContextArchive: files,
			Repo:           "berth-test-redis",
			Tag:            "latest",
			KeepImage:      true,
			BuildArgs:      buildArgs(),
			BuildLogWriter: &log,
		}),
		testcontainers.WithCmd("redis-server", "--bind", "0.0.0.0", "--protected-mode", "no", "--save", "",
			"--databases", fmt.Sprint(redisDatabases)),
		testcontainers.WithLabels(map[string]string{labelInstance: instanceName(0)}),
		testcontainers.WithWaitStrategy(wait.ForLog("Ready to accept connections").WithStartupTimeout(patience)),
	)
	if err != nil {
		return container, "", fmt.Errorf("start Redis: %w\n%s", err, log.String())
	}
	// Its own address: where the tests run in a container themselves, a published
	// port would not be on localhost.
	ip, err := container.ContainerIP(ctx)
	return container, ip + ":6379", err
}

func stopRedis() {
	if redis.container == nil {
		return
	}
	if err := redis.container.Terminate(context.Background(), testcontainers.StopTimeout(0)); err != nil {
		fmt.Fprintln(os.Stderr, "Redis is not removed; the next run sweeps it:", err)
	}
}

const redisDockerfile = `FROM ` + baseImage + `
ARG DEBIAN_MIRROR
COPY ca.crt install.sh /berth/
RUN sh /berth/install.sh redis-server
USER redis
`

// redisContext is the context of Redis' build.
func redisContext() (io.ReadSeeker, error) {
	files, err := installFiles()
	if err != nil {
		return nil, err
	}
	files["Dockerfile"] = []byte(redisDockerfile)
	return packContext(files)
}

// installFiles are what an image needs to install Debian's packages, whatever
// mirror this machine has.
func installFiles() (map[string][]byte, error) {
	install, err := os.ReadFile("../images/common/install.sh")
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"install.sh": install, "ca.crt": nil}
	if path := buildSetting("BERTH_BUILD_CA_FILE", "ca.crt"); path != "" {
		files["ca.crt"], err = os.ReadFile(path)
	}
	return files, err
}

// executable are the files of a context that make image finds executable: with
// the same modes, the engine knows the layers that it has built before.
var executable = map[string]bool{"berthd": true}

// packContext is a build's context as a tar.
func packContext(files map[string][]byte) (io.ReadSeeker, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range files {
		mode := int64(0o644)
		if executable[name] {
			mode = 0o755
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	return bytes.NewReader(b.Bytes()), w.Close()
}

// buildArgs are the variables that builds are given.
func buildArgs() map[string]*string {
	args := map[string]*string{}
	file, err := os.Open(buildSetting("BERTH_BUILD_ENV_FILE", "env"))
	if err != nil {
		return args
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), "="); ok && !strings.HasPrefix(name, "#") {
			args[name] = &value
		}
	}
	return args
}
