package enginetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/engine"
)

// execution is a command in a container.
type execution struct {
	engine     *Engine
	own        *container    // what its program takes for its container
	ended      chan struct{} // closed when the container has ended
	code       chan int
	term, kill func()
	printed    int // lines
}

// Exec implements engine.Driver. It runs the program of the engine that has the name of the
// command's last word, and writes its lines to stdout when it has ended.
func (d *Driver) Exec(ctx context.Context, id string, cmd engine.Cmd, stdout, _ io.Writer) (int, error) {
	if cmd.Files != nil {
		if err := engine.Stream(ctx, cmd.Files, func(tar io.Reader) error { return d.unpack(ctx, "Exec", id, tar) }); err != nil {
			return -1, err
		}
	}
	x, err := d.execute(ctx, "Exec", id, cmd)
	if err != nil {
		return -1, err
	}
	select {
	case code := <-x.code:
		return code, x.print(stdout)
	case <-ctx.Done():
		return -1, ctx.Err()
	}
}

// Command implements engine.Driver. It finds the program as Exec does, and writes its lines
// as they come. The program is its whole process group; one that does not return when it is
// killed cannot be ended.
func (d *Driver) Command(ctx context.Context, id string, cmd engine.Cmd, out io.Writer) (int, error) {
	x, err := d.execute(ctx, "Command", id, cmd)
	if err != nil {
		return -1, err
	}
	for {
		change := d.engine.Changed()
		if err := x.print(out); err != nil {
			return -1, err
		}
		select {
		case code := <-x.code:
			return x.result(code, out)
		case <-change:
		case <-ctx.Done():
			return -1, errors.Join(ctx.Err(), x.end(), x.print(out))
		}
	}
}

// result returns what Command does for a program that has ended.
func (x *execution) result(code int, out io.Writer) (int, error) {
	select {
	case <-x.ended:
		return -1, engine.ErrEnded
	default:
		return code, x.print(out)
	}
}

// groupEnd is how long a command has between SIGTERM and SIGKILL.
const groupEnd = 5 * time.Second

// end ends the program.
func (x *execution) end() error {
	x.term()
	if x.endsWithin(groupEnd) {
		return nil
	}
	x.kill()
	if x.endsWithin(engine.CommandEnd - groupEnd) {
		return nil
	}
	return engine.ErrNotEnded
}

func (x *execution) endsWithin(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-x.code:
		return true
	case <-timer.C:
		return false
	}
}

// execute starts a command.
func (d *Driver) execute(ctx context.Context, method, id string, cmd engine.Cmd) (*execution, error) {
	e := d.engine
	terminated, killed := make(chan struct{}), make(chan struct{})
	x := &execution{
		engine: e, own: &container{id: id, running: true}, code: make(chan int, 1),
		term: sync.OnceFunc(func() { close(terminated) }), kill: sync.OnceFunc(func() { close(killed) }),
	}
	err := d.request(ctx, method, lastOf(cmd.Args), func() error {
		c := e.find(id)
		if c == nil {
			return notFound("container", id)
		}
		if !c.running {
			return fmt.Errorf("%w: %w", engine.ErrNotRunning, errNoStart)
		}
		x.ended, x.own.spec, x.own.files = c.killed, c.spec, c.files
		return nil
	})
	if err != nil {
		return nil, err
	}
	env := append(x.own.spec.Env[:len(x.own.spec.Env):len(x.own.spec.Env)], cmd.Env...)
	p := &Process{Args: cmd.Args, Env: env, Terminated: terminated, Killed: killed, engine: e, container: x.own}
	program, done := e.program(cmd.Args), make(chan struct{})
	e.running.Go(func() {
		defer close(done)
		x.code <- program(p)
	})
	e.running.Go(func() {
		select {
		case <-x.ended:
			x.term()
			x.kill()
		case <-done:
		}
	})
	return x, nil
}

// print writes the lines that the program has printed since the last time.
func (x *execution) print(out io.Writer) error {
	x.engine.mu.Lock()
	lines := x.own.log[x.printed:]
	x.engine.mu.Unlock()
	x.printed += len(lines)
	for _, l := range lines {
		if _, err := fmt.Fprintln(out, l.text); err != nil {
			return err
		}
	}
	return nil
}
