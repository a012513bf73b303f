package manpage_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/manpage"
)

func sample() *cobra.Command {
	root := &cobra.Command{Use: "tool", Short: "Does things", Long: "A tool that does things", Example: "tool move it"}
	root.PersistentFlags().String("where", "", "place of things")
	root.PersistentFlags().StringP("from", "f", "here", "place before")
	root.PersistentFlags().Bool("loud", false, "say it")
	sub := &cobra.Command{Use: "move THING", Short: "Move a thing", Run: func(*cobra.Command, []string) {}}
	sub.Flags().Bool("fast", false, "move it at once")
	root.AddCommand(sub, &cobra.Command{Use: "secret", Short: "Unseen", Hidden: true, Run: sub.Run})
	root.AddCommand(manpage.Command(8, manpage.Section{
		Title: "Files", Text: "/etc/tool", Items: []manpage.Item{{Tag: "/etc/tool/on", Text: "turns it on"}},
	}))
	return root
}

func page(t *testing.T) string {
	t.Helper()
	var out bytes.Buffer
	root := sample()
	root.SetArgs([]string{"man"})
	root.SetOut(&out)
	require.NoError(t, root.Execute())
	return out.String()
}

func TestCommand_PrintsCommandsFlagsAndSections(t *testing.T) {
	text := page(t)
	for _, part := range []string{".TH TOOL 8", "A tool that does things", "where", "place of things", "move", "THING", "fast", ".SH FILES", "/etc/tool"} {
		require.Contains(t, text, part)
	}
	require.NotContains(t, text, "Unseen")
	var order []string
	for line := range strings.Lines(text) {
		if title, ok := strings.CutPrefix(line, ".SH "); ok {
			order = append(order, strings.TrimSpace(title))
		}
	}
	require.Equal(t, []string{"NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "OPTIONS", "EXAMPLES", "FILES"}, order)
	require.Contains(t, text, ".TP\n\\fB-f, --from\\fP\nplace before (default here)\n.TP\n\\fB--loud\\fP\nsay it\n.TP\n\\fB--where\\fP\nplace of things\n")
	require.Contains(t, text, ".TP\n\\fB/etc/tool/on\\fP\nturns it on\n")
}

func TestCommand_HasTheDateOfTheSource(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "86400")
	require.True(t, strings.Contains(page(t), "1970-01-02"), page(t))
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	root := sample()
	root.SetArgs([]string{"man"})
	root.SilenceErrors, root.SilenceUsage = true, true
	require.ErrorContains(t, root.Execute(), "SOURCE_DATE_EPOCH")
}
