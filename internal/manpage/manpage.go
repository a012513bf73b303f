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
	"github.com/spf13/pflag"
)

// Section is a part of a page that follows the commands and the options.
type Section struct {
	Title, Text string
	Items       []Item
}

// Item is a paragraph of a section that explains a tag.
type Item struct{ Tag, Text string }

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

// Write writes the page of a command: all commands below it, its options with their values
// as defaults, and the sections. Its date is that of SOURCE_DATE_EPOCH, or today.
func Write(w io.Writer, section uint, root *cobra.Command, sections ...Section) error {
	page, err := mcobra.NewManPage(section, root)
	if err != nil {
		return fmt.Errorf("manual page of %s: %w", root.Name(), err)
	}
	page.Root.Flags, page.Root.Example = nil, "" // they follow the commands
	at, err := date()
	if err != nil {
		return err
	}
	doc := dated{roff.NewDocument(), at}
	page.Build(doc)
	options(root).write(doc)
	if root.Example != "" {
		Section{Title: "Examples", Text: root.Example}.write(doc)
	}
	for _, s := range sections {
		s.write(doc)
	}
	_, err = fmt.Fprintln(w, doc)
	return err
}

// options returns the section of a command's own options.
func options(cmd *cobra.Command) Section {
	s := Section{Title: "Options"}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		tag, text := "--"+f.Name, f.Usage
		if f.Shorthand != "" {
			tag = "-" + f.Shorthand + ", " + tag
		}
		if value := f.Value.String(); value != "" && f.Value.Type() == "string" {
			text += " (default " + value + ")"
		}
		s.Items = append(s.Items, Item{tag, text})
	})
	return s
}

func (s Section) write(doc dated) {
	doc.Section(s.Title)
	doc.Text(s.Text)
	for _, i := range s.Items {
		doc.TaggedParagraph(-1)
		doc.TextBold(i.Tag)
		doc.EndSection()
		doc.Text(i.Text)
	}
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
