package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/berth-host/berth/internal/plainjson"
)

// ui is where the command reads and writes.
type ui struct {
	in       *os.File
	out, err io.Writer

	asks     bool // standard input and error are terminals: questions can be asked
	terminal bool // standard error is a terminal: progress can be shown
	shows    bool // standard output is one, too
	color    bool
	width    int // of the terminal in columns
	quiet    bool
}

func newUI(in, out, err *os.File) *ui {
	u := &ui{in: in, out: out, err: err, width: 80}
	dumb := os.Getenv("TERM") == "dumb"
	u.terminal = term.IsTerminal(int(err.Fd())) && !dumb
	u.shows = term.IsTerminal(int(out.Fd())) && u.terminal
	u.asks = term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(err.Fd()))
	u.color = u.terminal && os.Getenv("NO_COLOR") == ""
	if w, _, sizeErr := term.GetSize(int(err.Fd())); sizeErr == nil && w > 0 {
		u.width = w
	}
	return u
}

// sayf prints a message for people; programs do not read it.
func (u *ui) sayf(format string, args ...any) {
	if !u.quiet {
		fmt.Fprintln(u.err, u.clean(fmt.Sprintf(format, args...)))
	}
}

func (u *ui) paint(code, s string) string {
	if !u.color || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (u *ui) red(s string) string   { return u.paint("31", s) }
func (u *ui) green(s string) string { return u.paint("32", s) }
func (u *ui) dim(s string) string   { return u.paint("2", s) }

// paintOut is like paint for standard output, which may not be a terminal.
func (u *ui) paintOut(code, s string) string {
	if !u.shows {
		return s
	}
	return u.paint(code, s)
}

// printJSON prints one line of JSON as data.
func (u *ui) printJSON(v any) error {
	line, err := plainjson.MarshalLine(v)
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return u.print(string(line))
}

// println writes a line to standard output.
func (u *ui) println(line string) error { return u.print(line + "\n") }

func (u *ui) print(text string) error {
	if _, err := io.WriteString(u.out, text); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// ask reads a line while the terminal shows it.
func (u *ui) ask(ctx context.Context, question string) (string, error) {
	fmt.Fprint(u.err, question)
	return interruptible(ctx, func() (string, error) { return readLine(u.in) })
}

// askSecret reads a line without showing it.
func (u *ui) askSecret(ctx context.Context, question string) (string, error) {
	fd := int(u.in.Fd())
	shows, err := term.GetState(fd)
	if err != nil {
		return "", fmt.Errorf("look at the terminal: %w", err)
	}
	fmt.Fprint(u.err, question)
	secret, err := interruptible(ctx, func() ([]byte, error) { return term.ReadPassword(fd) })
	fmt.Fprintln(u.err)
	if err != nil {
		return "", errors.Join(fmt.Errorf("read from the terminal: %w", err), term.Restore(fd, shows))
	}
	return strings.TrimSpace(string(secret)), nil
}

// outcome is what a function returned.
type outcome[T any] struct {
	value T
	err   error
}

// inBackground calls do and sends what it returns, even if nobody receives it.
func inBackground[T any](do func() (T, error)) <-chan outcome[T] {
	done := make(chan outcome[T], 1)
	go func() {
		value, err := do()
		done <- outcome[T]{value, err}
	}()
	return done
}

// interruptible calls read, which may never return, and abandons it if the context ends
// first.
func interruptible[T any](ctx context.Context, read func() (T, error)) (T, error) {
	select {
	case r := <-inBackground(read):
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

func readLine(r io.Reader) (string, error) {
	line, err := bufio.NewReader(io.LimitReader(r, 4096)).ReadString('\n')
	if err != nil && line == "" {
		return "", fmt.Errorf("read an answer: %w", err)
	}
	return strings.TrimSpace(line), nil
}

// clean removes from a text what could control a terminal, since it may come from
// somebody else's program. Colours stay if the terminal has colours.
func (u *ui) clean(s string) string { return clean(s, u.color) }

func clean(s string, colors bool) string {
	if !strings.ContainsFunc(s, steers) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		_, size := utf8.DecodeRuneInString(s[i:])
		kept := !strings.ContainsFunc(s[i:i+size], steers)
		if n := colorLength(s[i:]); n > 0 {
			size, kept = n, colors
		}
		if kept {
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	return b.String()
}

func steers(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }

// colorLength returns the length of the colour sequence at the start of s, 0 for none.
func colorLength(s string) int {
	if !strings.HasPrefix(s, "\x1b[") {
		return 0
	}
	for i := 2; i < len(s); i++ {
		switch c := s[i]; {
		case c == 'm':
			return i + 1
		case c != ';' && (c < '0' || c > '9'):
			return 0
		}
	}
	return 0
}

// unixTime converts a time of the API.
func unixTime(seconds float64) time.Time { return time.UnixMilli(int64(seconds * 1000)) }
