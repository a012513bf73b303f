package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/berth-host/berth/internal/operator"
	"github.com/berth-host/berth/internal/server"
	"github.com/berth-host/berth/internal/stack"
)

func stacksCommand() *cobra.Command {
	stacks := &cobra.Command{Use: "stacks", Short: "List, show, stop, delete and move stacks", RunE: listCommands}
	list := &cobra.Command{
		Use:   "list",
		Short: "List all stacks with what they use and why they failed, and the builds in line",
		Args:  cobra.NoArgs,
		RunE:  told(listStacks),
	}
	show := &cobra.Command{
		Use:   "show STACK",
		Short: "Show a stack, what its services use, and in a cluster which nodes have it or data of it",
		Args:  words(1, "the id of one stack"),
		RunE:  configured(showStack),
	}
	for _, cmd := range []*cobra.Command{list, show} {
		cmd.Flags().Bool("json", false, "print a JSON object")
	}
	stop := &cobra.Command{
		Use:   "stop STACK",
		Short: "Stop a stack, which is failed then; its data stays, and a deploy starts it again",
		Args:  words(1, "the id of one stack"),
		RunE:  told(stopStack),
	}
	stop.Flags().String("reason", "", "what its owner reads")
	remove := &cobra.Command{
		Use:   "delete STACK",
		Short: "Permanently delete a stack and its data",
		Args:  words(1, "the id of one stack"),
		RunE:  told(deleteStack),
	}
	remove.Flags().BoolP("yes", "y", false, "do not ask for confirmation")
	stacks.AddCommand(list, show, stop, remove, &cobra.Command{
		Use:   "move STACK NODE",
		Short: "Move a stack to another node, and wait until that has it",
		Args:  words(2, "the id of a stack, and the hostname or id of a node; berthd nodes lists them"),
		RunE:  configured(moveStack),
	})
	return stacks
}

// told adapts run to cobra: it gets a client of the server that runs.
func told(run func(cmd *cobra.Command, to *operator.Client, args []string) error) func(*cobra.Command, []string) error {
	return configured(func(cmd *cobra.Command, config server.Config, args []string) error {
		to, err := clientOf(config)
		if err != nil {
			return err
		}
		return run(cmd, to, args)
	})
}

// clientOf returns a client of the server that runs with a configuration.
func clientOf(config server.Config) (*operator.Client, error) {
	dir, err := filepath.Abs(config.DataDir)
	if err != nil {
		return nil, fmt.Errorf("BERTH_DATA_DIR: %w", err)
	}
	return operator.NewClient(dir), nil
}

// printJSON prints a value as one line of JSON if the command has been given --json, and
// reports whether it has.
func printJSON(cmd *cobra.Command, value any) (printed bool, err error) {
	if asJSON, _ := cmd.Flags().GetBool("json"); !asJSON { // the flag exists
		return false, nil
	}
	return true, json.NewEncoder(cmd.OutOrStdout()).Encode(value)
}

func listStacks(cmd *cobra.Command, to *operator.Client, _ []string) error {
	all, err := to.Stacks(cmd.Context())
	if err != nil {
		return err
	}
	if printed, err := printJSON(cmd, all); printed {
		return err
	}
	out := cmd.OutOrStdout()
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	withNode := slices.ContainsFunc(all.Stacks, func(s operator.Stack) bool { return s.Node != "" })
	fmt.Fprintln(table, stackTitles(withNode))
	for i := range all.Stacks {
		fmt.Fprintln(table, stackLine(&all.Stacks[i], withNode))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "\nBuilds: %d running, %d in line\n", all.Builds.Running, all.Builds.Waiting)
	return err
}

// stackTitles returns the titles of the cells of stackLine.
func stackTitles(withNode bool) string {
	titles := "ID\tNAME\tSTATUS\tOWNER\tMEMORY\tCPU\tDATA\tDISK"
	if withNode {
		titles += "\tNODE"
	}
	return titles + "\tFAILURE"
}

// stackLine returns the cells of a stack, separated by tabs.
func stackLine(s *operator.Stack, withNode bool) string {
	failure, _, _ := strings.Cut(s.Failure, "\n")
	failure = stack.OneLine(failure)
	owner := "-"
	if s.Owner != nil {
		owner = *s.Owner
	}
	status := s.Status
	switch {
	case s.NodeState != "" && s.NodeState != operator.NodeReady:
		status += " (node " + s.NodeState + ")"
	case s.Restoring:
		status += " (restoring)"
	}
	cells := []string{s.ID, s.Name, status, owner, size(s.Memory), cores(s.Cores), size(s.Data), size(s.Disk) + age(s.DiskAt)}
	if withNode {
		cells = append(cells, cmp.Or(s.NodeName, s.Node))
	}
	return strings.Join(append(cells, failure), "\t")
}

// size returns a number of bytes for people, - if it is not known.
func size(bytes *int64) string {
	if bytes == nil {
		return "-"
	}
	return units.HumanSize(float64(*bytes))
}

// oldAfter is when the age of a measurement is shown: it is longer than one like it is kept.
const oldAfter = 15 * time.Minute

// age returns how old a measurement is, "" if that does not matter.
func age(at *time.Time) string {
	if at == nil || time.Since(*at) < oldAfter {
		return ""
	}
	return fmt.Sprintf(" (%s ago)", units.HumanDuration(time.Since(*at)))
}

// cores returns a number of processors for people, - if it is not known.
func cores(n *float64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f", *n)
}

func stopStack(cmd *cobra.Command, to *operator.Client, args []string) error {
	reason, _ := cmd.Flags().GetString("reason") // the flag exists
	err := to.StopStack(cmd.Context(), args[0], reason)
	if err == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "Stopped the stack %s. Its data stays; a deploy starts it again.\n", args[0])
	}
	return err
}

func deleteStack(cmd *cobra.Command, to *operator.Client, args []string) error {
	if yes, _ := cmd.Flags().GetBool("yes"); !yes { // the flag exists
		fmt.Fprintf(cmd.ErrOrStderr(), "The stack %s will be deleted with all data. This cannot be undone. Type its id to delete it: ", args[0])
		typed, err := readTyped(cmd)
		if err != nil {
			return err
		}
		if typed != args[0] {
			return errors.New("nothing was deleted: type the id of the stack when asked, or pass --yes")
		}
	}
	err := to.DeleteStack(cmd.Context(), args[0])
	if err == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "Deleted the stack %s.\n", args[0])
	}
	return err
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

// showStack shows a stack as its server knows it. In a cluster the database knows enough if no
// server runs on this node.
func showStack(cmd *cobra.Command, config server.Config, args []string) error {
	to, err := clientOf(config)
	if err != nil {
		return err
	}
	whole, err := to.Stack(cmd.Context(), args[0])
	if errors.Is(err, operator.ErrNoServer) && config.InCluster() {
		return showPlace(cmd, config, args[0])
	}
	if err != nil {
		return err
	}
	if printed, err := printJSON(cmd, whole); printed {
		return err
	}
	out := cmd.OutOrStdout()
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, stackTitles(false))
	fmt.Fprintln(table, stackLine(&whole, false))
	fmt.Fprintln(table, "\nSERVICE\tRUNTIME\tSTATUS\t\tMEMORY\tCPU\tDATA")
	for _, s := range whole.Services {
		fmt.Fprintf(table, "%s\t%s\t%s\t\t%s\t%s\t%s\n", s.Name, s.Runtime, s.Status, size(s.Memory), cores(s.Cores), size(s.Data))
	}
	errs := []error{table.Flush()}
	if whole.Node != "" {
		_, err := fmt.Fprintf(out, "\nNode %s has it, in epoch %d.\n", cmp.Or(whole.NodeName, whole.Node), whole.Epoch)
		errs = append(errs, err)
	}
	for _, l := range whole.Left {
		errs = append(errs, printOneLeft(out, l.NodeName, l.Stack, l.Volumes))
	}
	return errors.Join(errs...)
}

// showPlace shows which node has a stack, and which others have data of it.
func showPlace(cmd *cobra.Command, config server.Config, id string) error {
	return withNodes(cmd, config, func(nodes server.Nodes) error {
		v, err := nodes.Stack(cmd.Context(), id)
		if err != nil {
			return err
		}
		if printed, err := printJSON(cmd, v); printed {
			return err
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
		errs = append(errs, printOneLeft(out, l.OnName, l.Stack, l.Volumes))
	}
	return errors.Join(errs...)
}

func printOneLeft(out io.Writer, node, id string, volumes []string) error {
	_, err := fmt.Fprintf(out, "Node %s has data of the stack %s, which it does not own: %s. It stays until you remove it.\n", node, id, strings.Join(volumes, ", "))
	return err
}

func moveStack(cmd *cobra.Command, config server.Config, args []string) error {
	err := withNodes(cmd, config, func(nodes server.Nodes) error { return nodes.Move(cmd.Context(), args[0], args[1]) })
	if err == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "Node %s has the stack %s.\n", args[1], args[0])
	}
	return err
}
