// Package manpage writes the manual page of a command line. Code in this package reads the
// commands and the environment variable SOURCE_DATE_EPOCH, and touches nothing else.
package manpage

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	mcobra "github.com/muesli/mango-cobra"
	"github.com/muesli/roff"
	"github.com/spf13/cobra"
)

// Section is a part of a page that follows the options and the commands.
type Section struct{ Title, Text string }

// Command returns the hidden command man, which prints the page of the command line that
// it is added to.
func Command(section uint, sections ...Section) *cobra.Command {
	return &cobra.Command{
		Use:    "man",
		Short:  "Print the manual page",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return Write(cmd.OutOrStdout(), section, cmd.Root(), sections...)
		},
	}
}

// Write writes the page of a command with all commands below it. Its date is that of
// SOURCE_DATE_EPOCH, or today.
func Write(w io.Writer, section uint, root *cobra.Command, sections ...Section) error {
	page, err := mcobra.NewManPage(section, root)
	if err != nil {
		return fmt.Errorf("manual page of %s: %w", root.Name(), err)
	}
	for _, s := range sections {
		page = page.WithSection(s.Title, s.Text)
	}
	at, err := date()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, page.Build(dated{roff.NewDocument(), at}))
	return err
}

// date returns the date of the page.
func date() (time.Time, error) {
	value := os.Getenv("SOURCE_DATE_EPOCH")
	if value == "" {
		return time.Now(), nil
	}
	seconds, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH=%q is not a number of seconds", value)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// dated is a document whose date does not depend on when it is written.
type dated struct {
	*roff.Document
	at time.Time
}

// Heading implements mango.Builder.
func (d dated) Heading(section uint, title, description string, _ time.Time) {
	d.Document.Heading(section, title, description, d.at)
}
