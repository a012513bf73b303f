package stack

import (
	"crypto/rand"
	"fmt"
	"strings"
	"time"
)

// The limits of one-off commands (docs/api.md, "One-off commands").
const (
	CommandTimeout    = time.Minute      // of a command whose request gives none
	CommandTimeoutMax = 10 * time.Minute // that a request may give
	CommandChars      = 64 << 10         // bytes of a command
	CommandOutput     = 1 << 20          // bytes of a command's output that are kept, from the end
	CommandsAtOnce    = 4                // of one stack
)

// Command is a one-off command in the running container of a service, as the list of a
// stack's commands keeps it (docs/api.md, "POST /v0/stacks/{id}/services/{name}/exec").
type Command struct {
	ID      string // unique over the whole server
	StackID string
	Service string
	By      string // email of the owner; "" for the manage token
	Line    string // for the shell; sealed at rest, since it may contain secrets

	StartedAt time.Time
	EndedAt   time.Time // zero while it runs
	ExitCode  *int      // nil while it runs, and if it was ended from outside
	TimedOut  bool      // it was ended since its time was over
	Error     string    // why there is no exit code, apart from a timeout, and what could not be done
}

// NewCommand returns a command that is about to run, or an Unprocessable error for a line
// that cannot.
func NewCommand(stackID, service, by, line string) (Command, error) {
	switch {
	case strings.TrimSpace(line) == "":
		return Command{}, NewError(Unprocessable, "the command is empty; send one for the shell, as in ls -l")
	case len(line) > CommandChars:
		return Command{}, NewError(Unprocessable, fmt.Sprintf(
			"the command has %d bytes, and at most %d are allowed; put a script into the source, deploy it, and run that", len(line), CommandChars))
	case strings.ContainsRune(line, 0):
		return Command{}, NewError(Unprocessable, "the command contains a NUL character, which no command can")
	}
	return Command{ID: rand.Text(), StackID: stackID, Service: service, By: by, Line: line}, nil
}

// ParseCommandTimeout parses the timeout of a one-off command; "" stands for the default.
func ParseCommandTimeout(text string) (time.Duration, error) {
	if text == "" {
		return CommandTimeout, nil
	}
	timeout, err := ParseDurationLike(text, "30s, 5m or "+FormatDuration(CommandTimeoutMax))
	switch {
	case err != nil:
		return 0, err
	case timeout < time.Second || timeout > CommandTimeoutMax:
		return 0, NewError(Unprocessable, fmt.Sprintf("timeout %s is not between 1s and %s; start what takes longer in the background", text, FormatDuration(CommandTimeoutMax)))
	}
	return timeout, nil
}

// CheckCommand returns an error unless one-off commands may run in a service: NotFound for
// an unknown service, and a Conflict if no process of it runs.
func (s *Stack) CheckCommand(service string, now time.Time) error {
	svc := s.Service(service)
	switch {
	case svc == nil:
		return s.noService(service)
	case s.Due(now), s.Status == Expired:
		return errExpired
	case s.Status == Building:
		return &Error{
			Kind: Conflict, RetryAfter: busyRetry,
			Detail: "the stack is not live yet, so no process of it runs; wait for it with GET /v0/stacks/" + s.ID + "?wait=true, then run the command again",
		}
	case s.Status != Live:
		return NewError(Conflict, fmt.Sprintf("the stack is %s, so no process of it runs; deploy a source that works, then run the command again", s.Status))
	case svc.Spec.IsStatic():
		return NewError(Conflict, service+" is a static site: no process serves it, so there is none to run a command beside")
	}
	return nil
}
