package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/image"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/berth-host/berth/internal/engine"
)

// owner is the uid and gid of everything in the test image's /app.
const owner = 200001

// bench is what a test has: an engine and an image made of the helper alone, which all
// tests of a run share, and an installation of its own, which has everything that the test
// makes.
type bench struct {
	engine *Engine
	driver *Driver
	image  string
}

// quiet are options without a log.
var quiet = Options{Log: slog.New(slog.DiscardHandler)}

var shared = sync.OnceValues(setUp)

func TestMain(m *testing.M) {
	// Parallel tests mostly wait for the engine, not for a processor.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	code := m.Run()
	if b, err := shared(); err == nil {
		if err := b.tearDown(); err != nil {
			fmt.Fprintln(os.Stderr, "after the tests:", err)
			code = 1
		}
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, "after the tests:", err)
		code = 1
	}
	os.Exit(code)
}

func TestMake_TestsDoNotSkipTheEngine(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	require.Regexp(t, `(?m)^\t(\S+=\S+ )*BERTH_REQUIRE_ENGINE=1 .*go test .*\./\.\.\.$`, string(makefile))
}

// testBench returns the bench of a test that runs beside others. It skips the test when no
// engine answers and BERTH_REQUIRE_ENGINE, which make test sets, does not ask for one.
func testBench(t *testing.T) *bench {
	t.Helper()
	t.Parallel()
	return aloneBench(t)
}

// aloneBench is testBench for a test that does not run beside others.
func aloneBench(t *testing.T) *bench {
	t.Helper()
	b, err := shared()
	if errors.Is(err, errNoEngine) && os.Getenv("BERTH_REQUIRE_ENGINE") != "1" {
		t.Skip(err)
	}
	require.NoError(t, err)
	own := &bench{b.engine, NewDriver(b.engine, Info{}, DriverOptions{Instance: strings.ToLower(rand.Text())}), b.image}
	t.Cleanup(func() { assert.NoError(t, own.leftBehind()) })
	return own
}

var errNoEngine = errors.New("no Docker engine answers; BERTH_REQUIRE_ENGINE=1 makes this a failure")

func setUp() (*bench, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	opened, err := Open(ctx, quiet)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoEngine, err)
	}
	run := strings.ToLower(rand.Text())
	b := &bench{engine: opened, driver: NewDriver(opened, Info{}, DriverOptions{Instance: run}), image: "berth-test-" + run + ":helper"}
	root, err := rootFS()
	if err != nil {
		return nil, err
	}
	return b, b.driver.Import(ctx, b.image, root, []string{"LABEL berth.instance=" + run, "ENV FROM_IMAGE=yes"})
}

// rootFS builds the helper and packs it with the directories that tests need.
func rootFS() (*bytes.Buffer, error) {
	dir, err := os.MkdirTemp("", "berth-test-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "helper")
	build := exec.Command("go", "build", "-o", binary, "./testdata/helper")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build helper: %w\n%s", err, out)
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	return pack(
		tar.Header{Name: "bin/helper", Mode: 0o755}, string(program),
		tar.Header{Name: "tmp/", Mode: 0o777}, "",
		tar.Header{Name: "app/", Mode: 0o750, Uid: owner, Gid: owner}, "",
		tar.Header{Name: "app/seed", Mode: 0o640, Uid: owner, Gid: owner}, "from the image",
	)
}

// pack makes a tar from pairs of a header and its content.
func pack(entries ...any) (*bytes.Buffer, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for pair := range slices.Chunk(entries, 2) {
		header, content := pair[0].(tar.Header), pair[1].(string)
		header.Size = int64(len(content))
		if err := w.WriteHeader(&header); err != nil {
			return nil, err
		}
		if _, err := w.Write([]byte(content)); err != nil {
			return nil, err
		}
	}
	return &out, w.Close()
}

// tearDown removes what the tests share and closes the engine.
func (b *bench) tearDown() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	containers, err := b.driver.Containers(ctx, engine.Key{}) // the server
	err = errors.Join(err, b.driver.Discard(ctx, engine.Objects{Containers: containers}))
	return errors.Join(err, b.driver.removeImage(ctx, b.image), b.leftBehind(), b.engine.Close())
}

// leftBehind returns an error if the bench's installation has any object.
func (b *bench) leftBehind() error {
	ctx := context.Background()
	containers, err1 := b.driver.Containers(ctx, engine.Key{})
	images, err2 := b.driver.images(ctx, engine.Key{})
	networks, err3 := b.driver.Networks(ctx, engine.Key{})
	volumes, err4 := b.driver.Volumes(ctx, engine.Key{})
	err := errors.Join(err1, err2, err3, err4)
	if len(containers)+len(images)+len(networks)+len(volumes) > 0 {
		err = errors.Join(err, fmt.Errorf("left behind: containers %v, images %v, networks %v, volumes %v",
			containers, images, networks, volumes))
	}
	return err
}

// name returns a name in the engine that no other test uses.
func (b *bench) name() string { return "berth-test-" + strings.ToLower(rand.Text()) }

// key is the key of all objects that a test makes.
var key = engine.Key{Stack: "stk_0123456789ab", Service: "web", Generation: 1}

// spec describes a container that runs the helper with args.
func (b *bench) spec(args ...string) engine.Spec {
	return engine.Spec{
		Name:  b.name(),
		Image: b.image,
		Cmd:   append([]string{"/bin/helper"}, args...),
		Key:   key,
		Pids:  100,
	}
}

// create makes a container and removes it after the test.
func (b *bench) create(t *testing.T, spec engine.Spec) string {
	t.Helper()
	id, err := b.driver.Prepare(t.Context(), spec)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.driver.Remove(context.Background(), id)) })
	return id
}

// run makes a container and starts it.
func (b *bench) run(t *testing.T, spec engine.Spec) string {
	t.Helper()
	id := b.create(t, spec)
	require.NoError(t, b.driver.Start(t.Context(), id))
	return id
}

// log returns what the container printed until it ended.
func (b *bench) log(t *testing.T, id string) string {
	t.Helper()
	var text strings.Builder
	require.NoError(t, b.driver.Follow(t.Context(), id, time.Time{}, func(_ time.Time, line []byte) {
		text.Write(line)
		text.WriteByte('\n')
	}))
	return text.String()
}

// output runs the helper in a container and returns what it prints.
func (b *bench) output(t *testing.T, id string, args ...string) string {
	t.Helper()
	var out strings.Builder
	code, err := b.driver.Exec(t.Context(), id, helper(args...), &out, &out)
	require.NoError(t, err)
	require.Zero(t, code, out.String())
	return out.String()
}

// volume makes a volume and removes it after the test. Call it before making the containers
// that use the volume, so that it is removed after them.
func (b *bench) volume(t *testing.T) string {
	t.Helper()
	name := b.name()
	isNew, err := b.driver.ensureVolume(t.Context(), name, b.driver.labels(key))
	require.NoError(t, err)
	require.True(t, isNew)
	t.Cleanup(func() { require.NoError(t, b.driver.removeVolume(context.Background(), name)) })
	return name
}

// bridge describes a network without its subnet.
func (b *bench) bridge() bridge {
	return bridge{name: b.name(), device: "bt" + b.name()[11:22], labels: b.driver.labels(key)}
}

// network makes a network on a free subnet and removes it after the test.
func (b *bench) network(t *testing.T) bridge {
	t.Helper()
	made := b.bridge()
	for {
		var n [2]byte
		rand.Read(n[:])
		made.subnet = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 213, n[0], n[1] &^ 15}), 28)
		err := b.driver.ensureNetwork(t.Context(), made)
		if errors.Is(err, errSubnetTaken) {
			continue
		}
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.driver.removeNetwork(context.Background(), made.name)) })
		return made
	}
}

// removeAfter removes an image after the test.
func (b *bench) removeAfter(t *testing.T, ref string) {
	t.Cleanup(func() { require.NoError(t, b.driver.removeImage(context.Background(), ref)) })
}

// forgetSteps removes the nameless images of a build that failed.
func (b *bench) forgetSteps(t *testing.T) {
	t.Helper()
	ctx := context.Background() // also called after the test
	images, err := b.driver.images(ctx, engine.Key{})
	require.NoError(t, err)
	for _, i := range images {
		if len(i.Tags) == 0 {
			_, err := b.engine.api.ImageRemove(ctx, i.ID, image.RemoveOptions{PruneChildren: true})
			require.NoError(t, err)
		}
	}
}

// helper returns a command that runs the helper with args.
func helper(args ...string) engine.Cmd {
	return engine.Cmd{Args: append([]string{"/bin/helper"}, args...)}
}

// whole returns a command that waits for the end of the output.
func whole(cmd engine.Cmd) engine.Cmd {
	cmd.Whole = true
	return cmd
}
