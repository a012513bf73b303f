package main

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/berth-host/berth/internal/server"
)

func migrateCommand() *cobra.Command {
	migrate := &cobra.Command{
		Use:   "migrate --from ADDRESS --to ADDRESS",
		Short: "Copy the state to another, empty database while no server runs",
		Args:  cobra.NoArgs,
		RunE:  migrateState,
	}
	migrate.Flags().String("from", "", "database with the state, sqlite:///path or postgres://user@host/database; when empty, BERTH_DATABASE_URL")
	migrate.Flags().String("to", "", "empty database to copy it to; when empty, BERTH_DATABASE_URL. With BERTH_CLUSTER=swarm it is a cluster's, whose first node is this machine")
	return migrate
}

func migrateState(cmd *cobra.Command, _ []string) error {
	if err := installedDefaults(); err != nil {
		return err
	}
	from, _ := cmd.Flags().GetString("from") // the flags exist
	to, _ := cmd.Flags().GetString("to")
	config, err := server.Load(migrateLookup(cmd, to), os.LookupEnv)
	if err != nil {
		return err
	}
	done, err := server.Migrate(cmd.Context(), config, from, to, server.NewLogger(os.Stderr))
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TABLE\tROWS")
	for _, c := range done.Copied {
		fmt.Fprintf(table, "%s\t%d\n", c.Table, c.Rows)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	talk := cmd.ErrOrStderr()
	fmt.Fprintf(talk, "Copied %s to %s.\n", done.From, done.To)
	for _, step := range done.Next {
		fmt.Fprintln(talk, step)
	}
	return nil
}

// migrateLookup is flagLookup for a command that makes a database of PostgreSQL the server's:
// the settings are checked with that one if they name no other.
func migrateLookup(cmd *cobra.Command, to string) func(string) (string, bool) {
	flags := flagLookup(cmd)
	return func(name string) (string, bool) {
		value, given := flags(name)
		if name == "database-url" && !given && os.Getenv("BERTH_DATABASE_URL") == "" && strings.HasPrefix(to, "postgres") {
			return to, true
		}
		return value, given
	}
}
