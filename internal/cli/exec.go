package cli

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-host/berth/internal/client"
	"github.com/berth-host/berth/internal/stack"
)

func (a *app) execCommand() *cobra.Command {
	var timeout time.Duration
	var command []string
	cmd := &cobra.Command{
		Use:   "exec [STACK] SERVICE -- COMMAND [ARGUMENT…]",
		Short: "Run a command in the container of a running service",
		Long: `Run a command in the container of a running service, with the service's environment and folder.

Its output is printed as it comes, and its exit code is that of berth exec. Each argument reaches the command as it is; for what a shell does, such as pipes and variables, run one with sh -c. Interrupting berth exec ends the command.`,
		Example: `berth exec api -- npm run migrate
berth exec api --timeout 30s -- sh -c 'ls $DATA_DIR | wc -l'
berth exec stk_3f2a9c1b7d4e api -- env`,
	}
	cmd.Flags().DurationVar(&timeout, "timeout", stack.CommandTimeoutMax, "end the command after this time")
	a.forStack(cmd, 1, func(ctx context.Context, args []string) error {
		if len(args) == 0 || len(command) == 0 {
			return usagef("pass the service, -- and the command, as in berth exec api -- ls -l")
		}
		line := client.Command{Service: args[0], Line: shellQuote(command), Timeout: stack.FormatDuration(timeout)}
		t, err := a.target(ctx)
		if err != nil {
			return err
		}
		return a.exec(ctx, t, line)
	})
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error { // the command's own arguments are not berth's
		if dash := cmd.ArgsLenAtDash(); dash >= 0 {
			args, command = args[:dash], args[dash:]
		}
		return run(cmd, args)
	}
	return cmd
}

// exec runs a command. The error of one that has ended by itself is its exit code.
func (a *app) exec(ctx context.Context, t *target, command client.Command) error {
	end, err := t.api.Exec(ctx, t.stack.ID, command, a.printOutput)
	if err != nil {
		return err
	}
	if a.json {
		if err := a.ui.printJSON(end); err != nil {
			return err
		}
	}
	if end.Truncated {
		a.ui.sayf("a part of the output is missing: it came faster than it could be sent")
	}
	switch {
	case end.TimedOut:
		return &failure{code: exitTimeout, detail: "the command ran longer than " + command.Timeout + " and was ended", next: end.Error}
	case end.ExitCode == nil:
		return &failure{code: exitOther, detail: end.Error}
	case *end.ExitCode != 0:
		return exitStatus(*end.ExitCode)
	}
	return nil
}

// printOutput prints a line of a command's output.
func (a *app) printOutput(line client.OutputLine) error {
	if a.json {
		return a.ui.printJSON(line)
	}
	newline := "\n"
	if line.Partial {
		newline = ""
	}
	if _, err := fmt.Fprint(a.ui.out, a.ui.cleanOut(line.Line), newline); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// exitStatus is the exit code of a command that ran elsewhere, which is berth's too.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("the command exited with code %d", int(s)) }

// plainWord matches words that mean the same to a shell in quotes and without. One with an
// equals sign may be an assignment.
var plainWord = regexp.MustCompile(`^[\w@%+:,./-]+$`)

// shellWords are the plain words that a shell does not take for a program's name.
var shellWords = []string{"case", "do", "done", "elif", "else", "esac", "fi", "for", "if", "in", "then", "until", "while"}

// shellQuote returns a line by which a shell runs a command with these arguments as they
// are.
func shellQuote(args []string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = arg
		if !plainWord.MatchString(arg) || slices.Contains(shellWords, arg) {
			quoted[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}
