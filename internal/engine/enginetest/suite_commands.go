package enginetest

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
)

func commandReturns(c trial) {
	id := c.runTools()
	for _, tt := range []struct {
		args   []string
		codes  []int
		output string
	}{
		{c.bench.Script("print", "hello"), []int{0}, "hello\n"},
		{c.bench.Script("exit", "3"), []int{3}, ""},
		{[]string{"/no/such/program"}, []int{126, 127}, ""},
	} {
		var out bytes.Buffer
		code, err := c.driver.Command(c.t.Context(), id, engine.Cmd{Args: tt.args}, &out)
		require.NoError(c.t, err)
		assert.Contains(c.t, tt.codes, code)
		if code == 0 {
			assert.Equal(c.t, tt.output, out.String())
		}
	}
	command := engine.Cmd{Args: c.bench.Script("print", "hello")}
	require.NoError(c.t, c.driver.Stop(c.t.Context(), id))
	_, err := c.driver.Command(c.t.Context(), id, command, io.Discard)
	require.ErrorIs(c.t, err, engine.ErrNotRunning)
	_, err = c.driver.Command(c.t.Context(), c.web.Process(9), command, io.Discard)
	require.ErrorIs(c.t, err, engine.ErrNotFound)
	c.bench.Leave()
	_, err = c.driver.Command(c.t.Context(), id, command, io.Discard)
	require.ErrorIs(c.t, err, engine.ErrUnreachable)
}

// runTools runs a container of the image Tools in which commands can be run.
func (c trial) runTools() (id string) {
	c.t.Helper()
	spec := c.process()
	spec.Image, spec.Cmd, spec.Volumes = c.bench.Tools, c.bench.Script("stubborn"), nil
	return c.runUntil(spec, "begun")
}

// begin runs a command until the end of ctx, and returns once it has printed "begun". The
// channel gets its error.
func (c trial) begin(ctx context.Context, id string, words ...string) <-chan error {
	c.t.Helper()
	begun, ended := newSignal("begun\n"), make(chan error, 1)
	go func() {
		_, err := c.driver.Command(ctx, id, engine.Cmd{Args: c.bench.Script(words...)}, begun)
		ended <- err
	}()
	select {
	case <-begun.seen:
	case err := <-ended:
		c.t.Fatalf("it ended before it began: %v", err)
	}
	return ended
}

// signal is an output whose channel seen is closed once a text was written to it.
type signal struct {
	text  string
	seen  chan struct{}
	close func()

	mu      sync.Mutex
	written strings.Builder
}

func newSignal(text string) *signal {
	s := &signal{text: text, seen: make(chan struct{})}
	s.close = sync.OnceFunc(func() { close(s.seen) })
	return s
}

func (s *signal) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written.Write(p)
	if strings.Contains(s.written.String(), s.text) {
		s.close()
	}
	return len(p), nil
}

func commandEnds(c trial) {
	id := c.runTools()
	ctx, cancel := context.WithCancel(c.t.Context())
	ended := c.begin(ctx, id, "mourn", "/tmp/asked")
	cancel()
	err := <-ended
	require.ErrorIs(c.t, err, context.Canceled)
	require.NotErrorIs(c.t, err, engine.ErrNotEnded)
	text, _, err := engine.Answer(c.t.Context(), c.driver, id, engine.Cmd{Args: c.bench.Script("cat", "/tmp/asked")})
	require.NoError(c.t, err)
	assert.Equal(c.t, "asked\n", text)
	assert.True(c.t, c.look(id).Running)
}

func commandKills(c trial) {
	id := c.runTools()
	ctx, cancel := context.WithCancel(c.t.Context())
	ended := c.begin(ctx, id, "stubborn")
	cancel()
	began := time.Now()
	err := <-ended
	require.ErrorIs(c.t, err, context.Canceled)
	require.NotErrorIs(c.t, err, engine.ErrNotEnded)
	assert.GreaterOrEqual(c.t, time.Since(began), 5*time.Second)
	assert.True(c.t, c.look(id).Running)
}

func commandContainer(c trial) {
	id := c.runTools()
	ended := c.begin(c.t.Context(), id, "stubborn")
	require.NoError(c.t, c.driver.Stop(c.t.Context(), id))
	require.NoError(c.t, c.driver.Restart(c.t.Context(), id))
	require.ErrorIs(c.t, <-ended, engine.ErrEnded)
	ended = c.begin(c.t.Context(), id, "stubborn")
	require.NoError(c.t, c.driver.Remove(c.t.Context(), id))
	require.ErrorIs(c.t, <-ended, engine.ErrEnded)
}
