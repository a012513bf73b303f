package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/berth-host/berth/internal/server"
)

func nodesCommand() *cobra.Command {
	nodes := &cobra.Command{
		Use:   "nodes",
		Short: "List the nodes of the cluster; drain, activate or give up one",
		Args:  noNodeCommand,
		RunE:  configured(listNodes),
	}
	nodes.Flags().Bool("json", false, "print a JSON array")
	nodes.AddCommand(
		nodeCommand("drain", "Move all stacks of a node to others and wait until it has none", "Node %s has no stacks, and gets no new ones.", server.Nodes.Drain),
		nodeCommand("activate", "Let a node that was drained have new stacks again", "Node %s may get new stacks.", server.Nodes.Activate),
		nodeCommand("lost", "Give up a node that is away, so that others may take its stacks", "Node %s is lost.", server.Nodes.Lose),
	)
	return nodes
}

// noNodeCommand refuses a word after nodes that is not one of its commands.
func noNodeCommand(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s has no command %q; it has drain, activate and lost", cmd.CommandPath(), args[0])
	}
	return nil
}

// nodeCommand returns a command that does something with one node.
func nodeCommand(verb, short, done string, do func(server.Nodes, context.Context, string) error) *cobra.Command {
	return &cobra.Command{
		Use:   verb + " NODE",
		Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%s takes the hostname or id of one node; berthd nodes lists them", cmd.CommandPath())
			}
			return nil
		},
		RunE: configured(func(cmd *cobra.Command, config server.Config, args []string) error {
			err := withNodes(cmd, config, func(nodes server.Nodes) error { return do(nodes, cmd.Context(), args[0]) })
			if err == nil {
				fmt.Fprintf(cmd.ErrOrStderr(), done+"\n", args[0])
			}
			return err
		}),
	}
}

func withNodes(cmd *cobra.Command, config server.Config, do func(server.Nodes) error) error {
	return server.WithNodes(cmd.Context(), config, server.NewLogger(os.Stderr), do)
}

func listNodes(cmd *cobra.Command, config server.Config, _ []string) error {
	return withNodes(cmd, config, func(nodes server.Nodes) error {
		all, err := nodes.List(cmd.Context())
		if err != nil {
			return err
		}
		if asJSON, _ := cmd.Flags().GetBool("json"); asJSON { // the flag exists
			return json.NewEncoder(cmd.OutOrStdout()).Encode(all)
		}
		table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "NAME\tID\tSTATE\tAVAILABILITY\tSTACKS\tVERSION\tADDRESS")
		for _, n := range all {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", n.Name, n.ID, n.State, n.Availability, n.Stacks, n.Version, n.Address)
		}
		left, err := nodes.Left(cmd.Context())
		return errors.Join(table.Flush(), err, printLeft(cmd.OutOrStdout(), left), printStuck(cmd, nodes))
	})
}

// printStuck says why stacks have not left nodes that are being drained.
func printStuck(cmd *cobra.Command, nodes server.Nodes) error {
	stuck, err := nodes.Stuck(cmd.Context())
	for _, s := range stuck {
		fmt.Fprintf(cmd.OutOrStdout(), "Node %s has not moved the stack %s yet, and tries again: %s\n", s.OnName, s.Stack, s.Why)
	}
	return err
}
