package docker

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
)

func TestExec_RunsAsToldWhereToldWithWhatItIsGiven(t *testing.T) {
	b := testBench(t)
	id := b.server(t)
	command := helper("whoami")
	command.User, command.Dir = "200001:200001", "/app"
	var out strings.Builder
	_, err := b.driver.Exec(t.Context(), id, command, &out, &out)
	require.NoError(t, err)
	assert.Equal(t, "200001 200001 /app\n", out.String())

	out.Reset()
	command = helper("env", "SECRET")
	command.Env = []string{"SECRET=shh"}
	_, err = b.driver.Exec(t.Context(), id, command, &out, &out)
	require.NoError(t, err)
	assert.Equal(t, "shh\n", out.String())
	found, err := b.engine.api.ContainerInspect(t.Context(), id)
	require.NoError(t, err)
	assert.NotContains(t, strings.Join(found.Config.Env, "\n"), "SECRET")
}

func TestExec_MergesBothStreamsInOrder(t *testing.T) {
	b := testBench(t)
	id := b.server(t)
	last := map[rune]rune{'0': '0', '1': '1'} // of each stream
	text := strings.ReplaceAll(b.output(t, id, "both", "6", "10ms"), "\n", "")
	require.Len(t, text, 6)
	for _, digit := range text {
		stream := '0' + digit%2
		assert.GreaterOrEqual(t, digit, last[stream], text)
		last[stream] = digit
	}
}

func TestExec_KeepsTheStreamsApart(t *testing.T) {
	b := testBench(t)
	id := b.server(t)
	var stdout, stderr strings.Builder
	code, err := b.driver.Exec(t.Context(), id, whole(helper("both", "6", "0s")), &stdout, &stderr)
	require.NoError(t, err)
	assert.Zero(t, code)
	assert.Equal(t, "0\n2\n4\n", stdout.String())
	assert.Equal(t, "1\n3\n5\n", stderr.String())
}

func TestAnswer_IsWholeOrAnError(t *testing.T) {
	b := testBench(t)
	id := b.server(t)
	for size, want := range map[string]error{"100": nil, "60000": nil, "66000": engine.ErrTooMuch, "20000000": engine.ErrTooMuch} {
		text, code, err := engine.Answer(t.Context(), b.driver, id, helper("flood", size))
		require.ErrorIs(t, err, want)
		if want == nil {
			assert.Zero(t, code)
			assert.Equal(t, size, strconv.Itoa(len(text)))
		}
	}
	text, code, err := engine.Answer(t.Context(), b.driver, id, helper("both", "6", "0s"))
	require.NoError(t, err)
	assert.Zero(t, code)
	assert.Equal(t, "0\n2\n4\n", text)
}

func TestExec_DeliversEverythingThatWasPrinted(t *testing.T) {
	b := testBench(t)
	id := b.server(t)
	const size = 20_000_000
	assert.Len(t, b.output(t, id, "flood", "20000000"), size)
}

func TestExec_DoesNotWaitForABackgroundChild(t *testing.T) {
	b := testBench(t)
	id := b.server(t)
	var out strings.Builder
	began := time.Now()
	code, err := b.driver.Exec(t.Context(), id, helper("background", "1m", "5"), &out, &out)
	took := time.Since(began)
	require.NoError(t, err)
	assert.Equal(t, 5, code)
	assert.Equal(t, "in front\n", out.String())
	assert.Less(t, took, 30*time.Second) // the child goes on for a minute
	t.Log("returned after", took)
}

func TestExec_WaitsForACommandThatClosedItsOutput(t *testing.T) {
	b := testBench(t)
	id := b.server(t)
	var out strings.Builder
	began := time.Now()
	code, err := b.driver.Exec(t.Context(), id, helper("mute", "600ms", "7"), &out, &out)
	require.NoError(t, err)
	assert.Equal(t, 7, code)
	assert.Equal(t, "last words\n", out.String())
	assert.GreaterOrEqual(t, time.Since(began), 600*time.Millisecond)
}

func TestExec_EndsWhenItsContainerIsKilled(t *testing.T) {
	b := testBench(t)
	id := b.run(t, b.spec("serve"))
	began := make(chan struct{}, 1)
	out := writerFunc(func(p []byte) (int, error) { began <- struct{}{}; return len(p), nil })
	type result struct {
		code int
		err  error
	}
	ended := make(chan result, 1)
	go func() {
		code, err := b.driver.Exec(t.Context(), id, helper("both", "1", "1h"), out, out)
		ended <- result{code, err}
	}()
	<-began
	require.NoError(t, b.driver.Remove(t.Context(), id))
	select {
	case r := <-ended:
		t.Logf("code %d, error %v", r.code, r.err)
		assert.True(t, r.err != nil || r.code == 137)
	case <-time.After(10 * time.Second):
		t.Fatal("still waiting for a command that is dead")
	}
}

func TestExec_ABrokenStreamIsNotTheEndOfTheCommand(t *testing.T) {
	b := testBench(t)
	id := b.server(t)
	w := b.newWay(t)
	out := writerFunc(func(p []byte) (int, error) { w.leave(); return len(p), nil })
	_, err := w.driver.Exec(t.Context(), id, helper("both", "1", "1h"), out, out)
	require.Error(t, err)
}

func TestExec_ReportsAWriterThatFails(t *testing.T) {
	b := testBench(t)
	id := b.server(t)
	full := errors.New("disk full")
	out := writerFunc(func([]byte) (int, error) { return 0, full })
	_, err := b.driver.Exec(t.Context(), id, helper("both", "3", "1h"), out, out)
	require.ErrorIs(t, err, full)
}

// server returns the id of a container in which all tests run their commands.
func (b *bench) server(t *testing.T) string {
	t.Helper()
	id, err := server()
	require.NoError(t, err)
	return id
}

var server = sync.OnceValues(func() (string, error) {
	b, err := shared()
	if err != nil {
		return "", err
	}
	return b.driver.Run(context.Background(), b.spec("serve"))
})

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// unpacks returns a command in a container of shell that lists files once some were
// unpacked.
func unpacks(t *testing.T, entries ...any) engine.Cmd {
	t.Helper()
	files, err := pack(entries...)
	require.NoError(t, err)
	cmd := script(`for f; do echo "$(stat -c '%n %u %A %Y' "$f") $(cat "$f")"; done; wc -c`)
	for pair := range slices.Chunk(entries, 2) {
		cmd.Args = append(cmd.Args, "/"+pair[0].(tar.Header).Name)
	}
	cmd.Files = func(_ context.Context, w io.Writer) error {
		_, err := w.Write(files.Bytes())
		return err
	}
	return cmd
}

func TestExec_UnpacksAsTheUserOrElseAsTheEngine(t *testing.T) {
	b := testBench(t)
	id := b.shell(t, 100)
	at := time.Unix(1_000_000_000, 0)
	own := tar.Header{Name: "tmp/own", Mode: 0o750, Uid: 200001, Gid: 200001, ModTime: at}
	roots := tar.Header{Name: "etc/roots", Mode: 0o644, ModTime: at}
	for name, tt := range map[string]struct {
		cmd  engine.Cmd
		want string
	}{
		"as the user":   {unpacks(t, own, "first"), "/tmp/own 200001 -rwxr-x--- 1000000000 first\n0\n"},
		"again":         {unpacks(t, own, "second"), "/tmp/own 200001 -rwxr-x--- 1000000000 second\n0\n"},
		"as the engine": {unpacks(t, own, "third", roots, "r"), "/tmp/own 200001 -rwxr-x--- 1000000000 third\n/etc/roots 0 -rw-r--r-- 1000000000 r\n0\n"},
		"much":          {unpacks(t, tar.Header{Name: "tmp/much", Mode: 0o600, ModTime: at}, strings.Repeat("x", 10<<20)), "/tmp/much 200001 -rw------- 1000000000 " + strings.Repeat("x", 10<<20) + "\n0\n"},
	} {
		var out, errOut strings.Builder
		code, err := b.driver.Exec(t.Context(), id, tt.cmd, &out, &errOut)
		require.NoError(t, err, name)
		assert.Zero(t, code, name)
		assert.Empty(t, errOut.String(), name)
		assert.True(t, tt.want == out.String(), "%s: %.200q", name, out.String())
	}
}

func TestExec_EndsWhileItIsFed(t *testing.T) {
	b := testBench(t)
	id := b.shell(t, 100)
	cmd := script("exit 3")
	cmd.Files = func(_ context.Context, w io.Writer) error {
		for { // what a tar ends with, again and again
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return err
			}
		}
	}
	code, err := b.driver.Exec(t.Context(), id, cmd, io.Discard, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, 3, code)
}
