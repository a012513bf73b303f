package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-host/berth/internal/client"
	"github.com/berth-host/berth/internal/stack"
)

// The exit codes, which scripts rely on.
const (
	exitOther       = 1
	exitUsage       = 2
	exitFailed      = 3
	exitInvalid     = 4
	exitAccess      = 5
	exitNotFound    = 6
	exitConflict    = 7
	exitTooMany     = 8
	exitUnreachable = 9
	exitTimeout     = 10
	exitInterrupted = 130
)

const exitCodesText = `0    success
1    any other error
2    invalid command line
3    the deploy or the stack failed
4    the input was refused: manifest, archive, duration (400, 413, 422)
5    no access: log in, or use the right token (401, 403)
6    the stack, service or claim code does not exist (404)
7    the stack's state does not allow it now (409)
8    too many requests or stacks (429)
9    the server does not answer, or failed itself (5xx)
10   --timeout ran out while waiting
130  interrupted

berth exec exits with the code of its command, if that ended by itself.`

// exitCodesTopic returns a help topic, which is not a command.
func exitCodesTopic() *cobra.Command {
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: exitCodesText}
}

// usageError is an error of the command line.
type usageError struct{ error }

// failure is an error with its exit code and what to do.
type failure struct {
	code   int
	detail string
	next   string // what to do; "" if the detail says it
}

func (f *failure) Error() string { return f.detail }

var errTimeout = &failure{code: exitTimeout, detail: "--timeout ran out", next: "the deploy continues; run berth status --wait to wait for it"}

// fail reports an error and returns the exit code.
func (a *app) fail(ctx context.Context, err error) int {
	if status, ok := errors.AsType[exitStatus](err); ok {
		return int(status)
	}
	code, detail, next := explain(ctx, err)
	if code == exitInterrupted && detail == "" {
		return code
	}
	if a.json {
		text, _ := json.Marshal(map[string]any{"detail": detail, "next": next, "exit_code": code})
		fmt.Fprintln(a.ui.err, string(text))
		return code
	}
	fmt.Fprintf(a.ui.err, "%s %s\n", a.ui.red("error:"), a.ui.clean(strings.ReplaceAll(detail, "\n", "\n  ")))
	if next != "" {
		fmt.Fprintf(a.ui.err, "%s %s\n", a.ui.dim("  next:"), next)
	}
	return code
}

// explain returns an error's exit code, its text and what to do; the text is "" if
// there is nothing to say.
func explain(ctx context.Context, err error) (code int, detail, next string) {
	var usage usageError
	var ours *failure
	var refusal *client.Error
	var away *client.Unreachable
	switch {
	case errors.As(err, &ours):
		return ours.code, ours.detail, ours.next
	case errors.As(err, &usage):
		return exitUsage, err.Error(), "run berth help to see the usage"
	case ctx.Err() != nil || errors.Is(err, context.Canceled):
		return exitInterrupted, "", "" // who interrupted it knows
	case errors.As(err, &refusal):
		code, next = refused(refusal)
		detail, wait := waiting(refusal.Detail)
		return code, detail, cmp.Or(wait, next)
	case errors.As(err, &away):
		return exitUnreachable, err.Error(), "check that the server is running, or choose another with --server or BERTH_SERVER"
	}
	return exitOther, err.Error(), ""
}

// waitFor is how a server says, after the cause, what to wait for and what to do then.
var waitFor = regexp.MustCompile(`(?s)^(.*); wait for it with GET /v0/stacks/(\w+)\?wait=true, then (.*)$`)

// waiting splits a refusal that says to wait into its cause and what to do with this
// program. It returns other refusals as they are, and nothing to do.
func waiting(detail string) (cause, next string) {
	parts := waitFor.FindStringSubmatch(detail)
	if parts == nil {
		return detail, ""
	}
	then := strings.ReplaceAll(parts[3], "end it with supersede=true in the query", "end it with --supersede")
	return parts[1], "wait for it with berth status --wait " + parts[2] + ", then " + then
}

// refused returns the exit code for a refusal of the server, and what to do.
func refused(e *client.Error) (code int, next string) {
	switch {
	case e.Status == http.StatusUnauthorized:
		return exitAccess, "run berth login with an API key from the dashboard"
	case e.Status == http.StatusForbidden:
		return exitAccess, ""
	case e.Status == http.StatusNotFound:
		return exitNotFound, ""
	case e.Status == http.StatusConflict:
		return exitConflict, ""
	case e.Status == http.StatusTooManyRequests:
		if e.RetryAfter > 0 {
			next = "try again in " + stack.RoughDuration(e.RetryAfter)
		}
		return exitTooMany, next
	case e.Status >= http.StatusInternalServerError:
		return exitUnreachable, ""
	case e.Status >= http.StatusBadRequest:
		return exitInvalid, ""
	}
	return exitOther, ""
}
