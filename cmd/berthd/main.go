// Command berthd is the Berth server. Without arguments it serves; `berthd help` lists
// its other commands.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-host/berth/internal/manpage"
	"github.com/berth-host/berth/internal/reload"
	"github.com/berth-host/berth/internal/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "berthd:", err)
		os.Exit(1)
	}
}

// command returns the command line: every setting is a flag of each command.
func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "berthd",
		Short:         "Host stacks that agents deploy and people claim",
		Long:          "berthd is the Berth server: it turns uploaded archives into running services with public URLs, on the Docker engine of its machine. Without a command it serves.",
		Version:       version(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          configured(serve),
	}
	for _, s := range server.Settings() {
		root.PersistentFlags().String(s.Flag(), defaultOf(s), s.Meaning+" ("+s.Name+")")
	}
	root.SetUsageTemplate(usage)
	root.AddCommand(
		&cobra.Command{Use: "serve", Short: "Run the server (the default)", Args: cobra.NoArgs, RunE: configured(serve)},
		configCommand(),
		imagesCommand(),
		accountCommand(),
		nodesCommand(),
		doctorCommand(),
		manpage.Command(8, manual()...),
		stacksCommand(),
		accountsCommand(),
		banCommand(),
		unbanCommand(),
		auditCommand(),
		backupCommand(),
		restoreCommand(),
		migrateCommand(),
	)
	root.CompletionOptions.HiddenDefaultCmd = true
	return root
}

// flagLookup returns a function that looks up the given flags.
func flagLookup(cmd *cobra.Command) func(string) (string, bool) {
	return func(name string) (string, bool) {
		flag := cmd.Flags().Lookup(name)
		return flag.Value.String(), flag.Changed
	}
}

// configured adapts run to cobra: it loads the settings first.
func configured(run func(cmd *cobra.Command, config server.Config, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := installedDefaults(); err != nil {
			return err
		}
		config, err := server.Load(flagLookup(cmd), os.LookupEnv)
		if err != nil {
			return err
		}
		return run(cmd, config, args)
	}
}

func serve(cmd *cobra.Command, config server.Config, _ []string) error {
	log := server.NewLogger(os.Stderr)
	slog.SetDefault(log) // for libraries that write to the standard logger
	if os.Getenv("GOGC") == "" {
		boundHeap()
	}
	program, err := reload.Current()
	if err != nil {
		return fmt.Errorf("find the program that runs: %w", err)
	}
	before, err := reload.FromEnvironment()
	if err != nil {
		return err
	}
	flags := changedFlags(cmd)
	return server.Serve(cmd.Context(), config, server.Program{
		Path:   program,
		Args:   append([]string{"serve"}, flags...),
		Check:  append([]string{"config"}, flags...),
		Before: before,
	}, log)
}

// changedFlags returns the flags that a command was given.
func changedFlags(cmd *cobra.Command) (flags []string) {
	cmd.Flags().Visit(func(f *pflag.Flag) { flags = append(flags, "--"+f.Name+"="+f.Value.String()) })
	return flags
}

func configCommand() *cobra.Command {
	var asFile bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print every setting with its value, default and meaning",
		Args:  cobra.NoArgs,
		RunE: configured(func(cmd *cobra.Command, _ server.Config, _ []string) error {
			if asFile {
				return server.PrintFile(cmd.OutOrStdout(), flagLookup(cmd))
			}
			return server.Print(cmd.OutOrStdout(), flagLookup(cmd), os.LookupEnv)
		}),
	}
	cmd.Flags().BoolVar(&asFile, "file", false, "print them as an environment file, commented out")
	return cmd
}

func imagesCommand() *cobra.Command {
	images := &cobra.Command{Use: "images", Short: "Manage the base images of the runtimes"}
	images.AddCommand(&cobra.Command{
		Use:   "build [RUNTIME[@VERSION]…]",
		Short: "Build the named base images ahead of time, or all of them",
		RunE: configured(func(cmd *cobra.Command, config server.Config, names []string) error {
			return server.BuildImages(cmd.Context(), config, names, cmd.OutOrStdout())
		}),
	})
	return images
}
