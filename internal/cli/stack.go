package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-host/berth/internal/client"
)

func (a *app) statusCommand() *cobra.Command {
	var wait bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "status [STACK]",
		Short: "Show a stack: its URLs, the time left, the claim link",
		Example: `berth status
berth status stk_3f2a9c1b7d4e --wait`,
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait for a running build or restore to end, and exit with 3 if it failed")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "stop waiting after this time")
	return a.onStack(cmd, 0, func(ctx context.Context, t *target, _ []string) error {
		if !wait {
			return a.show(t.stack)
		}
		since, err := lastEvent(ctx, t)
		if err != nil {
			return err
		}
		return a.finish(ctx, t, since, timeout)
	})
}

// usualExtension is how much time extend gives by default.
const usualExtension = "1h"

func (a *app) extendCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "extend [STACK] [DURATION]",
		Short: "Set how long an unclaimed stack lives from now (default 1h)",
		Example: `berth extend 90m
berth extend stk_3f2a9c1b7d4e 2h`,
	}
	return a.onStack(cmd, 1, func(ctx context.Context, t *target, args []string) error {
		s, err := t.api.Extend(ctx, t.stack.ID, argument(args, usualExtension))
		if err != nil {
			return err
		}
		s.ClaimCode, s.ClaimURL = t.stack.ClaimCode, t.stack.ClaimURL
		return a.show(s)
	})
}

func (a *app) restartCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restart [STACK] [SERVICE]",
		Short: "Restart the processes of a stack, or of one service",
		Long:  "Restart the processes of a stack, or of one service, without a build. Each new process takes the traffic when it is healthy; if it does not become healthy, the old one keeps running.",
		Example: `berth restart
berth restart api
berth restart stk_3f2a9c1b7d4e api`,
	}
	return a.onStack(cmd, 1, func(ctx context.Context, t *target, args []string) error {
		s, err := t.api.Restart(ctx, t.stack.ID, argument(args, ""))
		if err != nil {
			return err
		}
		if a.json {
			return a.ui.printJSON(s)
		}
		var names []string
		for _, service := range s.Services {
			if service.Status == "restarting" {
				names = append(names, service.Name)
			}
		}
		a.ui.sayf("restarting %s; look at berth logs -f", strings.Join(names, ", "))
		return nil
	})
}

func (a *app) deleteCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "delete [STACK]",
		Aliases: []string{"destroy"},
		Short:   "Permanently delete a stack and its data",
		Long:    "Permanently delete a stack and its data. berth destroy is the same command.",
		Example: `berth delete
berth delete stk_3f2a9c1b7d4e --yes`,
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return a.onStack(cmd, 0, func(ctx context.Context, t *target, _ []string) error { return a.delete(ctx, t, yes) })
}

func (a *app) delete(ctx context.Context, t *target, yes bool) error {
	if err := a.confirm(ctx, t.stack, yes); err != nil {
		return err
	}
	err := t.api.Delete(ctx, t.stack.ID)
	if err != nil && !client.IsNoStack(err, t.stack.ID) {
		return err
	}
	if err := a.forget(t.api.Server(), t.stack.ID); err != nil {
		return err
	}
	return a.report(map[string]string{"id": t.stack.ID, "status": "deleted"}, "%s (%s) is deleted", t.stack.Name, t.stack.ID)
}

// confirm asks for confirmation of what cannot be undone.
func (a *app) confirm(ctx context.Context, s *client.Stack, yes bool) error {
	if yes {
		return nil
	}
	if !a.ui.asks {
		return usagef("deleting %s cannot be undone, and there is no terminal to ask for confirmation; pass --yes to delete it", s.ID)
	}
	answer, err := a.ui.ask(ctx, fmt.Sprintf("Permanently delete %s (%s) and its data? [y/N] ", a.ui.clean(s.Name), s.ID))
	if err != nil {
		return err
	}
	if answer != "y" && answer != "Y" && answer != "yes" {
		return errors.New("nothing was deleted")
	}
	return nil
}
