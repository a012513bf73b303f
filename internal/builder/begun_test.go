package builder

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
)

// echo is an engine whose commands print their files, and exit with 3.
type echo struct{ engine.Builds }

func (echo) Exec(ctx context.Context, _ string, cmd engine.Cmd, stdout, _ io.Writer) (int, error) {
	var files strings.Builder
	if err := cmd.Files(ctx, &files); err != nil {
		return -1, err
	}
	_, err := io.WriteString(stdout, files.String())
	return 3, err
}

// broken is an engine whose commands end before they have their files.
type broken struct{ engine.Builds }

var errBroken = errors.New("the engine restarts")

func (broken) Exec(context.Context, string, engine.Cmd, io.Writer, io.Writer) (int, error) {
	return -1, errBroken
}

var make1 = engine.Cmd{Args: []string{"make"}, Env: []string{"A=1"}, User: "1:1", Dir: "/app"}

// begin begins a command, and returns it once it waits or has ended.
func begin(t *testing.T, driver engine.Builds) *begun {
	t.Helper()
	b := newBegun(t.Context(), make1)
	go b.run(driver, "container")
	synctest.Wait()
	return b
}

func write(text string) func(context.Context, io.Writer) error {
	return func(_ context.Context, w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}

func TestBegun_GoesOnOnceItHasItsFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := begin(t, echo{})
		require.True(t, b.does(make1))
		var out strings.Builder
		code, err := b.finish(t.Context(), write("files"), &out)
		require.NoError(t, err)
		assert.Equal(t, 3, code)
		assert.Equal(t, "files", out.String())
	})
}

func TestBegun_DoesNoOtherCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := begin(t, echo{})
		defer b.abandon()
		for name, change := range map[string]func(*engine.Cmd){
			"arguments":   func(c *engine.Cmd) { c.Args = []string{"make", "all"} },
			"environment": func(c *engine.Cmd) { c.Env = []string{"A=2"} },
			"user":        func(c *engine.Cmd) { c.User = "2:2" },
			"folder":      func(c *engine.Cmd) { c.Dir = "/app/web" },
		} {
			other := make1
			change(&other)
			assert.False(t, b.does(other), name)
		}
	})
}

func TestBegun_IsOfNoUseOnceItHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := begin(t, broken{})
		assert.False(t, b.does(make1))
		b = begin(t, echo{})
		b.abandon()
		<-b.ended
		assert.False(t, b.does(make1))
	})
}

func TestBegun_EndsWithTheBuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := begin(t, echo{})
		ctx, cancel := context.WithCancel(t.Context())
		_, err := b.finish(ctx, func(ctx context.Context, _ io.Writer) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		}, io.Discard)
		require.ErrorIs(t, err, context.Canceled)
		<-b.ended
	})
}
