package web

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// latestCommands is the number of commands that a stack's page shows: all that are kept.
const latestCommands = 100

// command formats a stack.Command for the page.
type command struct{ ran stack.Command }

// lineRunes is how much of a command the page shows.
const lineRunes = 500

// line returns the command, without its end if it is long.
func (c command) line() string {
	line := []rune(readable(c.ran.Line))
	if len(line) <= lineRunes {
		return string(line)
	}
	return string(line[:lineRunes]) + "…"
}

// by returns who ran the command.
func (c command) by() string { return cmp.Or(c.ran.By, "the agent") }

// running reports whether the command has not ended.
func (c command) running() bool { return c.ran.EndedAt.IsZero() }

// ok reports whether the command succeeded.
func (c command) ok() bool { return c.ran.ExitCode != nil && *c.ran.ExitCode == 0 }

// failed reports whether the command has ended in any other way.
func (c command) failed() bool { return !c.running() && !c.ok() }

// outcome returns how the command ended, in a few words.
func (c command) outcome() string {
	switch {
	case c.running():
		return "running"
	case c.ran.TimedOut:
		return "timed out"
	case c.ran.ExitCode == nil:
		return "ended"
	}
	return "exit code " + strconv.Itoa(*c.ran.ExitCode)
}

// took returns how long the command ran.
func (c command) took() string {
	if c.running() {
		return "–"
	}
	return inShort(c.ran.EndedAt.Sub(c.ran.StartedAt))
}

// inShort formats the duration of something short.
func inShort(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// showCommands returns a stack's last commands.
func (w *pages) showCommands(s *stack.Stack) ([]command, error) {
	list, err := w.cfg.Store.Commands(w.server.Context(), s.ID, latestCommands)
	if err != nil {
		return nil, fmt.Errorf("read the commands of stack %s: %w", s.ID, err)
	}
	shown := make([]command, len(list))
	for i, c := range list {
		shown[i] = command{c}
	}
	return shown, nil
}
