//go:build linux

// Package terminal lets tests run a program on a pseudo-terminal, as a person would.
package terminal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// size is large enough for a QR code.
var size = pty.Winsize{Rows: 60, Cols: 120}

// Typing is what a person types once something is shown.
type Typing struct {
	After  string // what the terminal shows before
	Text   string
	Hidden bool // the person waits until the terminal does not show what is typed
}

// Run runs a command with its input, output and errors on a terminal of its
// own. It returns everything that the terminal showed, and the command's error.
func Run(cmd *exec.Cmd, typed ...Typing) (shown string, err error) {
	master, err := pty.StartWithSize(cmd, &size)
	if err != nil {
		return "", fmt.Errorf("start on a pseudo-terminal: %w", err)
	}
	defer master.Close()
	shown, err = converse(master, typed)
	return shown, errors.Join(cmd.Wait(), err)
}

// converse reads what is shown and types when it is time to.
func converse(master *os.File, typed []Typing) (string, error) {
	var all []byte
	buf := make([]byte, 4096)
	from := 0 // of what has not been answered
	for {
		n, err := master.Read(buf)
		all = append(all, buf[:n]...)
		for len(typed) > 0 && bytes.Contains(all[from:], []byte(typed[0].After)) {
			from = len(all)
			if err := typed[0].on(master); err != nil {
				return string(all), err
			}
			typed = typed[1:]
		}
		switch {
		case errors.Is(err, syscall.EIO) || errors.Is(err, io.EOF):
			return string(all), nil // EIO is how Linux says that nobody has the terminal open any more
		case err != nil:
			return string(all), fmt.Errorf("read the pseudo-terminal: %w", err)
		}
	}
}

// on types a text.
func (t Typing) on(master *os.File) error {
	for t.Hidden {
		settings, err := unix.IoctlGetTermios(int(master.Fd()), unix.TCGETS)
		if err != nil {
			return fmt.Errorf("look at the pseudo-terminal: %w", err)
		}
		if settings.Lflag&unix.ECHO == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if _, err := io.WriteString(master, t.Text); err != nil {
		return fmt.Errorf("type on the pseudo-terminal: %w", err)
	}
	return nil
}
