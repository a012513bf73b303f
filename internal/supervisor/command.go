package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// RunCommand runs a one-off command in the container of the served process of a service,
// writes its output to out, and returns it once it has ended. When the timeout is over, or
// ctx ends, the command is ended; if the cause of ctx is a *stack.Error, it is the reason
// that the command has then. Nothing is written to out after RunCommand has returned. An
// error means that the command did not run: a *stack.Error if the state does not allow it,
// or the engine does not answer.
func (s *Supervisor) RunCommand(ctx context.Context, c stack.Command, timeout time.Duration, out io.Writer) (stack.Command, error) {
	st, err := s.cfg.Store.Get(ctx, c.StackID)
	if err != nil {
		return c, err
	}
	if err := st.CheckCommand(c.Service, stack.Now()); err != nil {
		return c, err
	}
	r := s.lookup(c.StackID)
	if r == nil {
		return c, stack.NewNoStack(c.StackID)
	}
	x := &execution{runner: r, command: c, out: out, ended: make(chan struct{})}
	_, err = ask(context.WithoutCancel(ctx), r, func(l *loop) struct{} {
		l.execute(ctx, x, timeout)
		return struct{}{}
	})
	if err != nil {
		return c, err
	}
	<-x.ended
	if s.cfg.DiskLimit > 0 || s.cfg.Quota.Disk > 0 {
		r.startMeasure() // the command may have written or deleted data
	}
	return x.command, x.err
}

// execution is a one-off command.
type execution struct {
	runner  *runner
	process *process // beside which it runs
	out     io.Writer
	ended   chan struct{} // closed when the fields below are final
	command stack.Command
	err     error // why it did not run
}

// execute starts a command beside the served process of its service. The stack's work is
// not over before the command is.
func (l *loop) execute(ctx context.Context, x *execution, timeout time.Duration) {
	if x.process = l.runner.servedProcess(x.command.Service); x.process == nil {
		x.err = errNotRunning(x.command.Service)
		if l.runner.moving.Load() {
			x.err = errMoving
		}
		close(x.ended)
		return
	}
	l.runner.work.Go(func() {
		defer close(x.ended)
		x.run(ctx, timeout)
	})
}

// servedProcess returns the process of a service that the stack serves; nil if none runs.
func (r *runner) servedProcess(service string) *process {
	g := r.serving()
	if g == nil {
		return nil
	}
	before := g.before.Load()
	if p := g.process(service); p != nil || before == nil {
		return p
	}
	if kept := before.process(service); kept != nil && kept.isDatabase() {
		return kept
	}
	return g.process(service) // which has it by now
}

// commandRetry is the Retry-After of a command that cannot run at the moment.
const commandRetry = 5 * time.Second

// errNotRunning is the Conflict for a command in a service whose process does not run at the
// moment.
func errNotRunning(service string) *stack.Error { return notRunning(service, "run the command") }

// notRunning is the Conflict for what needs the process of a service, and may be done again
// once it runs.
func notRunning(service, do string) *stack.Error {
	return &stack.Error{
		Kind: stack.Conflict, RetryAfter: commandRetry,
		Detail: "the process of " + service + " does not run at the moment: it is being started or restarted; read the status of the service, and " + do + " again",
	}
}

// errTimedOut is the cause of the end of a command whose time is over.
var errTimedOut = errors.New("the command's time is over")

// run runs the command. It is recorded first, so that whatever runs is in the list.
func (x *execution) run(ctx context.Context, timeout time.Duration) {
	x.command.StartedAt = stack.Now()
	r := x.runner
	if x.err = r.cfg.Store.AddCommand(ctx, x.command, store.ByOwner(r.cfg.Node, r.epoch)); x.err != nil {
		return
	}
	failpoint.Here("command-recorded")
	limited, cancel := context.WithTimeoutCause(ctx, timeout, errTimedOut)
	defer cancel()
	defer context.AfterFunc(x.runner.ctx, cancel)()
	args := []string{"sh", "-c", x.command.Line}
	code, err := x.runner.cfg.Engine.Command(limited, x.process.id, engine.Cmd{Args: args}, x.out)
	failpoint.Here("command-run")
	if x.err = x.conclude(limited, code, err); x.err != nil {
		x.command.Error = "it did not run: " + x.err.Error()
	} else {
		x.process.logLine(x.summary())
	}
	x.record()
}

// conclude notes how the command ended. The error is why it did not run.
func (x *execution) conclude(limited context.Context, code int, err error) error {
	x.command.EndedAt = stack.Now()
	switch {
	case err == nil:
		x.command.ExitCode = &code
	case errors.Is(context.Cause(limited), errTimedOut):
		x.command.TimedOut = true
	case limited.Err() != nil:
		x.command.Error = x.whyStopped(limited)
	case errors.Is(err, engine.ErrEnded):
		x.command.Error = x.whyEnded()
	case errors.Is(err, engine.ErrLost):
		x.process.log.Warn("the end of a command is not known", "error", err)
		x.command.Error = "the engine of this host stopped answering while the command ran, so its end is not known; it may go on until the service ends"
	case errors.Is(err, engine.ErrNotRunning), errors.Is(err, engine.ErrNotFound):
		return errNotRunning(x.command.Service)
	case errors.Is(err, engine.ErrNotBegun):
		return &stack.Error{
			Kind: stack.Unavailable, RetryAfter: commandRetry,
			Detail: "the command could not be started beside the process of " + x.command.Service + ": the engine of this host could not at the moment, or the service has as many processes as it may have; try again in a moment, and restart the service if that does not help",
		}
	case isOfHost(err):
		x.process.log.Warn("command not run", "error", err)
		return &stack.Error{Kind: stack.Unavailable, RetryAfter: commandRetry, Detail: "the engine of this host does not answer, so the command was not run; try again in a moment"}
	default:
		return err
	}
	if errors.Is(err, engine.ErrNotEnded) {
		x.process.log.Warn("command not ended", "error", err)
		x.command.Error = strings.TrimPrefix(x.command.Error+"; the command could not be ended, and goes on until its service is restarted or deployed again", "; ")
	}
	return nil
}

// whyStopped returns why a command was ended before its time was over.
func (x *execution) whyStopped(limited context.Context) string {
	known, ok := errors.AsType[*stack.Error](context.Cause(limited))
	switch {
	case x.runner.deleted.Load():
		return "the stack was deleted while the command ran"
	case x.runner.ctx.Err() != nil:
		return "the server was stopped while the command ran, which ended the command; run it again once the server is back"
	case ok:
		return known.Detail
	}
	return "the client left while the command ran, which ended the command"
}

// whyEnded returns why a command ended with its container.
func (x *execution) whyEnded() string {
	service, gen, now := x.command.Service, x.process.gen, x.runner.serving()
	switch {
	case now == nil:
		return "the stack stopped serving while the command ran, which ended the command; read the status of the stack"
	case now != gen:
		return fmt.Sprintf("generation %d took the place of generation %d while the command ran, which ended the command; run it again", now.made.Number, gen.made.Number)
	case now.process(service) != x.process:
		return service + " was restarted while the command ran, which ended the command; run it again"
	}
	return "the process of " + service + " ended while the command ran, and the command with it: by a crash, a restart, a deploy or an expiry; read the events of the stack"
}

// summary describes the command for the run log, which does not contain the command since
// that may contain a secret.
func (x *execution) summary() string {
	c, by := &x.command, "the owner"
	if c.By == "" {
		by = "the agent"
	}
	end := "ended: " + c.Error
	switch {
	case c.TimedOut:
		end = "timed out"
	case c.ExitCode != nil:
		end = fmt.Sprintf("exited with code %d", *c.ExitCode)
	}
	return fmt.Sprintf("one-off command of %s, %s: %s", by, c.EndedAt.Sub(c.StartedAt).Round(10*time.Millisecond), end)
}

// recordWait is how long the end of a command may take to be recorded.
const recordWait = 5 * time.Second

// record records the command's end. If that fails, the next server does it.
func (x *execution) record() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.runner.ctx), recordWait)
	defer cancel()
	if err := x.runner.cfg.Store.EndCommand(ctx, x.command); err != nil {
		x.process.log.Error("the end of a command is not recorded", "error", err)
	}
}
