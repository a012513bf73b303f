package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/berth-host/berth/internal/server"
)

func accountCommand() *cobra.Command {
	account := &cobra.Command{Use: "account", Short: "Manage accounts", RunE: listCommands}
	create := &cobra.Command{
		Use:   "create EMAIL",
		Short: "Create an account and print its API key, which is shown only once",
		Args:  oneEmail,
		RunE:  configured(createAccount),
	}
	create.Flags().Bool("password-stdin", false, "read the password for signing in from standard input")
	password := &cobra.Command{
		Use:   "password EMAIL",
		Short: "Set the password of an account and end its sessions; asks for it, or reads it from standard input",
		Args:  oneEmail,
		RunE:  configured(setPassword),
	}
	remove := &cobra.Command{
		Use:   "delete EMAIL",
		Short: "Permanently delete an account, its stacks and their data",
		Args:  oneEmail,
		RunE:  configured(deleteAccount),
	}
	remove.Flags().BoolP("yes", "y", false, "do not ask for confirmation")
	account.AddCommand(create, password, remove)
	return account
}

// listCommands prints the commands of cmd, without the server's flags.
func listCommands(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s has no command %q; run %s to list its commands", cmd.CommandPath(), args[0], cmd.CommandPath())
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "%s\n\n", cmd.Short)
	for _, c := range cmd.Commands() {
		fmt.Fprintf(out, "  berthd %s %-16s %s\n", cmd.Name(), c.Use, c.Short)
	}
	_, err := fmt.Fprintf(out, "\n%s COMMAND --help lists the flags; berthd config explains the settings.\n", cmd.CommandPath())
	return err
}

// oneEmail checks that a command has exactly one argument.
func oneEmail(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s takes one email address, as in: %s ana@example.com", cmd.CommandPath(), cmd.CommandPath())
	}
	return nil
}

func createAccount(cmd *cobra.Command, config server.Config, args []string) error {
	password := ""
	if fromStdin, _ := cmd.Flags().GetBool("password-stdin"); fromStdin { // the flag exists
		var err error
		if password, err = readPassword(cmd); err != nil {
			return err
		}
	}
	key, err := server.CreateAccount(cmd.Context(), config, args[0], password, server.NewLogger(os.Stderr))
	if err != nil {
		return err
	}
	talk := cmd.ErrOrStderr()
	if password == "" {
		fmt.Fprintf(talk, "The account has no password; set one to sign in to the dashboard: berthd account password %s\n", args[0])
	}
	fmt.Fprintf(talk, "Created account %s. Its API key is shown only once:\n", args[0])
	_, err = fmt.Fprintln(cmd.OutOrStdout(), key)
	return err
}

func setPassword(cmd *cobra.Command, config server.Config, args []string) error {
	password, err := readPassword(cmd)
	if err != nil {
		return err
	}
	if err := server.SetPassword(cmd.Context(), config, args[0], password, server.NewLogger(os.Stderr)); err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "Set the password of %s and ended its sessions.\n", args[0])
	return nil
}

func deleteAccount(cmd *cobra.Command, config server.Config, args []string) error {
	yes, _ := cmd.Flags().GetBool("yes") // the flag exists
	confirm := func(address string, stacks []string) error {
		if yes {
			return nil
		}
		return confirmDelete(cmd, address, stacks)
	}
	stacks, err := server.DeleteAccount(cmd.Context(), config, args[0], confirm, server.NewLogger(os.Stderr))
	if err != nil {
		return err
	}
	talk := cmd.ErrOrStderr()
	if stacks == 0 {
		fmt.Fprintf(talk, "Deleted account %s. It owned no stacks.\n", args[0])
		return nil
	}
	fmt.Fprintf(talk, "Deleted account %s and %s.\n", args[0], countStacks(stacks))
	fmt.Fprintln(talk, "The server removes the containers and data now, or at its next start if it is not running.")
	return nil
}

func countStacks(n int) string {
	if n == 1 {
		return "1 stack"
	}
	return fmt.Sprintf("%d stacks", n)
}

// confirmDelete says what is deleted with an account, and asks the user to type
// its address.
func confirmDelete(cmd *cobra.Command, address string, stacks []string) error {
	talk := cmd.ErrOrStderr()
	if len(stacks) > 0 {
		fmt.Fprintf(talk, "%s owns %s, which will be deleted with all data:\n", address, countStacks(len(stacks)))
	}
	for _, line := range stacks {
		fmt.Fprintln(talk, "  "+line)
	}
	fmt.Fprintf(talk, "This cannot be undone. Type %s to delete the account: ", address)
	typed, err := readTyped(cmd)
	if err != nil {
		return err
	}
	if !strings.EqualFold(typed, address) {
		return fmt.Errorf("nothing was deleted: type %s when asked, or pass --yes", address)
	}
	return nil
}

// readTyped returns the line that the user types, without space around it.
func readTyped(cmd *cobra.Command) (string, error) {
	typed, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if in, ok := cmd.InOrStdin().(*os.File); !ok || !term.IsTerminal(int(in.Fd())) {
		fmt.Fprintln(cmd.ErrOrStderr()) // nobody saw a line end
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read the confirmation: %w", err)
	}
	return strings.TrimSpace(typed), nil
}

// readPassword asks for a password twice on a terminal; elsewhere it reads the first
// line of standard input.
func readPassword(cmd *cobra.Command) (string, error) {
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return readLine(cmd.InOrStdin())
	}
	first, err := ask(cmd.ErrOrStderr(), in, "Password: ")
	if err != nil {
		return "", err
	}
	again, err := ask(cmd.ErrOrStderr(), in, "Again: ")
	if err != nil {
		return "", err
	}
	if first != again {
		return "", errors.New("the two passwords differ; run the command again")
	}
	return first, nil
}

func ask(talk io.Writer, in *os.File, prompt string) (string, error) {
	fmt.Fprint(talk, prompt)
	password, err := term.ReadPassword(int(in.Fd()))
	fmt.Fprintln(talk)
	if err != nil {
		return "", fmt.Errorf("read the password: %w", err)
	}
	return string(password), nil
}

// readLine returns the first line of r without its end. It fails if there is none, so
// that an account does not lose its password by mistake.
func readLine(r io.Reader) (string, error) {
	line, err := bufio.NewReader(r).ReadString('\n')
	line = strings.TrimRight(line, "\r\n")
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read the password: %w", err)
	}
	if line == "" {
		return "", errors.New("no password on standard input; pipe it in, as one line")
	}
	return line, nil
}
