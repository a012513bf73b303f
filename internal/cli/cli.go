// Package cli is the berth command: the client of a Berth server for people,
// scripts and agents.
//
// Standard output is for data, standard error for messages. With --json the data is the
// API's JSON, one object per line if there are several. Colours, progress and QR codes
// appear on terminals only. The exit code tells scripts what happened; see exit.go.
// What must be remembered between runs, tokens above all, is kept in one file that only
// its user can read; see memory.go. The hashes of deployed files are beside it, so that
// only what changed is sent; see changes.go. Code in this package touches the terminal, that
// file, the project's folder, temporary files and the user's browser; it reaches the
// server only through package client.
package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"slices"

	"charm.land/fang/v2"
	"github.com/spf13/cobra"

	"github.com/berth-host/berth/internal/client"
	"github.com/berth-host/berth/internal/manpage"
)

// defaultServer is the server if none is given.
const defaultServer = "http://localhost:8080"

// app is one run of the command.
type app struct {
	ui     *ui
	memory *memory
	env    func(string) string

	server string // as --server has it
	stack  string
	dir    string
	json   bool

	err error // of the command that ran
}

// Run runs the command line and returns its exit code.
func Run(ctx context.Context, args []string) int {
	a := &app{env: os.Getenv, ui: newUI(os.Stdin, os.Stdout, os.Stderr), memory: openMemory()}
	root := a.command()
	root.SetArgs(args)
	usage := fang.Execute(ctx, root,
		fang.WithVersion(version()),
		fang.WithoutManpage(),
		fang.WithColorSchemeFunc(fang.AnsiColorScheme),
		fang.WithErrorHandler(func(io.Writer, fang.Styles, error) {}),
	)
	if usage != nil {
		a.err = usageError{usage}
		a.json = a.json || slices.Contains(args, "--json") // the flags may not have been read
	}
	if a.err == nil {
		return 0
	}
	return a.fail(ctx, a.err)
}

// packaged is the version of the package, which a package sets when it builds berth.
var packaged string

// version returns the version of the package, or of the source.
func version() string {
	if packaged != "" {
		return packaged
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}

// command returns the command line.
func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "berth",
		Short: "Deploy a folder to a URL",
		Long:  "Deploy a folder to a URL. You need no account: what you deploy runs for an hour, and anyone with its claim link can keep it.",
		Example: `# Deploy this folder
berth deploy

# Show its status and follow its logs
berth status
berth logs -f

# Show another stack by its id
berth status stk_3f2a9c1b7d4e`,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.server, "server", "", "address of the server (default: BERTH_SERVER or "+defaultServer+")")
	flags.BoolVar(&a.json, "json", false, "print JSON on standard output")
	flags.BoolVarP(&a.ui.quiet, "quiet", "q", false, "print no messages except errors")
	root.AddGroup(
		&cobra.Group{ID: "stack", Title: "stacks"},
		&cobra.Group{ID: "folder", Title: "folders"},
		&cobra.Group{ID: "account", Title: "account"},
	)
	root.AddCommand(
		a.deployCommand(), a.statusCommand(), a.logsCommand(), a.eventsCommand(), a.envCommand(), a.domainsCommand(), a.execCommand(), a.dataCommand(), a.pullCommand(), a.restartCommand(), a.openCommand(), a.extendCommand(), a.deleteCommand(),
		a.initCommand(), a.checkCommand(),
		a.loginCommand(), a.logoutCommand(), a.whoamiCommand(), a.claimCommand(), a.listCommand(),
		a.mcpCommand(),
		exitCodesTopic(),
		manpage.Command(1, manpage.Section{Title: "See also", Text: "berth help exit-codes lists the exit codes. The server is described in berthd(8)."}),
	)
	return root
}

// runCommand adapts do to cobra. It keeps do's error, so that cobra itself returns only
// errors of the command line.
func (a *app) runCommand(do func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.err = do(cmd.Context(), args)
		return nil
	}
}

// onAccount makes cmd a command without arguments about the user's account.
func (a *app) onAccount(cmd *cobra.Command, do func(ctx context.Context) error) *cobra.Command {
	cmd.GroupID, cmd.Args = "account", cobra.NoArgs
	cmd.RunE = a.runCommand(func(ctx context.Context, _ []string) error { return do(ctx) })
	return cmd
}

// onFolder makes cmd a command that works on a project's folder, its only argument. from
// receives the folder and the flag --include.
func (a *app) onFolder(cmd *cobra.Command, from *origin, do func(ctx context.Context) error) *cobra.Command {
	cmd.GroupID, cmd.Args = "folder", cobra.MaximumNArgs(1)
	cmd.Flags().StringArrayVar(&from.include, "include", nil, "also include files that match this pattern, as deploy does")
	cmd.RunE = a.runCommand(func(ctx context.Context, args []string) error {
		from.path = argument(args, ".")
		return do(ctx)
	})
	return cmd
}

// onStack makes cmd a command that requests an existing stack and works on it. The
// stack's id may be among its arguments; do gets the others, at most as many as given.
func (a *app) onStack(cmd *cobra.Command, others int, do func(ctx context.Context, t *target, args []string) error) *cobra.Command {
	return a.forStack(cmd, others, func(ctx context.Context, args []string) error {
		t, err := a.target(ctx)
		if err != nil {
			return err
		}
		return do(ctx, t, args)
	})
}

// onOwnStack is like onStack for a command that needs the API key of the stack's owner, and
// only the stack's id.
func (a *app) onOwnStack(cmd *cobra.Command, others int, do func(ctx context.Context, c *client.Client, id string, args []string) error) *cobra.Command {
	return a.forStack(cmd, others, func(ctx context.Context, args []string) error {
		c, known, err := a.ownAccount()
		if err != nil {
			return err
		}
		id, err := a.requireStack(c, known)
		if err != nil {
			return err
		}
		err = do(ctx, c, id, args)
		if client.IsStatus(err, http.StatusForbidden) && known.Stacks[id].ClaimCode != "" {
			err = &failure{code: exitAccess, detail: err.Error(), next: "run berth claim, since this needs a stack of your account"}
		}
		return err
	})
}

// forStack is like onStack for a command that looks at its arguments before it requests
// the stack, or does not request it.
func (a *app) forStack(cmd *cobra.Command, others int, do func(ctx context.Context, args []string) error) *cobra.Command {
	cmd.Flags().StringVarP(&a.dir, "dir", "C", ".", "folder whose stack to use")
	return a.takingStack(cmd, others, cobra.ShellCompDirectiveNoFileComp, do)
}

// takingStack lets cmd accept a stack's id as an argument and as --stack. Besides ids,
// the shell completes arguments as the directive says.
func (a *app) takingStack(cmd *cobra.Command, others int, beside cobra.ShellCompDirective, do func(ctx context.Context, args []string) error) *cobra.Command {
	if cmd.GroupID == "" {
		cmd.GroupID = "stack"
	}
	cmd.Flags().StringVar(&a.stack, "stack", "", "ID of the stack, which can also be an argument (default: BERTH_STACK or the folder's stack)")
	cmd.Args = cobra.ArbitraryArgs // counted without the id
	cmd.RunE = a.runCommand(func(ctx context.Context, args []string) error {
		args, err := a.takeStack(args)
		if err != nil {
			return err
		}
		if len(args) > others {
			return usagef("%s takes at most %d arguments besides a stack's id, not %d", cmd.CommandPath(), others, len(args))
		}
		return do(ctx, args)
	})
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return a.knownStacks(), beside
	}
	_ = cmd.RegisterFlagCompletionFunc("stack", func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return a.knownStacks(), cobra.ShellCompDirectiveNoFileComp
	}) // the flag exists
	return cmd
}

// connect returns a client of the server without a token.
func (a *app) connect() (*client.Client, error) {
	c, err := client.New(cmp.Or(a.server, a.env("BERTH_SERVER"), defaultServer))
	if err != nil {
		return nil, usageError{err}
	}
	return c, nil
}

// report says what a command did: with --json as data, otherwise as a message.
func (a *app) report(data map[string]string, format string, args ...any) error {
	if a.json {
		return a.ui.printJSON(data)
	}
	a.ui.sayf(format, args...)
	return nil
}

// usagef returns an error of the command line.
func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}
