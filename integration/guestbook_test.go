package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// step is a block of commands on a page, and what they print.
type step struct {
	commands, output string
}

// steps reads the blocks of commands on a page. What one prints is the block of text
// below it; in that an ellipsis stands for anything.
func steps(page string) []step {
	var all []step
	for _, block := range regexp.MustCompile("(?s)```(sh|text)\n(.*?)```").FindAllStringSubmatch(page, -1) {
		if block[1] == "sh" {
			all = append(all, step{commands: block[2]})
		} else {
			all[len(all)-1].output = block[2]
		}
	}
	return all
}

// prints returns a pattern for all of what the step prints.
func (s step) prints() string {
	parts := strings.Split(strings.TrimSpace(s.output), "…")
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(part)
	}
	return `(?s)^\s*` + strings.Join(parts, ".*") + `\s*$`
}

// walk runs steps in one shell in a folder, and returns what each prints.
func (c *Client) walk(t *testing.T, dir string, steps []step) []string {
	t.Helper()
	const next = "---- next step"
	var script strings.Builder
	for _, s := range steps {
		fmt.Fprintf(&script, "%s\necho; echo %s\n", s.commands, next)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-euc", script.String())
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + filepath.Dir(c.path) + ":" + os.Getenv("PATH"), "HOME=" + c.home}
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.adopt(out)
	}
	require.NoError(t, err, "%s", out)
	printed := strings.Split(strings.ReplaceAll(string(out), "\r", ""), next) // which end lines of headers
	require.Len(t, printed, len(steps)+1, "%s", out)
	return printed[:len(steps)]
}

// adopt leaves the stack that is the first thing in an output to the end of the test.
func (c *Client) adopt(output []byte) {
	st := &Stack{}
	if json.NewDecoder(bytes.NewReader(output)).Decode(st) == nil && st.ID != "" {
		c.host.adoptStack(st)
	}
}

// The walk through three edits says what every command prints.
func TestGuestbook_GoesThroughItsThreeEditsAsItsPageSays(t *testing.T) {
	t.Parallel()
	h := start(t)
	page, err := os.ReadFile("../examples/guestbook/README.md")
	require.NoError(t, err)
	all := steps(strings.ReplaceAll(string(page), "http://localhost:8080", h.base()))
	require.Greater(t, len(all), 9)
	c, dir := newClientFor(t, h), t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, "examples", "guestbook"), os.DirFS("../examples/guestbook")))
	for i, printed := range c.walk(t, dir, all) {
		require.NotEmpty(t, all[i].output)
		require.Regexp(t, all[i].prints(), printed, "%s", all[i].commands)
	}
}
