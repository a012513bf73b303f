package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/pause"
)

// A command's end is normally the end of its output. A background child that
// keeps the output open hides it, so the engine is asked as well: this often,
// and from firstPoll on doubling up to it once the output has ended. What is
// still on its way then has until it is quiet for execGrace, execGraceMax in all:
// long enough for a busy engine, and waited for only with such a child.
const (
	execPoll     = 250 * time.Millisecond
	firstPoll    = time.Millisecond
	execGrace    = time.Second
	execGraceMax = 5 * time.Second
)

// errNeverRan is the cause when the engine accepted a command and did not run it.
var errNeverRan = errors.New("the command did not start: the container is not running")

// exec runs a command in a running container, gives stdout and stderr what it prints
// in the order of arrival, and returns its exit code: 126 or 127 when there is no such
// command. It returns when the command ends, or with cmd.Whole its output, or at once
// when ctx ends; the command then goes on until the container is killed. Nothing is
// written any more after it has returned.
func (e *Engine) exec(ctx context.Context, id string, cmd engine.Cmd, stdout, stderr io.Writer) (int, error) {
	run, err := e.begin(ctx, id, cmd, stdout, stderr)
	if err != nil {
		return -1, wrap(err, "run %q in container %s", cmd.Args, id)
	}
	wait := run.wait
	if cmd.Whole {
		wait = run.waitWhole
	}
	code, err := wait(ctx)
	run.close()
	if err != nil {
		return -1, wrap(err, "run %q in container %s", cmd.Args, id)
	}
	return code, nil
}

// execution is one command that was started.
type execution struct {
	engine  *Engine
	id      string // of the exec
	stream  types.HijackedResponse
	arrived atomic.Int64  // bytes of output so far
	copied  chan struct{} // closed when the copying of output has ended
	copyErr error         // why, when not by its end; read after copied is closed
}

// begin starts the command and the copying of its output.
func (e *Engine) begin(ctx context.Context, id string, spec engine.Cmd, stdout, stderr io.Writer) (*execution, error) {
	made, err := answered(ctx, func() (container.ExecCreateResponse, error) {
		// One that is made and never started does nothing, and goes with the container.
		made, err := e.api.ContainerExecCreate(ctx, id, container.ExecOptions{
			Cmd: spec.Args, Env: spec.Env, User: spec.User, WorkingDir: spec.Dir,
			AttachStdout: true, AttachStderr: true,
		})
		return made, wrap(err, "prepare the command")
	})
	if err != nil {
		return nil, err
	}
	stream, err := e.api.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
	if err != nil {
		return nil, err
	}
	x := &execution{engine: e, id: made.ID, stream: stream, copied: make(chan struct{})}
	go func() {
		defer close(x.copied)
		_, x.copyErr = stdcopy.StdCopy(stdout, stderr, x)
	}()
	return x, nil
}

// Read passes the output on and counts it.
func (x *execution) Read(p []byte) (int, error) {
	n, err := x.stream.Reader.Read(p)
	x.arrived.Add(int64(n))
	return n, err
}

// waitWhole returns the exit code once the output has ended.
func (x *execution) waitWhole(ctx context.Context) (int, error) {
	select {
	case <-ctx.Done():
		return -1, ctx.Err()
	case <-x.copied:
		return x.codeAfterOutput(ctx)
	}
}

// wait returns the exit code once the command has ended and its output is in.
func (x *execution) wait(ctx context.Context) (int, error) {
	poll := time.NewTicker(execPoll)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return -1, ctx.Err()
		case <-x.copied:
			return x.codeAfterOutput(ctx)
		case <-poll.C:
			state, err := x.look(ctx)
			if err != nil {
				return -1, err
			}
			if state.Pid != 0 && !state.Running {
				x.drain(ctx)
				return state.ExitCode, nil
			}
		}
	}
}

// codeAfterOutput finds the exit code when the output has ended: the engine
// may learn of the command's end a little later, or much later when the
// command closed its output itself.
func (x *execution) codeAfterOutput(ctx context.Context) (int, error) {
	if x.copyErr != nil {
		return -1, fmt.Errorf("copy output: %w", x.copyErr)
	}
	for interval := firstPoll; ; interval = min(2*interval, execPoll) {
		state, err := x.look(ctx)
		switch {
		case err != nil:
			return -1, err
		case !state.Running && state.Pid == 0 && state.ExitCode == 0:
			return -1, errNeverRan
		case !state.Running:
			return state.ExitCode, nil
		}
		if !pause.For(ctx, interval) {
			return -1, ctx.Err()
		}
	}
}

// look asks the engine how the command is doing.
func (x *execution) look(ctx context.Context) (container.ExecInspect, error) {
	return answered(ctx, func() (container.ExecInspect, error) {
		state, err := x.engine.api.ContainerExecInspect(ctx, x.id)
		return state, wrap(err, "look at the command")
	})
}

// drain lets the output that is still on its way arrive.
func (x *execution) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, execGraceMax)
	defer cancel()
	quiet := time.NewTicker(execGrace)
	defer quiet.Stop()
	for before := x.arrived.Load(); ; {
		select {
		case <-ctx.Done():
			return
		case <-x.copied:
			return
		case <-quiet.C:
			now := x.arrived.Load()
			if now == before {
				return
			}
			before = now
		}
	}
}

// close gives up the output and returns when nothing writes any more.
func (x *execution) close() {
	x.stream.Close()
	<-x.copied
}
