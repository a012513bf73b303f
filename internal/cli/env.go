package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-host/berth/internal/client"
	"github.com/berth-host/berth/internal/stack"
)

// envChange is a requested change of variables.
type envChange struct {
	service string // "" for all
	noBuild bool
	wait    bool
	timeout time.Duration
}

func (a *app) envCommand() *cobra.Command {
	var service string
	cmd := &cobra.Command{
		Use:   "env [STACK]",
		Short: "List, set and unset variables outside the manifest",
		Long:  "List the variables of a stack's services, without their values. With set and unset, change those outside the manifest, which win over it and stay when the stack is deployed again.",
		Example: `berth env
berth env set LOG_LEVEL=debug REGION=eu
berth env set --service api DATABASE_URL < url.txt
berth env unset REGION`,
	}
	cmd.Flags().StringVar(&service, "service", "", "only this service's")
	a.onStack(cmd, 0, func(ctx context.Context, t *target, _ []string) error { return a.listEnv(ctx, t, service) })
	cmd.AddCommand(a.envSetCommand(), a.envUnsetCommand())
	return cmd
}

func (a *app) envSetCommand() *cobra.Command {
	return a.changingEnv(&cobra.Command{
		Use:   "set [STACK] KEY=VALUE…",
		Short: "Set variables, for all services or for one",
		Long: `Set variables, for all services or with --service for one. This starts the next generation of the stack, which takes over what was built. Services that have install or build commands are built again, since these may read the variables. If the generation fails, the variables stay as they were.

Other users of this machine can see the arguments of a command, and shells keep them. So for a secret pass only the KEY: its value is asked for on a terminal, and otherwise read from standard input.`,
		Example: `berth env set LOG_LEVEL=debug REGION=eu
berth env set --service api DATABASE_URL < url.txt
berth env set stk_3f2a9c1b7d4e --no-build FLAG=on`,
	}, a.readValues)
}

func (a *app) envUnsetCommand() *cobra.Command {
	return a.changingEnv(&cobra.Command{
		Use:     "unset [STACK] KEY…",
		Short:   "Unset variables that were set outside the manifest",
		Long:    "Unset variables that were set outside the manifest, for all services or with --service for one. The values of the manifest count again.",
		Example: `berth env unset --service api DATABASE_URL`,
	}, func(_ context.Context, args []string) (map[string]*string, error) {
		values := map[string]*string{}
		for _, name := range args {
			values[name] = nil
		}
		return values, nil
	})
}

// changingEnv makes cmd a command that changes variables, whose values read returns from
// its arguments.
func (a *app) changingEnv(cmd *cobra.Command, read func(context.Context, []string) (map[string]*string, error)) *cobra.Command {
	d := &envChange{}
	flags := cmd.Flags()
	flags.StringVar(&d.service, "service", "", "only for this service (default: for all)")
	flags.BoolVar(&d.noBuild, "no-build", false, "do not build services again")
	flags.BoolVar(&d.wait, "wait", true, "wait until the change is live or failed")
	flags.DurationVar(&d.timeout, "timeout", 0, "stop waiting after this time")
	defer func() { cmd.GroupID = "" }() // berth env has one, and its commands none
	return a.forStack(cmd, stack.MaxEnvNames, func(ctx context.Context, args []string) error {
		if len(args) == 0 {
			return usagef("name the variables, as in %s", strings.Split(cmd.Example, "\n")[0])
		}
		values, err := read(ctx, args)
		if err != nil {
			return err
		}
		t, err := a.target(ctx)
		if err != nil {
			return err
		}
		return a.changeEnv(ctx, t, d, values)
	})
}

// readValues returns the variables of arguments KEY=VALUE. The value of a KEY alone is
// asked for on a terminal, and otherwise read from standard input.
func (a *app) readValues(ctx context.Context, args []string) (map[string]*string, error) {
	values := map[string]*string{}
	var fromInput string
	for _, arg := range args {
		name, value, given := strings.Cut(arg, "=")
		if _, twice := values[name]; twice {
			return nil, usagef("%s is given twice", name)
		}
		if !given && fromInput != "" && !a.ui.asks {
			return nil, usagef("standard input has one value, but %s and %s have none; set them one after the other", fromInput, name)
		}
		if !given {
			var err error
			if value, err = a.readValue(ctx, name); err != nil {
				return nil, err
			}
			fromInput = name
		}
		values[name] = &value
	}
	return values, nil
}

// readValue reads the value of a variable from the terminal, which does not show it, or
// all of standard input without the newline at its end.
func (a *app) readValue(ctx context.Context, name string) (string, error) {
	if a.ui.asks {
		return a.ui.askSecret(ctx, "Value of "+a.ui.clean(name)+": ")
	}
	text, err := interruptible(ctx, func() ([]byte, error) { return io.ReadAll(io.LimitReader(a.ui.in, stack.MaxEnvValue+3)) })
	if err != nil {
		return "", fmt.Errorf("read the value of %s: %w", name, err)
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"), nil
}

// changeEnv changes variables, and waits for the generation that follows.
func (a *app) changeEnv(ctx context.Context, t *target, d *envChange, values map[string]*string) error {
	since, err := lastEvent(ctx, t)
	if err != nil {
		return err
	}
	s, err := t.api.SetEnv(ctx, t.stack.ID, client.NewEnvChange(d.service, values, !d.noBuild))
	if err != nil {
		return err
	}
	s.ClaimCode, s.ClaimURL = t.stack.ClaimCode, t.stack.ClaimURL
	t.stack = s
	if s.Deploying == nil {
		a.ui.sayf("nothing changes: the variables of %s were like that before", s.ID)
		return a.show(s)
	}
	t.began = s.Deploy
	built := "; services with install or build commands are built again"
	if d.noBuild {
		built = ", from what was built"
	}
	a.ui.sayf("%s is starting generation %d with the change%s", s.ID, *s.Deploying, built)
	if !d.wait {
		return a.show(s)
	}
	return a.finish(ctx, t, since, d.timeout)
}

// listEnv prints the variables of a stack, or those of one service and of all.
func (a *app) listEnv(ctx context.Context, t *target, service string) error {
	variables, err := t.api.Env(ctx, t.stack.ID)
	if err != nil {
		return err
	}
	if service != "" {
		variables = slices.DeleteFunc(variables, func(v client.Variable) bool { return v.Service != nil && *v.Service != service })
	}
	if a.json {
		return a.ui.printJSON(map[string]any{"variables": variables})
	}
	if len(variables) == 0 {
		a.ui.sayf("no variables; set one with berth env set KEY=VALUE")
		return nil
	}
	w := tabwriter.NewWriter(a.ui.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SERVICE\tNAME\tFROM\tCHANGED")
	for _, v := range variables {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", orText(v.Service, "all"), v.Name, v.From, changedAt(v.ChangedAt))
	}
	return flush(w)
}

// changedAt formats when something was changed, in the user's time zone.
func changedAt(seconds *float64) string {
	if seconds == nil {
		return "-"
	}
	return time.UnixMilli(int64(*seconds * 1000)).Format("2006-01-02 15:04:05")
}
