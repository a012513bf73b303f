//go:build linux

// Package pty lets tests run a program on a pseudo-terminal, as a person would.
package pty

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Columns and Rows are the size of the terminal.
const (
	Columns = 120
	Rows    = 60
)

// Typing is what a person types once something is shown.
type Typing struct {
	After  string // what the terminal shows before
	Text   string
	Hidden bool // the person waits until the terminal does not show what is typed
}

// Run runs a command with its input, output and errors on a terminal of its
// own. It returns all that the terminal showed, and the error of the command.
func Run(cmd *exec.Cmd, typed ...Typing) (shown string, err error) {
	master, slave, err := open()
	if err != nil {
		return "", err
	}
	defer master.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = cmd.Start()
	slave.Close()
	if err != nil {
		return "", fmt.Errorf("start on a pseudo-terminal: %w", err)
	}
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

// open makes a pseudo-terminal.
func open() (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a pseudo-terminal: %w", err)
	}
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	defer func() {
		if err != nil {
			master.Close()
		}
	}()
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, fmt.Errorf("unlock a pseudo-terminal: %w", err)
	}
	number, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, fmt.Errorf("name a pseudo-terminal: %w", err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: Rows, Col: Columns}); err != nil {
		return nil, nil, fmt.Errorf("size a pseudo-terminal: %w", err)
	}
	slave, err = os.OpenFile("/dev/pts/"+strconv.FormatUint(uint64(number), 10), os.O_RDWR|unix.O_NOCTTY, 0)
	return master, slave, err
}
