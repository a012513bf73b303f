package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/berth-host/berth/internal/server"
)

func stacksCommand() *cobra.Command {
	stacks := &cobra.Command{Use: "stacks", Short: "Show which node has a stack, or move it to another", RunE: listCommands}
	show := &cobra.Command{
		Use:   "show STACK",
		Short: "Show which node has a stack, and which others have data of it",
		Args:  words(1, "the id of one stack"),
		RunE:  configured(showStack),
	}
	show.Flags().Bool("json", false, "print a JSON object")
	stacks.AddCommand(show, &cobra.Command{
		Use:   "move STACK NODE",
		Short: "Move a stack to another node, and wait until that has it",
		Args:  words(2, "the id of a stack, and the hostname or id of a node; berthd nodes lists them"),
		RunE:  configured(moveStack),
	})
	return stacks
}

// words checks that a command has n arguments.
func words(n int, which string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return fmt.Errorf("%s takes %s", cmd.CommandPath(), which)
		}
		return nil
	}
}

func showStack(cmd *cobra.Command, config server.Config, args []string) error {
	return withNodes(cmd, config, func(nodes server.Nodes) error {
		v, err := nodes.Stack(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if asJSON, _ := cmd.Flags().GetBool("json"); asJSON { // the flag exists
			return json.NewEncoder(cmd.OutOrStdout()).Encode(v)
		}
		table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "ID\tNAME\tSTATUS\tNODE\tEPOCH")
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\n", v.ID, v.Name, v.Status, v.Owner, v.Epoch)
		return errors.Join(table.Flush(), printLeft(cmd.OutOrStdout(), v.Left))
	})
}

// printLeft names the data that is on nodes that do not own its stack.
func printLeft(out io.Writer, left []server.Leftovers) error {
	var errs []error
	for _, l := range left {
		_, err := fmt.Fprintf(out, "Node %s has data of the stack %s, which it does not own: %s. It stays until you remove it.\n", l.OnName, l.Stack, strings.Join(l.Volumes, ", "))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func moveStack(cmd *cobra.Command, config server.Config, args []string) error {
	err := withNodes(cmd, config, func(nodes server.Nodes) error { return nodes.Move(cmd.Context(), args[0], args[1]) })
	if err == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "Node %s has the stack %s.\n", args[1], args[0])
	}
	return err
}
