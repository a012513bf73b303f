package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
)

func TestRemoveImage_RefusesOneThatAContainerNeeds(t *testing.T) {
	b := testBench(t)
	b.create(t, b.spec("serve"))
	require.ErrorIs(t, b.driver.removeImage(t.Context(), b.image), errConflict)
}

func TestCommit_KeepsFilesAndOverridesTheConfiguration(t *testing.T) {
	b := testBench(t)
	spec := b.spec("serve")
	spec.Env = []string{"A=1", "B=1"}
	id := b.run(t, spec)
	b.output(t, id, "write", "/tmp/built", "the result")
	ref := b.name() + ":g1"
	require.NoError(t, b.driver.commit(t.Context(), id, ref, &container.Config{
		Labels:     engine.Labels{"berth-test-generation": "1"},
		Env:        []string{"B=2"},
		User:       "200001:200001",
		WorkingDir: "/tmp",
	}))
	b.removeAfter(t, ref)

	raw, err := b.engine.api.ImageInspect(t.Context(), ref)
	require.NoError(t, err)
	assert.True(t, carries(raw.Config.Labels, b.driver.labels(key)), "the container's labels stay")
	assert.Equal(t, "1", raw.Config.Labels["berth-test-generation"])
	assert.Equal(t, "200001:200001", raw.Config.User)
	assert.Subset(t, raw.Config.Env, []string{"A=1", "B=2", "FROM_IMAGE=yes"})
	assert.NotContains(t, raw.Config.Env, "B=1")

	fromImage := b.spec("cat", "built")
	fromImage.Image = ref
	assert.Equal(t, "the result", strings.TrimSpace(b.log(t, b.run(t, fromImage))))
	c, err := b.driver.Look(t.Context(), id)
	require.NoError(t, err)
	assert.True(t, c.Running, "the container goes on")
}

// A process that a command has left running may write to a file while the engine reads it, or
// add a hole once the holes are counted.
func TestCommit_CountsWhileTheContainerIsPaused(t *testing.T) {
	var asked []string
	freezes := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch _, what, _ := strings.Cut(r.URL.Path, "/containers/"); {
		case what == "id/pause" && !freezes:
			w.WriteHeader(http.StatusInternalServerError)
			io.WriteString(w, `{"message": "Cannot pause container id: OCI runtime pause failed: unable to freeze: unknown"}`) //nolint:errcheck // the test sees it
		case strings.HasSuffix(r.URL.Path, "/ref/json"):
			w.WriteHeader(http.StatusNotFound)
		case what == "id/json":
			asked = append(asked, "size="+r.FormValue("size"))
			io.WriteString(w, `{"Id": "id", "SizeRw": 5}`) //nolint:errcheck // the test sees it
		case strings.HasSuffix(r.URL.Path, "/commit"):
			asked = append(asked, "commit")
			io.WriteString(w, `{"Id": "made"}`) //nolint:errcheck // the test sees it
		case what != "":
			asked = append(asked, what)
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	t.Cleanup(server.Close)
	e, err := open(t.Context(), "tcp://"+server.Listener.Addr().String(), quiet)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	d := NewDriver(e, Info{RootDir: t.TempDir()}, DriverOptions{})
	require.NoError(t, d.Commit(t.Context(), "id", "ref", key, engine.ImageConfig{}))
	assert.Equal(t, []string{"id/pause", "size=1", "commit"}, asked)

	asked = nil
	err = d.Commit(t.Context(), "id", "ref", key, engine.ImageConfig{Floor: 1 << 60})
	short, ok := errors.AsType[*engine.NoRoomError](err)
	require.True(t, ok, err)
	assert.EqualValues(t, 5, short.Need)
	assert.Equal(t, []string{"id/pause", "size=1"}, asked, "it is refused before it begins")

	asked, freezes = nil, false
	require.ErrorIs(t, d.Pause(t.Context(), "id"), engine.ErrNotFrozen)
	require.NoError(t, d.Commit(t.Context(), "id", "ref", key, engine.ImageConfig{}))
	assert.Equal(t, []string{"id/stop", "size=1", "commit"}, asked, "what does not freeze is killed")
}

// What others are promised counts, and nothing is kept back once a commit has ended.
func TestCommit_CountsHolesAndWhatOthersArePromised(t *testing.T) {
	b := testBench(t)
	id := b.run(t, b.spec("serve"))
	const hole = 100 << 20
	files, err := pack(tar.Header{Name: "app/hole", Mode: 0o600, Uid: owner, Gid: owner}, strings.Repeat("\x00", hole))
	require.NoError(t, err)
	require.NoError(t, b.driver.CopyIn(t.Context(), id, files))
	free, err := b.driver.Room()
	require.NoError(t, err)
	done, err := b.driver.room.promise(free.Bytes-hole, func() (int64, error) { return free.Bytes, nil })
	require.NoError(t, err)
	ref := b.name() + ":g1"
	floor := engine.ImageConfig{Floor: 50 << 20}
	require.ErrorIs(t, b.driver.Commit(t.Context(), id, ref, key, floor), engine.ErrNoRoom)
	done()
	require.NoError(t, b.driver.Commit(t.Context(), id, ref, key, floor))
	b.removeAfter(t, ref)
	assert.Zero(t, b.driver.room.bytes)
}

func TestCommit_LeavesVolumesOutAndTheImageFillsANewOne(t *testing.T) {
	b := testBench(t)
	first, second := b.volume(t), b.volume(t)
	spec := b.spec("serve")
	spec.Volumes = map[string]string{"/cache": first}
	id := b.run(t, spec)
	b.output(t, id, "write", "/cache/secret", "stays in the volume")
	files, err := pack(tar.Header{Name: "app/data/", Mode: 0o700, Uid: owner, Gid: owner}, "",
		tar.Header{Name: "app/data/kept", Mode: 0o600, Uid: owner, Gid: owner}, "snapshot")
	require.NoError(t, err)
	require.NoError(t, b.driver.CopyIn(t.Context(), id, files))
	ref := b.name() + ":g1"
	require.NoError(t, b.driver.commit(t.Context(), id, ref, &container.Config{}))
	b.removeAfter(t, ref)

	spec = b.spec("serve")
	spec.Image, spec.User = ref, "200001:200001"
	spec.Volumes = map[string]string{"/app/data": second}
	restored := b.run(t, spec)
	assert.Equal(t, "/app/data 200001:200001 drwx------\n/app/data/kept 200001:200001 -rw-------\n",
		b.output(t, restored, "stat", "/app/data", "/app/data/kept"))
	assert.Equal(t, "snapshot", b.output(t, restored, "cat", "/app/data/kept"))
	code, err := b.driver.Exec(t.Context(), restored, helper("cat", "/cache/secret"), io.Discard, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, 1, code, "a volume's files are not in the image")
}

func TestVolume_TakesOwnerAndFilesOfTheImageOnlyWhileEmpty(t *testing.T) {
	b := testBench(t)
	volume := b.volume(t)
	spec := b.spec("serve")
	spec.User = "200001:200001"
	spec.Volumes = map[string]string{"/app": volume}
	id := b.run(t, spec)
	assert.Equal(t, "/app 200001:200001 drwxr-x---\n/app/seed 200001:200001 -rw-r-----\n",
		b.output(t, id, "stat", "/app", "/app/seed"))
	b.output(t, id, "write", "/app/seed", "changed")
	require.NoError(t, b.driver.Remove(t.Context(), id))

	spec.Name = b.name()
	assert.Equal(t, "changed", b.output(t, b.run(t, spec), "cat", "/app/seed"))
}

// dockerfile returns the context of a build that ends with the given steps.
func (b *bench) dockerfile(t *testing.T, steps ...string) *bytes.Buffer {
	t.Helper()
	text := "FROM " + b.image + "\nLABEL berth.instance=" + b.driver.opts.Instance + "\nARG WHO=nobody\n" + strings.Join(steps, "\n") + "\n"
	context, err := pack(tar.Header{Name: "Dockerfile", Mode: 0o644}, text)
	require.NoError(t, err)
	return context
}

func TestMakeImage_LogsPlainTextAndLabelsTheImage(t *testing.T) {
	b := testBench(t)
	ref := b.name() + ":1"
	var log strings.Builder
	require.NoError(t, b.driver.MakeImage(t.Context(), engine.ImageSpec{
		Context: b.dockerfile(t, `RUN ["/bin/helper", "print", "hello from the build"]`, `LABEL who=$WHO`),
		Ref:     ref,
		Args:    map[string]string{"WHO": "ana"},
	}, &log))
	b.removeAfter(t, ref)
	assert.Contains(t, log.String(), "\nhello from the build\n")
	assert.NotContains(t, log.String(), `{"`)
	found, err := b.driver.image(t.Context(), ref)
	require.NoError(t, err)
	assert.True(t, carries(found.Config.Labels, engine.SharedLabels()))
	assert.Equal(t, "ana", found.Config.Labels["who"])
}

func TestMakeImage_TheErrorOfAStepHasItsLastLines(t *testing.T) {
	b := testBench(t)
	t.Cleanup(func() { b.forgetSteps(t) })
	var log strings.Builder
	err := b.driver.MakeImage(t.Context(), engine.ImageSpec{
		Context: b.dockerfile(t, `RUN ["/bin/helper", "print", "all is well"]`, `RUN ["/bin/helper", "cat", "/no/such/file"]`),
		Ref:     b.name() + ":1",
	}, &log)
	require.Error(t, err)
	assert.Contains(t, err.Error(), "returned a non-zero code: 1; the end of its output:\n")
	assert.Contains(t, err.Error(), "\nopen /no/such/file: no such file or directory\n")
	assert.Contains(t, log.String(), "all is well")

	containers, err := b.driver.Containers(t.Context(), engine.Key{})
	require.NoError(t, err)
	assert.Empty(t, containers, "steps are removed when they fail")
}

func TestMakeImage_RefusesABrokenDockerfile(t *testing.T) {
	b := testBench(t)
	err := b.driver.MakeImage(t.Context(), engine.ImageSpec{Context: b.dockerfile(t, "WRONG x"), Ref: b.name() + ":1"}, io.Discard)
	require.Error(t, err)
	assert.Contains(t, err.Error(), "WRONG")
}

func TestMakeImage_EndsWithItsContext(t *testing.T) {
	b := testBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	out := writerFunc(func(p []byte) (int, error) {
		if strings.Contains(string(p), "serving") {
			cancel()
		}
		return len(p), nil
	})
	err := b.driver.MakeImage(ctx, engine.ImageSpec{
		Context: b.dockerfile(t, `RUN ["/bin/helper", "stubborn"]`), Ref: b.name() + ":1",
	}, out)
	require.ErrorIs(t, err, context.Canceled)
	require.Eventually(t, func() bool {
		list, err := b.driver.Containers(t.Context(), engine.Key{})
		return err == nil && len(list) == 0
	}, 20*time.Second, 50*time.Millisecond, "the engine removes the step's container")
	b.forgetSteps(t)
}

func TestPull_ReportsAReferenceThatCannotBeHad(t *testing.T) {
	b := testBench(t)
	require.Error(t, b.driver.Pull(t.Context(), "127.0.0.1:9/berth-test-nothing:1", io.Discard))
}

func TestImport_ReportsAnArchiveThatIsBroken(t *testing.T) {
	b := testBench(t)
	ref := b.name() + ":1"
	require.Error(t, b.driver.Import(t.Context(), ref, strings.NewReader(strings.Repeat("not a tar ", 200)), nil))
	require.Error(t, b.driver.Import(t.Context(), ref, strings.NewReader(""), []string{"WRONG"}))
}

func TestRelay_WritesTextAndReturnsTheError(t *testing.T) {
	var out strings.Builder
	err := relay(&out, stream(`{"stream":"Step 1\n"}
{"stream":"\u001b[91mred\n\u001b[0m"}
{"status":"Pulling fs layer","id":"abc"}
{"status":"Downloading","id":"abc","progressDetail":{"current":1,"total":2}}
{"status":"Digest: x"}
{"aux":{"ID":"sha256:0"}}
{"errorDetail":{"code":3,"message":"boom"},"error":"boom"}
{"stream":"never seen"}`), nil)
	require.EqualError(t, err, "boom")
	assert.Equal(t, "Step 1\nred\nabc: Pulling fs layer\nDigest: x\n", out.String())

	require.ErrorIs(t, relay(io.Discard, stream(`{"stream":`), nil), io.ErrUnexpectedEOF)
	full := errors.New("disk full")
	failing := writerFunc(func([]byte) (int, error) { return 0, full })
	require.ErrorIs(t, relay(failing, stream(`{"stream":"x"}`), nil), full)
}

// stream returns a body with the engine's messages.
func stream(text string) io.ReadCloser { return io.NopCloser(strings.NewReader(text)) }

func FuzzRelay(f *testing.F) {
	f.Add(`{"stream":"Step 1\n"}{"error":"boom"}`)
	f.Add(`{"status":"Downloading","id":"abc","progressDetail":{"current":1,"total":2}}`)
	f.Fuzz(func(t *testing.T, body string) {
		_ = relay(io.Discard, stream(body), nil)
	})
}
