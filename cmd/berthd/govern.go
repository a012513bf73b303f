package main

import (
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-host/berth/internal/operator"
	"github.com/berth-host/berth/internal/stack"
)

func accountsCommand() *cobra.Command {
	accounts := &cobra.Command{Use: "accounts", Short: "List, disable and enable accounts at the running server", RunE: listCommands}
	list := &cobra.Command{
		Use:   "list",
		Short: "List all accounts",
		Args:  cobra.NoArgs,
		RunE:  told(listAccounts),
	}
	list.Flags().Bool("json", false, "print a JSON object")
	disable := &cobra.Command{
		Use:   "disable EMAIL",
		Short: "Refuse the key, the sessions and the claims of an account; its stacks go on",
		Args:  oneEmail,
		RunE:  told(disableAccount),
	}
	disable.Flags().String("reason", "", "what its holder reads")
	disable.Flags().Bool("stop", false, "stop its stacks, too")
	accounts.AddCommand(list, disable, &cobra.Command{
		Use:   "enable EMAIL",
		Short: "Accept an account again; stacks that were stopped start with a deploy",
		Args:  oneEmail,
		RunE:  told(enableAccount),
	})
	return accounts
}

func listAccounts(cmd *cobra.Command, to *operator.Client, _ []string) error {
	all, err := to.Accounts(cmd.Context())
	if err != nil {
		return err
	}
	if printed, err := printJSON(cmd, all); printed {
		return err
	}
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "EMAIL\tID\tCREATED\tSTACKS\tDISABLED")
	for _, a := range all.Accounts {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\n", a.Email, a.ID, a.CreatedAt.Format(time.DateOnly), a.Stacks, stack.OneLine(a.Reason))
	}
	return table.Flush()
}

func disableAccount(cmd *cobra.Command, to *operator.Client, args []string) error {
	reason, _ := cmd.Flags().GetString("reason") // the flag exists
	stop, _ := cmd.Flags().GetBool("stop")       // the flag exists
	stopped, err := to.DisableAccount(cmd.Context(), args[0], reason, stop)
	if err != nil {
		return err
	}
	talk := cmd.ErrOrStderr()
	fmt.Fprintf(talk, "Disabled the account %s.\n", args[0])
	if stop {
		fmt.Fprintf(talk, "Stopped %s.\n", countStacks(len(stopped.Stacks)))
	}
	return nil
}

func enableAccount(cmd *cobra.Command, to *operator.Client, args []string) error {
	err := to.EnableAccount(cmd.Context(), args[0])
	if err == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "Enabled the account %s.\n", args[0])
	}
	return err
}

func banCommand() *cobra.Command {
	ban := &cobra.Command{
		Use:   "ban NETWORK",
		Short: "Answer a client network with 403 only, or list the networks that are banned",
		Args:  cobra.MaximumNArgs(1),
		RunE:  told(banNetwork),
	}
	ban.Flags().String("for", "", "how long, as in 24h or 30d; for ever without it")
	ban.Flags().Bool("list", false, "list the bans")
	ban.Flags().Bool("json", false, "with --list: print a JSON object")
	return ban
}

func banNetwork(cmd *cobra.Command, to *operator.Client, args []string) error {
	list, _ := cmd.Flags().GetBool("list")   // the flag exists
	lasts, _ := cmd.Flags().GetString("for") // the flag exists
	limited, asJSON := cmd.Flags().Changed("for"), cmd.Flags().Changed("json")
	switch {
	case list && (limited || len(args) > 0):
		return errors.New("--list shows the bans and takes no network; leave it out to ban one")
	case list:
		return listBans(cmd, to)
	case asJSON:
		return errors.New("--json is for --list")
	case limited && lasts == "":
		return errors.New("--for is empty; write how long, as in 24h or 30d, or leave it out to ban for ever")
	case len(args) != 1:
		return errors.New("berthd ban takes one network or address, as in: berthd ban 203.0.113.0/24; --list shows those that are banned")
	}
	b, err := to.Ban(cmd.Context(), args[0], lasts)
	if err == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "Banned %s %s.\n", b.Network, until(b.EndsAt))
	}
	return err
}

func until(end *time.Time) string {
	if end == nil {
		return "until you unban it"
	}
	return "until " + end.Format(time.RFC3339)
}

func listBans(cmd *cobra.Command, to *operator.Client) error {
	all, err := to.Bans(cmd.Context())
	if err != nil {
		return err
	}
	if printed, err := printJSON(cmd, all); printed {
		return err
	}
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NETWORK\tSINCE\tENDS")
	for _, b := range all.Bans {
		fmt.Fprintf(table, "%s\t%s\t%s\n", b.Network, b.CreatedAt.Format(time.RFC3339), until(b.EndsAt))
	}
	return table.Flush()
}

func unbanCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "unban NETWORK",
		Short: "End the ban of a client network",
		Args:  words(1, "one network or address; berthd ban --list shows those that are banned"),
		RunE: told(func(cmd *cobra.Command, to *operator.Client, args []string) error {
			err := to.Unban(cmd.Context(), args[0])
			if err == nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "Unbanned %s.\n", args[0])
			}
			return err
		}),
	}
}

func auditCommand() *cobra.Command {
	audit := &cobra.Command{
		Use:   "audit",
		Short: "Show which commands the running server and earlier ones were given, and by whom",
		Args:  cobra.NoArgs,
		RunE:  told(showAudit),
	}
	audit.Flags().Bool("json", false, "print a JSON object")
	audit.Flags().Int("limit", 1000, "how many of the latest to show")
	return audit
}

func showAudit(cmd *cobra.Command, to *operator.Client, _ []string) error {
	limit, _ := cmd.Flags().GetInt("limit") // the flag exists
	if limit < 1 {
		return errors.New("--limit must be 1 or more")
	}
	all, err := to.Audit(cmd.Context(), limit)
	if err != nil {
		return err
	}
	if printed, err := printJSON(cmd, all); printed {
		return err
	}
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "AT\tUID\tCOMMAND\tRESULT")
	for _, e := range all.Entries {
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", e.At.Format(time.RFC3339), e.UID, stack.OneLine(e.Command), stack.OneLine(e.Result))
	}
	return table.Flush()
}
