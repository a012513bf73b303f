package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/pause"
)

// lead makes a shell the command, which then has its process id. The engine makes that the
// leader of a session, and so of a process group. The shell prints the id to a stream that
// the command does not have, since both of the command's outputs are the other one: so it
// cannot print another id.
const lead = `echo $$ >&2; exec "$@" 2>&1`

// endGroup ends the process group whose leader is its argument. It sends SIGKILL even when
// it cannot start sleep, for want of a free process.
const endGroup = `trap 'kill -s KILL -- "-$1"' EXIT
kill -s TERM -- "-$1"
n=0
while [ $n -lt 25 ] && kill -s 0 -- "-$1"; do sleep 0.2; n=$((n + 1)); done`

// Command implements engine.Driver.
func (d *Driver) Command(ctx context.Context, id string, cmd engine.Cmd, out io.Writer) (int, error) {
	code, err := d.command(ctx, id, cmd, out)
	return code, wrap(err, "run a command in container %s", id)
}

func (d *Driver) command(ctx context.Context, id string, cmd engine.Cmd, out io.Writer) (int, error) {
	container, err := d.inspect(ctx, id)
	if err != nil {
		return -1, err
	}
	if !container.State.Running {
		return -1, engine.ErrNotRunning
	}
	longer, done := forCommand(ctx)
	defer done()
	leader := &leader{known: make(chan struct{})}
	cmd.Args = append([]string{"sh", "-c", lead, "sh"}, cmd.Args...)
	run, err := d.begin(longer, id, cmd, out, leader)
	if err != nil {
		return -1, err
	}
	defer run.close()
	var code int
	ended := make(chan struct{})
	waiting, stop := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(ended)
		code, err = run.wait(waiting, false)
	}()
	defer func() { stop(); <-ended }()
	select {
	case <-ended:
		if err == nil && !leader.began() && (code == cannotRun || code == noSuchCommand) {
			return -1, engine.ErrNotBegun // what out got is the engine's
		}
		return code, d.commandError(ctx, id, container.State.StartedAt, code, err)
	case <-ctx.Done():
		return -1, errors.Join(ctx.Err(), d.endCommand(longer, id, leader, ended))
	}
}

// forCommand returns a context for running a command and ending it: it ends
// engine.CommandEnd after ctx, or with done.
func forCommand(ctx context.Context) (longer context.Context, done func()) {
	longer, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		pause.For(longer, engine.CommandEnd)
		end()
	})
	return longer, func() { stop(); end() }
}

// leader reads a process id from the first line that is written to it.
type leader struct {
	line  []byte
	pid   int           // above 1, or 0 if that was not an id; set before known is closed
	known chan struct{} // closed once the line is there
}

// longestID is longer than any process id is in decimal.
const longestID = 20

func (l *leader) Write(p []byte) (int, error) {
	select {
	case <-l.known:
		return len(p), nil
	default:
	}
	l.line = append(l.line, p...)
	line, _, whole := bytes.Cut(l.line, []byte("\n"))
	if !whole && len(line) <= longestID {
		return len(p), nil
	}
	if pid, err := strconv.Atoi(string(line)); err == nil && pid > 1 { // 0 and 1 would stand for other processes
		l.pid = pid
	}
	close(l.known)
	return len(p), nil
}

// began reports whether the first line is there.
func (l *leader) began() bool {
	select {
	case <-l.known:
		return true
	default:
		return false
	}
}

// endCommand ends a command's process group, whose processes run as the container's user,
// and returns once the command has ended. While no process is free for that, it tries
// again.
func (d *Driver) endCommand(ctx context.Context, id string, l *leader, ended <-chan struct{}) error {
	select {
	case <-l.known:
	case <-ended:
		return nil
	case <-ctx.Done():
		return engine.ErrNotEnded
	}
	if l.pid == 0 {
		return engine.ErrNotEnded
	}
	args := []string{"sh", "-c", endGroup, "sh", strconv.Itoa(l.pid)}
	for {
		code, err := d.exec(ctx, id, engine.Cmd{Args: args}, io.Discard, io.Discard)
		if err == nil && code != noSuchCommand && code != cannotRun && within(ended, execGraceMax) {
			return nil
		}
		if !pause.For(ctx, execPoll) {
			return engine.ErrNotEnded
		}
		select {
		case <-ended: // with its container
			return nil
		default:
		}
	}
}

// The exit codes of a command that there is not, and of one that could not be started.
const (
	cannotRun     = 126
	noSuchCommand = 127
)

// within waits until a channel is closed, and reports whether that was within a limit.
func within(closed <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-closed:
		return true
	case <-timer.C:
		return false
	}
}

// killed is the exit code of a process that SIGKILL ended, as the end of its container
// does.
const killed = 137

// containerEnd is how long the engine may take to learn that a container has ended, after
// it has learned that a command in it has.
const containerEnd = time.Second

// commandError returns the error of a command that has ended with err in a container that
// was started at a time.
func (d *Driver) commandError(ctx context.Context, id, startedAt string, code int, err error) error {
	if err == nil && code != killed {
		return nil
	}
	for began := time.Now(); ; {
		found, lookErr := d.inspect(ctx, id)
		switch {
		case errors.Is(lookErr, engine.ErrNotFound), lookErr == nil && (!found.State.Running || found.State.StartedAt != startedAt):
			return engine.ErrEnded
		case lookErr == nil && time.Since(began) < containerEnd && pause.For(ctx, execPoll):
			continue
		case err == nil && lookErr == nil:
			return nil // something else killed it
		}
		return fmt.Errorf("%w: %w", engine.ErrLost, errors.Join(err, lookErr))
	}
}
