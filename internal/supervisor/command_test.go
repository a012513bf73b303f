package supervisor

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/stack"
)

// once is the one-off command of the world, by the owner of a stack.
func (w *world) once(st *stack.Stack, service string) stack.Command {
	w.t.Helper()
	c, err := stack.NewCommand(st.ID, service, "ana@example.com", "./once")
	require.NoError(w.t, err)
	return c
}

// begin starts the one-off command in the service web and returns when it runs. The
// channel gets it once it has ended.
func (w *world) begin(ctx context.Context, st *stack.Stack) <-chan stack.Command {
	w.t.Helper()
	ended := make(chan stack.Command, 1)
	go func() {
		c, err := w.sup.RunCommand(ctx, w.once(st, "web"), stack.CommandTimeoutMax, &bytes.Buffer{})
		if err != nil {
			c.Error = "not run: " + err.Error()
		}
		ended <- c
	}()
	synctest.Wait()
	require.Empty(w.t, ended)
	return ended
}

// ends asserts how the latest command ended, and that it is recorded so.
func (w *world) ends(ended <-chan stack.Command, says string) {
	w.t.Helper()
	c := <-ended
	require.Nil(w.t, c.ExitCode)
	require.False(w.t, c.TimedOut)
	require.Contains(w.t, c.Error, says)
	all := w.db.Commands()
	require.Equal(w.t, c, all[len(all)-1])
}

func TestRunCommand_RunsInTheServedProcess(t *testing.T) {
	inWorld(t, func(w *world) {
		w.command(func(p *enginetest.Process) int {
			p.Print("generation " + variable(p, "GENERATION"))
			time.Sleep(1500 * time.Millisecond)
			return 3
		})
		st := w.live(service("web"), pages("site"))
		var out bytes.Buffer
		c, err := w.sup.RunCommand(w.t.Context(), w.once(st, "web"), time.Minute, &out)
		require.NoError(t, err)
		require.Equal(t, 3, *c.ExitCode)
		require.Equal(t, 1500*time.Millisecond, c.EndedAt.Sub(c.StartedAt))
		require.Empty(t, c.Error)
		require.Equal(t, "generation 1\n", out.String())
		require.Equal(t, []stack.Command{c}, w.db.Commands())
		require.Contains(t, w.runLog(st), "== one-off command of the owner, 1.5s: exited with code 3\n")
		require.NotContains(t, w.runLog(st), "once")

		for name, kind := range map[string]stack.Kind{"site": stack.Conflict, "api": stack.NotFound} {
			_, err = w.sup.RunCommand(w.t.Context(), w.once(st, name), time.Minute, &out)
			require.Equal(t, kind, stack.KindOf(err), name)
		}
		require.Len(t, w.db.Commands(), 1)
	})
}

func TestRunCommand_EndsWhenItsTimeIsOver(t *testing.T) {
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		for want, program := range map[time.Duration]enginetest.Program{
			time.Minute:                 silent,
			time.Minute + 5*time.Second: stubborn,
		} {
			w.command(program)
			c, err := w.sup.RunCommand(w.t.Context(), w.once(st, "web"), time.Minute, &bytes.Buffer{})
			require.NoError(t, err)
			require.True(t, c.TimedOut)
			require.Nil(t, c.ExitCode)
			require.Empty(t, c.Error)
			require.Equal(t, want, c.EndedAt.Sub(c.StartedAt))
		}
		w.command(func(*enginetest.Process) int { <-w.released; return 0 })
		c, err := w.sup.RunCommand(w.t.Context(), w.once(st, "web"), time.Minute, &bytes.Buffer{})
		require.NoError(t, err)
		require.True(t, c.TimedOut)
		require.Contains(t, c.Error, "could not be ended")
	})
}

// stubborn is a program that only SIGKILL ends.
func stubborn(p *enginetest.Process) int {
	<-p.Killed
	return 137
}

func TestRunCommand_EndsWithItsCaller(t *testing.T) {
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		w.command(silent)
		ctx, leave := context.WithCancelCause(w.t.Context())
		ended := w.begin(ctx, st)
		leave(nil)
		w.ends(ended, "the client left")

		ctx, leave = context.WithCancelCause(w.t.Context())
		ended = w.begin(ctx, st)
		leave(stack.NewError(stack.Unavailable, "the server goes"))
		w.ends(ended, "the server goes")
	})
}

func TestRunCommand_EndsWithWhatItRunsBeside(t *testing.T) {
	for says, end := range map[string]func(*world, *stack.Stack){
		"the stack was deleted":       func(w *world, st *stack.Stack) { require.NoError(w.t, w.sup.Delete(w.t.Context(), st.ID)) },
		"the server was stopped":      func(w *world, _ *stack.Stack) { w.stopServer() },
		"generation 2 took the place": func(w *world, st *stack.Stack) { w.deploy(st.ID, service("web")); w.serves(st.ID, 2); w.settle() },
		"web was restarted":           func(w *world, st *stack.Stack) { w.restart(st); w.settle() },
		"ended while the command ran": func(w *world, st *stack.Stack) { w.crash(st, "web-g1", 1) },
		"the stack stopped serving":   func(w *world, st *stack.Stack) { w.becomes(st.ID, stack.Expired) },
	} {
		t.Run(says, func(t *testing.T) {
			inWorld(t, func(w *world) {
				st := w.live(service("web"))
				w.command(silent)
				ended := w.begin(w.t.Context(), st)
				end(w, st)
				w.ends(ended, says)
			})
		})
	}
}

func TestRunCommand_NeedsAProcessAndAnEngine(t *testing.T) {
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		for _, tt := range []struct {
			fault error
			kind  stack.Kind
		}{{engine.ErrNotRunning, stack.Conflict}, {engine.ErrNotFound, stack.Conflict}, {engine.ErrUnreachable, stack.Unavailable}, {engine.ErrNotBegun, stack.Unavailable}, {errors.New("odd"), 0}} {
			w.engine.Before("Command", func(string) error { return tt.fault })
			_, err := w.sup.RunCommand(w.t.Context(), w.once(st, "web"), time.Minute, &bytes.Buffer{})
			require.Error(t, err)
			require.Equal(t, tt.kind, stack.KindOf(err), err)
			all := w.db.Commands()
			require.Contains(t, all[len(all)-1].Error, "it did not run: ")
		}
		w.engine.Before("Command", func(string) error { return engine.ErrLost })
		c, err := w.sup.RunCommand(w.t.Context(), w.once(st, "web"), time.Minute, &bytes.Buffer{})
		require.NoError(t, err)
		require.Contains(t, c.Error, "its end is not known")
		require.NoError(t, w.sup.Delete(w.t.Context(), st.ID))
		_, err = w.sup.RunCommand(w.t.Context(), w.once(st, "web"), time.Minute, &bytes.Buffer{})
		require.Equal(t, stack.NotFound, stack.KindOf(err))
	})
}

func TestStart_EndsTheCommandsOfADeadServer(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.once(w.live(service("web")), "web")
		require.NoError(t, w.db.AddCommand(w.t.Context(), c))
		w.stopServer()
		w.startServer()
		require.Contains(t, w.db.Commands()[0].Error, "the server died")
	})
}
