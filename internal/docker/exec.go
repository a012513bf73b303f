package docker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/pause"
)

// A command's end is normally the end of its output. A background child that keeps the
// output open hides it, so the engine is asked too, every execPoll; once the output has
// ended, after firstPoll, and then after pauses that double up to execPoll. Output that is
// still on its way when the command has ended is taken until nothing comes for execGrace,
// or for execGraceMax in all. That is long enough for a busy engine, and takes time only
// with such a child.
const (
	execPoll     = 250 * time.Millisecond
	firstPoll    = time.Millisecond
	execGrace    = time.Second
	execGraceMax = 5 * time.Second
)

// errNeverRan is the cause when the engine accepted a command but did not run it.
var errNeverRan = errors.New("the command did not start: the container is not running")

// Exec implements engine.Driver.
func (d *Driver) Exec(ctx context.Context, id string, cmd engine.Cmd, stdout, stderr io.Writer) (int, error) {
	code, err := d.exec(ctx, id, cmd, stdout, stderr)
	return code, wrap(err, "run %q in container %s", cmd.Args, id)
}

func (d *Driver) exec(ctx context.Context, id string, cmd engine.Cmd, stdout, stderr io.Writer) (int, error) {
	if cmd.Files == nil {
		return d.run(ctx, id, cmd, stdout, stderr)
	}
	refusal := &refusal{text: rand.Text() + "\n", others: stderr}
	with := cmd
	with.Args = append([]string{"sh", "-c", unpackFirst, refusal.text}, cmd.Args...)
	code, err := d.run(ctx, id, with, stdout, refusal)
	if err != nil || !refusal.came {
		return code, err
	}
	if err := engine.Stream(ctx, cmd.Files, func(tar io.Reader) error { return d.CopyIn(ctx, id, tar) }); err != nil {
		return -1, err
	}
	cmd.Files = nil
	return d.run(ctx, id, cmd, stdout, stderr)
}

// unpackFirst makes a shell unpack its standard input and then become its arguments. If it
// cannot unpack all of it, it prints its name instead.
const unpackFirst = `tar -xpf - -C / 2>/dev/null || { printf %s "$0" >&2; exit; }
exec "$@" </dev/null`

// refusal passes on what is written to it, except a text.
type refusal struct {
	text   string
	came   bool // whether the text was written
	others io.Writer
}

func (r *refusal) Write(p []byte) (int, error) {
	if string(p) == r.text {
		r.came = true
		return len(p), nil
	}
	return r.others.Write(p)
}

func (d *Driver) run(ctx context.Context, id string, cmd engine.Cmd, stdout, stderr io.Writer) (int, error) {
	run, err := d.begin(ctx, id, cmd, stdout, stderr)
	if err != nil {
		return -1, err
	}
	defer run.close()
	return run.wait(ctx, cmd.Whole)
}

// execution is one command that was started.
type execution struct {
	api     *client.Client
	id      string // of the exec
	stream  types.HijackedResponse
	arrived atomic.Int64  // bytes of output since drain looked last
	copied  chan struct{} // closed when the copying of output has ended
	copyErr error         // why, when not by its end; read after copied is closed
	feeding sync.WaitGroup
	fed     chan error // gets the result once the files have been sent
	unfeed  context.CancelFunc
}

// begin starts the command and the copying of its output.
func (d *Driver) begin(ctx context.Context, id string, spec engine.Cmd, stdout, stderr io.Writer) (*execution, error) {
	var made container.ExecCreateResponse
	var stream types.HijackedResponse
	err := repeat(ctx, func() (err error) {
		made, stream, err = d.launch(ctx, id, spec)
		return err
	}, func(err error) bool { return errors.Is(err, errPaused) }) // which is not for long
	if err != nil {
		return nil, err
	}
	x := &execution{api: d.api, id: made.ID, stream: stream, copied: make(chan struct{}), fed: make(chan error, 1)}
	go func() {
		defer close(x.copied)
		_, x.copyErr = stdcopy.StdCopy(stdout, stderr, x)
	}()
	ctx, x.unfeed = context.WithCancel(ctx)
	if spec.Files == nil {
		x.fed <- nil
	} else {
		x.feeding.Go(func() { x.fed <- x.feed(ctx, spec.Files) })
	}
	return x, nil
}

// errPaused is the cause when the engine refuses a command since the container is paused.
var errPaused = errors.New("the container is paused")

// launch starts a command. A command that is prepared twice and started once does no harm: it
// goes with the container.
func (d *Driver) launch(ctx context.Context, id string, spec engine.Cmd) (container.ExecCreateResponse, types.HijackedResponse, error) {
	made, err := retryGet(ctx, func() (container.ExecCreateResponse, error) {
		return d.api.ContainerExecCreate(ctx, id, container.ExecOptions{
			Cmd: spec.Args, Env: spec.Env, User: spec.User, WorkingDir: spec.Dir,
			AttachStdin: spec.Files != nil, AttachStdout: true, AttachStderr: true,
		})
	}, "prepare the command")
	var stream types.HijackedResponse
	if err == nil {
		stream, err = d.api.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
	}
	if err == nil {
		return made, stream, nil
	}
	if found, lookErr := d.inspect(ctx, id); lookErr == nil && found.State.Paused || strings.Contains(err.Error(), pausedNow) {
		err = fmt.Errorf("%w: %w", errPaused, err)
	}
	return made, stream, err
}

// feed sends files to the command, which may end before it has read them.
func (x *execution) feed(ctx context.Context, files func(context.Context, io.Writer) error) error {
	err := engine.Stream(ctx, files, func(tar io.Reader) error {
		_, _ = io.Copy(x.stream.Conn, tar)
		return nil
	})
	if err == nil {
		_ = x.stream.CloseWrite()
	}
	return err
}

// Read passes the output on and counts it.
func (x *execution) Read(p []byte) (int, error) {
	n, err := x.stream.Reader.Read(p)
	x.arrived.Add(int64(n))
	return n, err
}

// wait returns the exit code once the command has ended and its output is in, or with
// whole once the output has ended.
func (x *execution) wait(ctx context.Context, whole bool) (int, error) {
	var poll <-chan time.Time // not before the command has its files, for which it may wait long
	for {
		select {
		case <-ctx.Done():
			return -1, ctx.Err()
		case err := <-x.fed:
			if err != nil {
				return -1, err
			}
			if !whole {
				poll = time.Tick(execPoll)
			}
		case <-x.copied:
			return x.codeAfterOutput(ctx)
		case <-poll:
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

// codeAfterOutput returns the exit code once the output has ended. The engine may learn of
// the command's end a little later, or much later if the command closed its output itself.
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

// look returns how the command is doing.
func (x *execution) look(ctx context.Context) (container.ExecInspect, error) {
	return retryGet(ctx, func() (container.ExecInspect, error) { return x.api.ContainerExecInspect(ctx, x.id) }, "look at the command")
}

// drain waits for the output that is still on its way.
func (x *execution) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, execGraceMax)
	defer cancel()
	quiet := time.NewTicker(execGrace)
	defer quiet.Stop()
	x.arrived.Store(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-x.copied:
			return
		case <-quiet.C:
			if x.arrived.Swap(0) == 0 {
				return
			}
		}
	}
}

// close closes the streams and returns when nothing reads or writes any more.
func (x *execution) close() {
	x.unfeed()
	x.stream.Close()
	<-x.copied
	x.feeding.Wait()
}
