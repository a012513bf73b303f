package docker

import (
	"context"
	"errors"
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
