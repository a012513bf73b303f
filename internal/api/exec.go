package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/sse"
	"github.com/berth-host/berth/internal/stack"
)

// exec answers POST /v0/stacks/{id}/services/{name}/exec with how the command ended. If
// the request accepts server-sent events, they have its output line by line.
func (a *API) exec(c *fiber.Ctx, s *stack.Stack, role string) error {
	if err := a.gate.requireOwner(s, role, "run commands in it"); err != nil {
		return err
	}
	service := c.Params("name")
	if err := s.CheckCommand(shorten(service), stack.Now()); err != nil {
		return err
	}
	command, timeout, err := a.readCommand(c, s, service, role)
	if err != nil {
		return err
	}
	leave, ok := a.commands.Take(s.ID)
	if !ok {
		return errCommands
	}
	x := &execution{api: a, access: a.gate.accessOf(c), out: newTail(stack.CommandOutput), ended: make(chan struct{})}
	begin := func() { x.begin(command, timeout, leave) }
	if !wantsStream(c) {
		begin()
		return x.answer(c)
	}
	gone := hangup(c.Context())
	err = a.server.Stream(c, s.ID, errStreams, nil, func(_ context.Context, out sse.Writer) error {
		begin()
		return x.follow(gone, out)
	})
	if err != nil { // there is no stream
		leave()
	}
	return err
}

// errCommands refuses another command of a stack in which as many run as allowed.
var errCommands = &stack.Error{
	Kind: stack.TooMany, RetryAfter: 5 * time.Second,
	Detail: fmt.Sprintf("%d commands of this stack are running already; run this one when one of them has ended", stack.CommandsAtOnce),
}

const (
	commandExample = `{"command": "ls -l", "timeout": "30s"}`
	mostCommand    = 8 * stack.CommandChars // bytes of the body; JSON may write a character as six
)

// readCommand reads the command of a request, and its timeout.
func (a *API) readCommand(c *fiber.Ctx, s *stack.Stack, service, role string) (command stack.Command, timeout time.Duration, err error) {
	object, err := readObject(bodyOf(c.Context()), mostCommand, []string{"command", "timeout"}, commandExample)
	if err != nil {
		return command, 0, err
	}
	line, err := textOf(object["command"], "command", commandExample)
	if err != nil {
		return command, 0, err
	}
	if timeout, err = timeoutOf(object["timeout"]); err != nil {
		return command, 0, err
	}
	by := ""
	if role == roleOwner {
		account, err := a.gate.owner(c)
		if err != nil {
			return command, 0, err
		}
		by = account.Email
	}
	command, err = stack.NewCommand(s.ID, service, by, line)
	return command, timeout, err
}

// timeoutOf reads the timeout of a command; a value other than a string is an invalid
// duration too.
func timeoutOf(value json.RawMessage) (time.Duration, error) {
	var text string
	if err := json.Unmarshal(value, &text); err != nil {
		text = string(value)
	}
	return stack.ParseCommandTimeout(text)
}

// execution is a command that runs.
type execution struct {
	api    *API
	access access
	out    *tail
	cancel context.CancelCauseFunc
	ended  chan struct{} // closed when the fields below are final
	end    stack.Command
	err    error // why it did not run
}

// begin begins the command, and calls leave once it has ended.
func (x *execution) begin(command stack.Command, timeout time.Duration, leave func()) {
	ctx, cancel := context.WithCancelCause(x.api.server.Context())
	x.cancel = cancel
	go func() {
		defer close(x.ended)
		defer leave()
		defer cancel(nil)
		x.end, x.err = x.api.cfg.Host.RunCommand(ctx, command, timeout, x.out)
		if why, ok := errors.AsType[*stack.Error](context.Cause(ctx)); ok && errors.Is(x.err, context.Canceled) {
			x.err = why // as when the server stops before the command begins
		}
	}()
}

// commandView is how a command ended, as a response has it.
type commandView struct {
	ExitCode  *int    `json:"exit_code"`
	Output    *string `json:"output,omitempty"` // nil in a stream
	Truncated bool    `json:"truncated"`
	TimedOut  bool    `json:"timed_out"`
	Error     string  `json:"error,omitempty"`
}

func (x *execution) view(output *string) commandView {
	return commandView{
		ExitCode: x.end.ExitCode, Output: output, Truncated: x.out.truncated(),
		TimedOut: x.end.TimedOut, Error: x.end.Error,
	}
}

// answer answers with one object.
func (x *execution) answer(c *fiber.Ctx) error {
	x.watch(hangup(c.Context()))
	if x.err != nil {
		return x.err
	}
	output := readable(x.out.take())
	return c.JSON(x.view(&output))
}

// errStopping is why a command is ended when the server stops.
var errStopping = stack.NewError(stack.Unavailable, "the server was stopped before the command had ended, which ended it; run it again once the server is back")

// watch returns once the command has ended. It ends the command when gone is closed, since
// the caller has left, when the server stops, and when the caller loses access.
func (x *execution) watch(gone <-chan struct{}) {
	wake, stop := x.api.cfg.Store.Watch(x.access.id)
	defer stop()
	x.checkAccess() // it may have been lost since the command began
	released := x.api.server.Released()
	for {
		select {
		case <-released:
			x.cancel(errStopping)
			released = nil
		case <-gone:
			x.cancel(nil)
			gone = nil
		case <-wake:
			x.checkAccess()
		case <-x.ended:
			return
		}
	}
}

// checkAccess ends the command if the caller has lost access.
func (x *execution) checkAccess() {
	if _, err := x.access.check(); stack.KindOf(err) != 0 {
		x.cancel(err)
	}
}

// quiet is how long the beginning of a line waits for its end before it is sent, at least.
const quiet = 500 * time.Millisecond

// follow sends the output as it comes, and then how the command ended.
func (x *execution) follow(gone <-chan struct{}, out sse.Writer) error {
	go x.watch(gone)
	lines := &lineSender{out: out, err: out.Beat()} // the headers go out at once
	waited, beat := time.NewTicker(quiet), time.NewTicker(sse.BeatEvery)
	defer waited.Stop()
	defer beat.Stop()
	for lines.err == nil {
		select {
		case <-x.out.more:
			lines.write(x.out.take())
		case <-waited.C:
			lines.tick()
		case <-beat.C:
			lines.err = out.Beat()
		case <-x.ended:
			lines.write(x.out.take())
			lines.flush()
			return cmp.Or(lines.err, x.sendEnd(out))
		}
	}
	x.cancel(nil)
	<-x.ended
	return lines.err
}

// sendEnd sends how the command ended, or why it did not run.
func (x *execution) sendEnd(out sse.Writer) error {
	if x.err != nil {
		return sendEnd(out, x.err)
	}
	return sendJSON(out, sse.Event{Name: "exit"}, x.view(nil))
}
